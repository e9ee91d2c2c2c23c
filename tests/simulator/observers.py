"""Observers of resources: describe them, wait for news, and record the answers."""

from __future__ import annotations

from mtl.client.control import Outcome
from mtl.wire import control
from tests.simulator.model import Model, Violation
from tests.simulator.network import Routers
from tests.simulator.process import Process, is_of_the_disk
from tests.simulator.world import World


class ObserverApp:
    """Describes resources repeatedly, sometimes with a wait for news."""

    def __init__(self, world: World, routers: Routers, model: Model, name: str) -> None:
        self.world = world
        self.name = name
        self._routers = routers
        self._model = model
        self._begin()

    @property
    def settled(self) -> bool:
        """It has no pending work."""
        return True

    def kill(self) -> None:
        """It restarts."""
        self.process.kill()
        self._begin()

    def _begin(self) -> None:
        self.process = Process(self.world, self._routers, self.name)
        self._channel = self.process.channel()
        self._known_ends: dict[str, int] = {}
        self._state: str | None = None
        self.process.after(0.01, self._ask)

    def _ask(self) -> None:
        if self._state is not None and self.world.chance(0.7):
            request = control.ResourceDescribe(since=self._state, wait=1 + self.world.upto(500))
        else:
            request = control.ResourceDescribe()
        self.process.ask(self._channel, request, self._described, patience=request.wait / 1000)

    def _described(self, outcome: Outcome) -> None:
        if isinstance(outcome, control.DescriptionList):
            self._state = outcome.state
            for resource in outcome.resources:
                if resource.known_next is None:
                    if (
                        resource.state != "stopped"
                        or not resource.trouble
                        or resource.known_earliest is not None
                    ):
                        raise Violation(f"{resource.resource} has no end and no reason for it: {resource}")
                    continue
                if resource.next < self._known_ends.get(resource.resource, 0):
                    raise Violation(
                        f"{resource.resource} ended at {self._known_ends[resource.resource]}, now at {resource.next}"
                    )
                self._known_ends[resource.resource] = max(
                    resource.next, self._known_ends.get(resource.resource, 1)
                )
                self._model.tell_end(resource.resource, resource.next)
        elif not is_of_the_disk(outcome):
            raise Violation(f"{self.name} cannot see anything: {outcome!r}")
        self.process.after(self.world.between(0.005, 0.5), self._ask)

"""A client process: the client's real IO loop, run by the world instead of a thread, and the application's work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from mtl.client.control import Call, Channel, Done
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.errors import Refused
from mtl.wire import control
from tests.simulator.network import ENDPOINT, ClientNetwork, Routers, SimPoll
from tests.simulator.world import Event, World

SETTINGS = Settings(endpoint=ENDPOINT, request_timeout=2.0, retry_deadline=1e9)
"""A simulated application never stops retrying: the checks detect what takes too long."""

_AT_ONCE_S = (0.00001, 0.0005)


def is_of_the_disk(error: object) -> bool:
    """Whether this refusal is caused by the failing disk: an application retries then."""
    return isinstance(error, Refused) and error.reason == control.STORAGE


class Process:
    """One process with its IO loop. While it is suspended, messages wait."""

    def __init__(self, world: World, routers: Routers, name: str) -> None:
        self.world = world
        self.name = name
        self.network = ClientNetwork(routers, self.wake)
        chance = Random(f"{world.seed} {name}")
        self.loop = Loop(self.network, world.clock, lambda: chance.randbytes(16).hex())
        # Some detect earlier by themselves that the broker ended their flow; others depend on the broker's answer.
        self.settings = replace(SETTINGS, heartbeat=chance.choice((None, 5.0)))
        self._suspended_until = 0.0
        self._due: Event | None = None
        self._watchers: list[Callable[[], None]] = []
        self.alive = True

    def channel(self, profile: str = "log") -> Channel:
        """A separate control session with its own socket."""
        return Channel(self.loop, replace(self.settings, profile=profile), None)

    def watch(self, call: Callable[[], None]) -> None:
        """Call after every round of the loop, in place of an application's thread."""
        self._watchers.append(call)

    def unwatch(self, call: Callable[[], None]) -> None:
        """Do not call any more; harmless when repeated."""
        if call in self._watchers:
            self._watchers.remove(call)

    def ask(self, channel: Channel, request: control.Request, done: Done, *, patience: float = 0.0) -> None:
        """Send a request as `Connection.request` does."""
        channel.submit(Call(request, done, patience=patience))
        self.wake()

    def wake(self) -> None:
        """An event occurred: the loop gets a turn, soon."""
        self._turn_in(self.world.between(*_AT_ONCE_S))

    def after(self, delay: float, call: Callable[[], None]) -> None:
        """Schedule work of the application, unless the process has died or is suspended then."""

        def run() -> None:
            if not self.alive:
                return
            if self.world.mono < self._suspended_until:
                self.after(self._suspended_until - self.world.mono, call)
                return
            call()
            self.wake()

        self.world.after(delay, "app", run)

    def suspend(self, seconds: float) -> None:
        """Suspend the process."""
        self._suspended_until = max(self._suspended_until, self.world.mono + seconds)

    def kill(self) -> None:
        """Kill the process; its connections end."""
        self.alive = False
        for link in self.network.links:
            link.close()

    def _turn_in(self, delay: float) -> None:
        if not self.alive:
            return
        due = max(self.world.mono + delay, self._suspended_until)
        if self._due is not None and self._due.pending:
            if self._due.at <= due:
                return
            self._due.cancel()
        self._due = self.world.after(due - self.world.mono, "client", self._turn)

    def _turn(self) -> None:
        if self.world.mono < self._suspended_until:
            self._turn_in(0.0)
            return
        self.loop.step(0.0)
        for call in list(self._watchers):
            call()
        poll = self.loop.poll
        assert isinstance(poll, SimPoll)
        if self.loop._posted or poll.may_have_events:
            self.wake()
            return
        delay = self.loop._pause(None)
        if delay is not None:
            self._turn_in(delay + 0.00001)

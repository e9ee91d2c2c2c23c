"""Drivers commit one version after the other on a disk that fails during commits and recovers.

A commit changes several files of several logs in many steps, and continues after a failure. So the disk fails between
two steps of most commits and of their repetitions; other faults are rare.
"""

from __future__ import annotations

from collections.abc import Callable

from mtl.storage import limits as storage_limits
from tests.simulator.bounds import drawn
from tests.simulator.faults import Chaos
from tests.simulator.readers import ReaderApp
from tests.simulator.simulate import Outcomes, Simulation, run
from tests.simulator.sparks import SparkApp
from tests.simulator.world import World
from tests.simulator.writers import WriterApp

_ADOPT_OCTETS = (1, 1_000, 1_400, 2_000)
"""The size in octets from which on a stage is adopted; smaller ones are copied. Most commits do both."""

_KILLED_S = (0.3, 10.0)
"""Seconds between two kills of the broker."""


class Commits(Simulation):
    """Drivers, some readers, and one writer between them."""

    def _populate(self) -> None:
        world, model, routers, resources = self.world, self.model, self.routers, self.resources
        for n in range(2):
            self.sparks.append(SparkApp(world, routers, model, f"app{n}", resources, pause_s=0.05))
        if self.snapshots:
            model.snapshots["table"] = self.snapshots
            table = SparkApp(world, routers, model, "table", self.snapshots, replaces=True, pause_s=0.05)
            self.sparks.append(table)
        self.writers.append(
            WriterApp(world, routers, model, "w", resources, packed=False, bad=0.0, pace_s=0.1)
        )
        for n, resource in enumerate(resources):
            self.readers.append(ReaderApp(world, routers, model, f"read{n}", resource, packed=bool(n % 2)))

    def chaos(self) -> Chaos:
        """The faults of the run. The broker is killed so often that many commits are interrupted."""
        killable = [app.kill for app in self.apps()]
        chaos = Chaos(self.world, self.routers, self.machine, self.processes, killable, share=0.1)
        self.machine.spoilt_share = self.world.random.choice((0.5, 0.8))

        def trouble() -> None:
            if not chaos.on:
                return
            if self.machine.process is not None:
                self.machine.crashed()
            self.world.after(self.world.between(*_KILLED_S), "trouble", trouble)

        self.world.after(self.world.between(*_KILLED_S), "trouble", trouble)
        return chaos


def simulate_commits(seed: int, steps: int, trace: Callable[[str], None] | None = None) -> Outcomes:
    """Run one seed; raises `Violation`, or an exception of the code under test."""
    world = World(seed, trace)
    with drawn(world.random):
        storage_limits.ADOPT_OCTETS = world.random.choice(_ADOPT_OCTETS)
        return run(Commits(world), steps)

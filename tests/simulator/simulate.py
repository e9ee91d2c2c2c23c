"""One seed, one run: build a system, inject faults for a number of steps, heal it, let it settle, check it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mtl.client.control import Outcome
from mtl.wire import control
from tests.simulator.bounds import drawn
from tests.simulator.checks import check_all, check_visible, imagine_crash, read_all
from tests.simulator.damage import imagine_damage
from tests.simulator.faults import Chaos
from tests.simulator.groups import GroupApp, MemberApp
from tests.simulator.machine import Habits, Machine
from tests.simulator.model import Model, Violation
from tests.simulator.network import Routers, Weather
from tests.simulator.observers import ObserverApp
from tests.simulator.plain import PlainApp
from tests.simulator.process import Process
from tests.simulator.queues import QueueApp
from tests.simulator.readers import RangeApp, ReaderApp
from tests.simulator.sparks import SparkApp
from tests.simulator.world import World
from tests.simulator.writers import WriterApp

STEPS = 4_000
"""The default number of steps with faults."""

SETTLE_S = 400.0
"""Virtual seconds within which a healed system has to settle."""

OPEN_S = 120.0
"""Virtual seconds within which a healed broker has to open every log by itself."""

AGE_S = 24 * 3600.0
"""The retention time of contents: no run lasts as long, so that no content may expire, whatever the clock."""

AUDIT_STEPS = 700
"""The average number of steps between two hypothetical crashes."""


_STEPS_AT_ONCE = 16


@dataclass(frozen=True)
class Outcomes:
    """The result of a run: steps, virtual seconds, counts of events, and a digest that a replay has to repeat."""

    steps: int
    seconds: float
    counts: dict[str, int]
    digest: int


class App(Protocol):
    """An application: may be killed at any time, and continues. `settled`: it has no pending work."""

    name: str

    def kill(self) -> None: ...

    @property
    def settled(self) -> bool: ...


class Simulation:
    """A system: resources, a broker, writers, readers, groups, queues and drivers, as many as the seed says."""

    def __init__(self, world: World, machine: type[Machine] = Machine) -> None:
        self.world = world
        self.model = Model()
        room = world.random.choice((4, 16, 64))
        self.routers = Routers(world, Weather(room=room, lost_leases=world.random.choice((0.0, 0.3))))
        pick = world.random.choice
        habits = Habits(
            disk_s=(0.00005, pick((0.001, 0.01, 0.1))),
            segment_bytes=pick((2 << 10, 8 << 10, 64 << 10)),
            tail_bytes=pick((0, 2_000, 64 << 20)),
            index_bytes=pick((0, 64 << 20)),
            heartbeat_s=pick((0.1, 1.0)),
        )
        self.machine = machine(world, self.routers, habits)
        self.machine.disk.short_writes = pick((0.0, 0.0, 0.1))
        self.machine.watch = check_visible
        self.resources = [f"r{n}" for n in range(1, 2 + world.upto(2))]
        self.snapshots = [f"s{n}" for n in range(1, 1 + world.upto(2))]
        """The resources that one application replaces as a whole, repeatedly."""
        self.writers: list[WriterApp] = []
        self.plain: list[PlainApp] = []
        self.readers: list[ReaderApp] = []
        self.groups: list[GroupApp] = []
        self.sparks: list[SparkApp] = []
        self.observers: list[ObserverApp] = []
        self.queues: list[QueueApp] = []
        self._admin = Process(world, self.routers, "admin")

    # --- building -------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Start the broker, make the resources, start the applications."""
        self.machine.start()
        made: list[Outcome] = []
        channel = self._admin.channel()
        names = [*self.resources, *self.snapshots]
        for name in names:
            request = control.ResourceCreate(
                resource=name, exist_ok=True, retention=control.Retention(age=AGE_S)
            )
            self._admin.ask(channel, request, made.append)
        self.run_until(lambda: len(made) == len(names), 60.0)
        for outcome in made:
            if not isinstance(outcome, control.ResourceCreated):
                raise Violation(f"a resource cannot be made: {outcome!r}")
        self._populate()

    def _populate(self) -> None:
        world, model, routers = self.world, self.model, self.routers
        pick = world.random.choice

        def flip() -> bool:
            return world.chance(0.5)

        bad = pick((0.0, 0.0, 0.02))
        for n in range(1 + world.upto(2)):
            resources = [pick(self.resources)] if flip() else self.resources
            pace = world.between(0.005, 0.1)
            self.writers.append(
                WriterApp(world, routers, model, f"w{n}", resources, packed=flip(), bad=bad, pace_s=pace)
            )
        for n in range(1 + world.upto(2)):
            kind = pick((ReaderApp, ReaderApp, RangeApp))
            self.readers.append(kind(world, routers, model, f"read{n}", pick(self.resources), packed=flip()))
        for n in range(world.upto(1)):
            group = GroupApp(world, routers, model, f"g{n}", pick(self.resources), packed=flip())
            self.groups.append(group)
            for m in range(world.upto(2)):
                self.readers.append(MemberApp(world, routers, model, f"g{n}-{m}", group, packed=flip()))
        for n in range(world.upto(1)):
            pace = world.between(0.005, 0.1)
            self.plain.append(PlainApp(world, routers, model, f"p{n}", pick(self.resources), pace))
        for n in range(world.upto(2)):
            self.sparks.append(SparkApp(world, routers, model, f"app{n}", self.resources))
        if self.snapshots:
            model.snapshots["table"] = self.snapshots
            self.sparks.append(SparkApp(world, routers, model, "table", self.snapshots, replaces=True))

        for n in range(world.upto(1)):
            self.observers.append(ObserverApp(world, routers, model, f"look{n}"))
        for n in range(world.upto(2)):
            resource, consumers = pick(self.resources), 1 + world.upto(2)
            self.queues.append(QueueApp(world, routers, model, f"q{n}", resource, consumers))

    def chaos(self) -> Chaos:
        """The faults of the run."""
        killable = [app.kill for app in self.apps()] + [group.take_over for group in self.groups]
        killable += [writer.rival for writer in self.writers]
        return Chaos(self.world, self.routers, self.machine, self.processes, killable)

    def processes(self) -> Sequence[Process]:
        """Every client process that lives."""
        processes = [app.process for app in self.writers] + [app.process for app in self.readers]
        processes += [app.process for app in self.plain]
        processes += [driver.process for group in self.groups for driver in group.drivers]
        processes += [app.process for app in self.sparks] + [app.process for app in self.observers]
        processes += [consumer.process for queue in self.queues for consumer in queue.consumers]
        return [process for process in processes if process.alive]

    def apps(self) -> list[App]:
        """Every application."""
        return [
            *self.writers,
            *self.plain,
            *self.readers,
            *self.groups,
            *self.sparks,
            *self.observers,
            *self.queues,
        ]

    # --- running --------------------------------------------------------------------------------------------

    def run_until(self, done: Callable[[], bool], seconds: float) -> None:
        """Run until `done`; a Violation after this many virtual seconds."""
        end = self.world.mono + seconds
        while not done():
            for _ in range(_STEPS_AT_ONCE):
                self.world.step()
            if self.world.mono > end:
                raise Violation(f"not settled after {seconds} s: {self.unsettled()}")

    def unsettled(self) -> list[str]:
        """The names of the applications that are not done."""
        return [app.name for app in self.apps() if not app.settled]

    def settle(self) -> None:
        """No new work starts; all started work completes."""
        for writer in self.writers:
            writer.stopped = True
        for plain in self.plain:
            plain.stopped = True
        for reader in self.readers:
            reader.stopped = True
        for spark in self.sparks:
            spark.stopped = True
        self.run_until(self._is_open, OPEN_S)
        writing: list[App] = [*self.writers, *self.plain, *self.sparks]
        self.run_until(lambda: self._broken() or all(app.settled for app in writing), SETTLE_S)
        self.machine.stop()  # a log stopped by a failed write continues after a restart
        self.run_until(lambda: all(app.settled for app in writing), SETTLE_S)
        for queue in self.queues:
            queue.written()
        self.run_until(lambda: not self.unsettled(), SETTLE_S)

    def _broken(self) -> bool:
        """Whether a failing disk has stopped a log of the broker that runs."""
        process = self.machine.process
        if process is None:
            return False
        stages = process.broker.parts.stages._stages.values()
        return any(r.stopped for r in process.broker.parts.resources) or any(
            s.damage is not None for s in stages
        )

    def _is_open(self) -> bool:
        """Whether the broker has opened every log by itself."""
        process = self.machine.process
        return process is not None and not process.closing and not process.broker.opening.unopened

    def shut_down(self) -> None:
        """Stop the broker for good."""
        self.run_until(lambda: self.machine.process is not None and not self.machine.process.closing, 60.0)
        self.machine.restarts = False
        self.machine.stop()
        self.run_until(lambda: self.machine.process is None, 60.0)


def simulate(
    seed: int,
    steps: int = STEPS,
    trace: Callable[[str], None] | None = None,
    machine: type[Machine] = Machine,
) -> Outcomes:
    """Run one seed on a machine of this kind, with its storage engine; raises `Violation`, or an exception of the code
    under test.
    """
    world = World(seed, trace)
    with drawn(world.random):
        return run(Simulation(world, machine), steps)


def run(system: Simulation, steps: int) -> Outcomes:
    """Build a system, inject faults for this number of steps, heal it, and check all guarantees."""
    world = system.world
    system.build()
    chaos = system.chaos()
    while world.steps < steps:
        world.step()
        if world.chance(1 / AUDIT_STEPS) and system.machine.process is not None:
            world.note("audit")
            imagine_damage(*imagine_crash(system.machine, system.model, "none"))
    chaos.heal()
    system.settle()
    system.shut_down()
    contents, letters = read_all(system.machine)
    check_all(system.model, contents)
    for queue in system.queues:
        queue.check(contents[queue.resource], letters.get((queue.name, queue.resource), []))
    return Outcomes(world.steps, world.mono - 1_000.0, dict(world.counts), world.digest)

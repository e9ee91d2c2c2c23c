"""A system whose data is sometimes replaced by an older copy at the start of the broker.

Under durability "os" a power failure loses contents as well. Readers and writers continue. Whenever the broker binds
a lease, all contents delivered or confirmed to its client have to be in the present log at the same positions: every
loss must have been reported. No false loss may be reported (PROTOCOL.md 5.1.1).
"""

from __future__ import annotations

from collections.abc import Callable

from mtl.broker.core import Broker
from mtl.client.control import Outcome
from mtl.client.reader_part import ReaderOptions
from mtl.client.writer_part import WriterOptions
from mtl.errors import DataLoss, Fenced, Refused
from mtl.limits import DEFAULT_VIRTUAL_HOST
from mtl.protocol.reading import Delivery, PlainRun
from mtl.wire import control
from tests.simulator.bounds import drawn
from tests.simulator.checks import read_log
from tests.simulator.machine import Habits, Machine
from tests.simulator.model import Model, Tag, Violation
from tests.simulator.network import Routers, Weather
from tests.simulator.process import Process, is_of_the_disk
from tests.simulator.readers import ReaderApp, options, tags_of
from tests.simulator.world import World
from tests.simulator.writers import Outlet
from tests.support.disk_images import DirectoryImage
from tests.support.faulty_store import FaultyStore

RESOURCE = "r"

_COPIES = 4
"""How many copies are kept at most."""


class CopiedMachine(Machine):
    """A machine whose data is copied while the broker is down, or replaced by a copy."""

    def __init__(self, world: World, routers: Routers, habits: Habits) -> None:
        super().__init__(world, routers, habits)
        self.copying = False
        self.life = 0
        self._copies: list[tuple[DirectoryImage, FaultyStore]] = []

    def start(self) -> None:
        """Start the broker, possibly with changed data."""
        if self.process is None and self.copying:
            if self._copies and self.world.chance(0.3):
                disk, store = self.world.random.choice(self._copies)
                self.disk.put_back(disk)
                self.store = store.copy()
                self.world.note("put-back")
            elif self.world.chance(0.5):
                self._copies = [*self._copies, (self.disk.copy(), self.store.copy())][-_COPIES:]
        self.life += self.process is None
        super().start()

    def contents(self, lease: str | None = None) -> dict[int, Tag] | None:
        """The contents of the log; None without a broker that knows the lease."""
        broker: Broker | None = self.process.broker if self.process is not None else None
        if broker is None or (lease is not None and broker.parts.leases.find(lease) is None):
            return None
        log = broker.parts.resources.need(DEFAULT_VIRTUAL_HOST, RESOURCE).log
        return None if log is None else {at: tag for at, (tag, _) in read_log(log, RESOURCE).items()}


class Seer(ReaderApp):
    """Reads in order, and records its contents; a new process starts at a position and its epoch."""

    def __init__(
        self, world: World, machine: CopiedMachine, model: Model, name: str, *, packed: bool
    ) -> None:
        self.machine = machine
        self.delivered: dict[int, Tag] = {}
        self.epoch: str | None = None
        self._asked = 0
        super().__init__(world, machine.routers, model, name, RESOURCE, packed=packed)

    def begin(self) -> None:
        """Start the next process. Its first error is checked."""
        super().begin()
        part, bound, request = self.part, self.part.bound, self.part.lease_request

        def checked() -> None:
            self._compare()
            bound()

        def asked() -> control.ConnectionReader:
            self._asked = self.machine.life
            return request()

        part.bound, part.lease_request = checked, asked  # type: ignore[method-assign]

    def asked(self) -> ReaderOptions:
        """Continue at the position and the epoch."""
        return options(self.resource, self.position, packed=self._packed, log_epoch=self.epoch)

    def kill(self) -> None:
        """Kill the process; its position is kept."""
        self.process.kill()
        self.begin()

    def check(self) -> None:
        """Accept a reported loss, and continue at the position given by the log."""
        error = self.part.error
        if not isinstance(error, DataLoss):
            super().check()
            return
        if self.machine.life == self._asked:
            there, given = self.machine.contents(), self._given()
            known = there is not None and error.end - 1 in given
            if known and there is not None and all(there.get(at) == tag for at, tag in given.items()):
                raise Violation(f"a false loss was reported to {self.name}: {error}")
        self.world.note("loss", lambda: f"{self.name} {error}")
        self.position, self.epoch, self.delivered = error.resume, None, {}
        self.kill()

    def done(self, end: int) -> None:
        """The content exists, behind one of that epoch."""
        super().done(end)
        self.epoch = self.part.log_epoch(end)

    def _take(self, delivery: Delivery | PlainRun) -> None:
        tags = tags_of(delivery, packed=self._packed)
        self.delivered |= dict(enumerate(tags, delivery.first))
        self.done(delivery.end)

    def _given(self) -> dict[int, Tag]:
        """Contents already read, and those queued."""
        given = dict(self.delivered)
        for delivery in list(self.part.queue):
            given |= dict(enumerate(tags_of(delivery, packed=self._packed), delivery.first))
        return given

    def _compare(self) -> None:
        lease = self.part.flow.lease
        there = None if lease is None else self.machine.contents(lease.lease)
        for at, tag in self._given().items() if there is not None else ():
            if there is not None and there.get(at) != tag:
                raise Violation(
                    f"{self.name} was given {tag} at {at}, where {there.get(at)} is: the loss was not reported"
                )
        self.world.note("compared")


class Scribe:
    """Writes, and records the confirmed contents; after a loss a writer of another name follows."""

    def __init__(
        self, world: World, machine: CopiedMachine, model: Model, name: str, *, packed: bool
    ) -> None:
        self.world = world
        self.machine = machine
        self.lives = 0
        self._model = model
        self._name = name
        self._packed = packed
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        self._tags: list[Tag] = []
        self.process = Process(self.world, self.machine.routers, self._name)
        label = f"{self._name}.{self.lives}"
        asked = WriterOptions(
            (RESOURCE,), label, self._packed, None, 1_000, 1 << 20, None, True, holder=label
        )
        outlet = self.outlet = Outlet(self.process, self._model, asked)
        bound = outlet.part.bound

        def checked() -> None:
            self._compare(outlet)
            bound()

        outlet.part.bound = checked  # type: ignore[method-assign]
        self.process.after(0.01, lambda: self._work(outlet))

    def _work(self, outlet: Outlet) -> None:
        error = outlet.part.error
        unknown = (
            isinstance(error, Refused) and error.reason == control.UNKNOWN_WRITER
        )  # nothing was confirmed to it
        if isinstance(error, DataLoss | Fenced) or unknown or is_of_the_disk(error):
            self.world.note("writer-loss")
            self.process.kill()
            self._begin()
            return
        if error is not None:
            raise Violation(f"{self._name} failed: {error!r}")
        if outlet.ready:
            tags = [f"{self._name}.{self.lives}.{len(self._tags) + n}" for n in range(1 + self._packed)]
            for n, tag in enumerate(tags, len(self._tags)):
                self._model.publish(tag, RESOURCE, self._name, n)
            if outlet.publish(RESOURCE, tags, packed=self._packed):
                self._tags += tags
        self.process.after(self.world.between(0.005, 0.2), lambda: self._work(outlet))

    def _compare(self, outlet: Outlet) -> None:
        lease = outlet.part.flow.lease
        there = None if lease is None else self.machine.contents(lease.lease)
        if there is None:
            return
        outlet.observe()
        kept = set(there.values())
        lost = [tag for tag in self._tags if self._model.published[tag].confirmed and tag not in kept]
        if lost:
            raise Violation(f"{self._name} goes on, and {lost} were confirmed to it")


def simulate_copies(
    seed: int, steps: int = 8_000, trace: Callable[[str], None] | None = None
) -> dict[str, int]:
    """Run one seed; returns the counts of events. Raises `Violation`, or an exception of the code under test."""
    world = World(seed, trace)
    with drawn(world.random):
        return _simulate(world, steps)


def _simulate(world: World, steps: int) -> dict[str, int]:
    routers = Routers(world, Weather(room=world.random.choice((4, 64))))
    machine = CopiedMachine(world, routers, Habits(segment_bytes=world.random.choice((2 << 10, 64 << 10))))
    machine.start()
    admin, made = Process(world, routers, "admin"), list[Outcome]()
    durability: control.Durability = "os" if world.chance(0.5) else "sync"
    admin.ask(admin.channel(), control.ResourceCreate(resource=RESOURCE, durability=durability), made.append)
    while not made:
        world.step()
    machine.copying = True
    model = Model()
    seers = [Seer(world, machine, model, f"seer{n}", packed=bool(n % 2)) for n in range(3)]
    _scribes = [Scribe(world, machine, model, f"w{n}", packed=bool(n % 2)) for n in range(2)]

    def trouble() -> None:
        happens = world.upto(3)
        if happens == 0:
            world.random.choice(seers).kill()
        elif happens == 1:
            machine.stop()
        elif machine.process is not None:
            machine.crashed()
        world.after(world.between(0.1, 1.0), "trouble", trouble)

    world.after(1.0, "trouble", trouble)
    while world.steps < steps:
        world.step()
    return dict(world.counts)

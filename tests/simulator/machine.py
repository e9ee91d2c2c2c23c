"""The broker's machine: a disk and records that outlive its process, and the process, run by the world.

`BrokerProcess` is `mtl.broker.runtime.server` without sockets, threads and clocks: the same core, storage and sender,
in the same order of work. Work of a thread there is two events here: the action is performed at one time, its result
is delivered at a later one, in any order between logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

from mtl.broker import actions
from mtl.broker.assembly import CoreSettings, assemble
from mtl.broker.commands.granting import Ports
from mtl.broker.runtime.sending import LoopSender, carry_out
from mtl.errors import Damaged, MtlError, OldRecords
from mtl.log.cache import ReadCache
from mtl.net.ports import Port
from mtl.net.router import Burst
from mtl.storage.api import (
    AnsweredAction,
    CreateLog,
    DropLogs,
    Engine,
    OpenLog,
    Prepare,
    Publish,
    Save,
    StorageAction,
)
from mtl.storage.local import Storage
from mtl.storage.memory import Memory, MemoryEngine
from mtl.wire.packs import decode_pack
from tests.simulator.model import Violation
from tests.simulator.network import PORTS, Routers
from tests.simulator.world import World
from tests.support.engines import FaultyEngine, copied
from tests.support.faulty_disk import ANY, Crashed, FaultyDisk
from tests.support.faulty_store import FaultyStore

ROOT = "/data"

LARGE = 1 << 40
"""Octets of the machine's disk."""

_MANY_STEPS = Publish | OpenLog | CreateLog

_SPOILT_STEPS = 40
"""The number of steps before which a failure between the steps of an action occurs; an adopting commit has about as
many.
"""


@dataclass
class Habits:
    """Properties of the machine: the delays of the disk in seconds, and the configuration of the broker."""

    disk_s: tuple[float, float] = (0.0001, 0.01)
    turn_s: tuple[float, float] = (0.00001, 0.0005)
    segment_bytes: int = 8 << 10
    tail_bytes: int = 64 << 20
    index_bytes: int = 64 << 20
    heartbeat_s: float = 1.0
    lease_unbound_s: float = 10.0


class BrokerProcess:
    """One run of the broker, from its start to its stop or crash."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.world = world = machine.world
        self.alive = True
        self.closing = False
        self._suspended_until = 0.0
        self._turning = False
        self._timer = world.after(0.0, "none", lambda: None)
        self._done: deque[tuple[int, object]] = deque()
        self._records: deque[Save | DropLogs] = deque()
        self._results: deque[Callable[[], None]] = deque()
        habits = machine.habits
        self.engine = machine.engine()
        self._waiting: list[AnsweredAction] = []
        restored = self.engine.restore()
        self.broker = assemble(
            CoreSettings(
                boot=world.random.randbytes(8).hex(),
                machine=world.machine,
                ports=Ports(PORTS[Port.PACKED], PORTS[Port.PLAIN]),
                heartbeat_s=habits.heartbeat_s,
                lease_unbound_s=habits.lease_unbound_s,
                segment_bytes=habits.segment_bytes,
            ),
            restored,
            world.random.randbytes,
            decode_pack,
            world.now(),
        )
        machine.routers.open(self.wake)
        self._sender = LoopSender(machine.routers, self.broker, world.now, self.broker.parts.backlog)
        self.report_room()

    # --- turns ----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Schedule a turn: a message, a result or a timer is due."""
        if self._turning or not self.alive:
            return
        self._turning = True
        delay = self.world.between(*self.machine.habits.turn_s)
        due = max(self.world.mono + delay, self._suspended_until)
        self.world.after(due - self.world.mono, "turn", self._turn)

    def report_room(self) -> None:
        """Report the free space of the disk to the core."""
        self.broker.room(0 if self.machine.nearly_full else LARGE, LARGE, self.world.now())
        self.wake()

    def suspend(self, seconds: float) -> None:
        """Suspend the process."""
        self._suspended_until = self.world.mono + seconds

    def close(self) -> None:
        """Stop cleanly."""
        self.closing = True
        self.broker.close(self.world.now())
        self.wake()

    def _turn(self) -> None:
        self._turning = False
        if not self.alive:
            return
        if self.world.mono < self._suspended_until:
            self.wake()
            return
        broker, now = self.broker, self.world.now
        if broker.ready and not self.closing:
            self._take_in()
        while self._done:
            broker.completed(*self._done.popleft(), now())
        broker.tick(now())
        broker.advance()
        carry_out(broker.pop_actions(), self._sender, self)
        self.machine.watch(self)
        if self.closing and broker.idle and not self._records:
            self.machine.closed()
            return
        if broker.busy or self._done:
            self.wake()
        self._set_timer()

    def _set_timer(self) -> None:
        due = self.broker.next_due
        if due is not None and not (self._timer.pending and self._timer.at <= due):
            self._timer.cancel()
            self._timer = self.world.after(max(0.0, due - self.world.mono), "timer", self.wake)

    def _take_in(self) -> None:
        now = self.world.now()
        bursts: dict[tuple[Port, bytes], Burst] = {}
        for port, identity, (first, second) in self.machine.routers.take_in():
            if port is Port.CONTROL:
                self.broker.control([identity, b"", first, second], now)
            else:
                burst = bursts.setdefault((port, identity), Burst([], []))
                burst.headers.append(first)
                burst.bodies.append(second)
        for peer, burst in bursts.items():
            self.broker.burst(peer, burst.headers, burst.bodies, now)
            self._sender.on_frame(peer)

    # --- the disk -------------------------------------------------------------------------------------------

    def begin(self, action: StorageAction | actions.CheckPassword) -> None:
        """Some time, in any order that the interface of engines allows."""
        if isinstance(action, Save | DropLogs):
            self._records.append(action)
            if len(self._records) == 1:
                self._later(self._next_record)
        elif isinstance(action, Prepare):
            self._later(partial(self._prepare, action))
        elif isinstance(action, actions.CheckPassword):
            raise TypeError("the simulation has no authentication")
        else:
            self._waiting.append(action)
            self._later(partial(self._perform, action))

    def end_turn(self) -> list[tuple[int, object]]:
        """No action is performed at once."""
        return []

    def _later(self, work: Callable[[], None]) -> None:
        """Run at a later time if this process is alive; it may die during the action."""

        def run() -> None:
            if not self.alive:
                return
            try:
                work()
            except Crashed:
                self.machine.crashed()

        self.world.after(self.world.between(*self.machine.habits.disk_s), "disk", run)

    def _perform(self, action: AnsweredAction) -> None:
        self._waiting.remove(action)
        self._later(self._answer(action))

    def _prepare(self, action: Prepare) -> None:
        self.engine.perform((action,))

    def die_halfway(self) -> None:
        """Actions of the threads at the end of the process are performed in part, independently."""
        disk = self.machine.disk
        for action in self._waiting:
            if self.world.chance(0.5):
                disk.dead = False
                disk.crash_after(self.world.upto(20))
                try:
                    self.engine.perform((action,))
                except Crashed:
                    continue

    def _answer(self, action: AnsweredAction) -> Callable[[], None]:
        """Perform the action now; returns a function that delivers the result."""
        with self.machine.spoilt(action):
            (result,) = self.engine.perform((action,))
        if isinstance(result, Damaged):
            raise Violation(f"nothing was damaged, and {type(action).__name__} says: {result}")
        self.world.note(
            "disk", lambda: f"{type(action).__name__} {getattr(action, 'log', '')} -> {_result_text(result)}"
        )

        def hand_over() -> None:
            self._done.append((action.id, result))
            self.wake()

        return hand_over

    def _next_record(self) -> None:
        """Saves and removals have one thread: actions and results are in order."""
        action = self._records[0]
        if isinstance(action, Save):
            self._results.append(self._answer(action))
            self._later(self._hand_over_next)
        else:
            self.engine.perform((action,))
        self._records.popleft()
        if self._records:
            self._later(self._next_record)
        self.wake()

    def _hand_over_next(self) -> None:
        self._results.popleft()()


class Machine:
    """See the module. `watch` is called after every turn."""

    def __init__(self, world: World, routers: Routers, habits: Habits) -> None:
        self.world = world
        self.routers = routers
        self.habits = habits
        self.disk = FaultyDisk(world.random)
        self.disk.make_dir(ROOT)
        self.disk.fsync_dir("/")
        self.store = FaultyStore()
        self.older: FaultyStore | None = None
        """A copy of the records that is restored before the next start."""
        self.process: BrokerProcess | None = None
        self.watch: Callable[[BrokerProcess], None] = lambda _: None
        self.nearly_full = False
        """Whether the disk has less free space than the watermark."""
        self.restarts = True
        self.spoilt_share = 0.0
        """The share of actions with many steps in which the disk fails between two steps and recovers; a tenth of it
        for other actions.
        """
        self.power_share = 0.5
        """The share of crashes that are power failures of the machine."""

    def engine(self) -> Engine:
        """The storage engine of a new process."""
        habits = self.habits
        storage = Storage(self.disk, ROOT, self.store, habits.segment_bytes)
        storage._cache = ReadCache(habits.tail_bytes, habits.index_bytes)
        return FaultyEngine(storage)

    def twin(self) -> Machine:
        """An unused copy of the machine."""
        twin = type(self).__new__(type(self))
        twin.world = self.world
        twin.habits = self.habits
        twin.disk = deepcopy(self.disk)
        twin.store = self.store.copy()
        return twin

    def faults(self) -> list[Callable[[], None]]:
        """Further faults of this machine."""
        return []

    def heal(self) -> None:
        """Repair the machine."""

    @contextmanager
    def spoilt(self, action: AnsweredAction) -> Iterator[None]:
        """Let the disk fail once or twice between the steps of an action, and recover after it."""
        share = self.spoilt_share if isinstance(action, _MANY_STEPS) else self.spoilt_share / 10
        if not self.world.chance(share):
            yield
            return
        nth, count = 1 + self.world.upto(_SPOILT_STEPS), 1 + self.world.upto(1)
        rule = self.disk.fail(ANY, nth=nth, count=count)
        try:
            yield
        finally:
            self.disk.spare(rule)

    def start(self) -> None:
        """Start the broker, unless it runs; retry after a while if the start kills it."""
        if self.process is not None:
            return
        try:
            self._start_on_older_records()
            self.process = BrokerProcess(self)
            self.world.note("start")
        except Crashed:
            self.crashed()
        except MtlError as error:
            self.world.note("no-start", partial(str, error))
            self.routers.crash(silent=False)
            self._restart()

    def _start_on_older_records(self) -> None:
        """The start has to refuse them. Then the newest records are restored. A copy that lacks only a failed save is
        not an older one: that save was not reported as done.
        """
        older, self.older = self.older, None
        if older is None or older.generation >= self.store.mark:
            return
        newest = self.store.copy()
        self.store.put_back(older)
        try:
            BrokerProcess(self)
        except OldRecords:
            self.world.note("old-records")
        else:
            raise Violation("a broker has started on an older copy of its records")
        finally:
            self.store.put_back(newest)

    def fill(self, nearly_full: bool) -> None:
        """Change the free space of the disk, and let the broker check it."""
        self.nearly_full = nearly_full
        if self.process is not None:
            self.process.report_room()

    def stop(self) -> None:
        """Ask the broker to stop cleanly."""
        if self.process is not None and not self.process.closing:
            self.world.note("stop")
            self.process.close()

    def closed(self) -> None:
        """The broker is about to exit."""
        assert self.process is not None
        try:
            failed = self.process.engine.close(lambda _: None)
        except Crashed:
            self.crashed()
            return
        if failed:
            self.world.note("bad-close", partial(str, failed))
        self.process.alive = False
        self.process = None
        self.routers.crash(silent=False)
        self._restart()

    def crashed(self) -> None:
        """The broker's process has died, or the machine with it."""
        power = self.world.chance(self.power_share)
        self.world.note("power-loss" if power else "kill")
        if self.process is not None:
            self.process.alive = False
            self.process.die_halfway()
        self.process = None
        self.disk.crash(power=power)
        self.store.crash(landed=self.world.chance(0.5))
        if power:
            self.world.boot()
        self.routers.crash(silent=power and self.world.chance(0.5))
        self._restart()

    def _restart(self) -> None:
        if not self.restarts:
            return
        self.world.after(self.world.between(0.01, 1.0), "start", self.start)


def _result_text(result: object) -> str:
    return str(result) if isinstance(result, MtlError) else type(result).__name__


class MemoryMachine(Machine):
    """A machine whose broker keeps its state in a memory that outlives it. Its disk is empty."""

    def __init__(self, world: World, routers: Routers, habits: Habits) -> None:
        super().__init__(world, routers, habits)
        self.disk.make_dir(f"{ROOT}/resources")
        self.disk.fsync_dir(ROOT)
        self.memory = Memory()

    def engine(self) -> Engine:
        """The memory has the state of the former process."""
        return MemoryEngine(self.memory, in_memory=False, random=self.world.random.randbytes)

    def twin(self) -> Machine:
        """With a copy of the memory."""
        twin = super().twin()
        assert isinstance(twin, MemoryMachine)
        twin.memory = copied(self.memory)
        return twin

    def faults(self) -> list[Callable[[], None]]:
        """The memory may be full for a while."""
        return [self._fill]

    def _fill(self) -> None:
        """Refuse further contents and records."""
        memory, seconds = self.memory, self.world.between(0.05, 2.0)
        self.world.note("fault", lambda: f"memory full {seconds:.3f}")
        memory.octets, memory.record_octets = memory.used, memory.record_used
        self.world.after(seconds, "free", self.heal)

    def heal(self) -> None:
        """Accept contents and records again."""
        self.memory.octets, self.memory.record_octets = LARGE, LARGE

"""The faults and their rates. Every run draws its own mixture, so that faults also occur without the others.

`Chaos` injects faults until `heal`: then all faults are repaired, and the system has to settle.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from tests.simulator.machine import ROOT, Machine
from tests.simulator.network import Routers, Wire
from tests.simulator.process import Process
from tests.simulator.world import World
from tests.support.faulty_disk import Crashed
from tests.support.faulty_store import refuse

_DISK_FAULTS = (
    "write",
    "sync",
    "rename",
    "create",
    "truncate",
    "link",
    "unlink",
    "fsync_dir",
    "read",
    "open",
)
_OFTEN_S = (0.02, 0.5)
_SELDOM_S = (0.1, 3.0)
_CLOCK_S = ((0.001, 600.0), (3_600.0, 1_000_000.0))
"""Steps of the clock: seconds and minutes, or hours and days, which exceed every retention."""


class Chaos:
    """See the module. `processes` may be suspended, `killable` may be killed and continue; `share` is the part of the
    kinds of faults that occur.
    """

    def __init__(
        self,
        world: World,
        routers: Routers,
        machine: Machine,
        processes: Callable[[], Sequence[Process]],
        killable: Sequence[Callable[[], None]],
        share: float = 0.6,
    ) -> None:
        self.world = world
        self.on = True
        self._routers = routers
        self._machine = machine
        self._processes = processes
        self._killable = killable
        kinds: list[tuple[Callable[[], None], tuple[float, float]]] = [
            (self._reset, _OFTEN_S),
            (self._reconnect, _OFTEN_S),
            (self._die, _SELDOM_S),
            (self._stall, _OFTEN_S),
            (self._suspend_client, _SELDOM_S),
            (self._suspend_broker, _SELDOM_S),
            (self._set_clock, _SELDOM_S),
            (self._fail_disk, _OFTEN_S),
            (self._fail_records, _OFTEN_S),
            (self._fill_disk, _SELDOM_S),
            (self._hide_a_segment, _SELDOM_S),
            (self._nearly_fill_disk, _SELDOM_S),
            (self._start_on_a_bad_disk, _SELDOM_S),
            (self._crash_within, _SELDOM_S),
            (self._crash_now, _SELDOM_S),
            (self._stop, _SELDOM_S),
            (self._kill_client, _SELDOM_S),
            (self._refuse_records, _SELDOM_S),
            (self._copy_records, _SELDOM_S),
        ]
        kinds += [(fault, _OFTEN_S) for fault in machine.faults()]
        for fault, period in kinds:
            if world.chance(share):
                self._repeat(fault, period, world.between(0.3, 3.0))
        machine.power_share = world.random.choice((0.0, 0.5, 0.5, 1.0))
        machine.spoilt_share = world.random.choice((0.0, 0.1, 0.3, 0.6))

    def heal(self) -> None:
        """Stop injecting faults."""
        self.on = False
        self._machine.heal()
        self._machine.disk.heal()
        self._machine.spoilt_share = 0.0
        self._machine.disk.crash_after(None)
        self._machine.fill(False)
        self._machine.store.hook = lambda _: None
        self._routers.weather.lost_leases = 0.0

    def _repeat(self, fault: Callable[[], None], period: tuple[float, float], factor: float) -> None:
        def again() -> None:
            if self.on:
                fault()
                self._repeat(fault, period, factor)

        self.world.after(self.world.between(*period) * factor, "fault", again)

    def _note(self, text: str) -> None:
        self.world.note("fault", lambda: text)

    # --- the network ----------------------------------------------------------------------------------------

    def _wire(self) -> Wire | None:
        wires = list(self._routers.wires.values())
        return self.world.random.choice(wires) if wires else None

    def _reset(self) -> None:
        wire = self._wire()
        if wire is not None:
            self._note(f"reset {wire}")
            self._routers.reset(wire)

    def _reconnect(self) -> None:
        wire = self._wire()
        if wire is not None:
            self._note(f"reconnect {wire}")
            self._routers.reconnect(wire)

    def _die(self) -> None:
        wire = self._wire()
        if wire is not None:
            self._note(f"die {wire}")
            self._routers.die(wire)

    def _stall(self) -> None:
        wire = self._wire()
        if wire is not None:
            seconds = self.world.between(0.05, 5.0)
            self._note(f"stall {wire} {seconds:.3f}")
            (wire.up if self.world.chance(0.5) else wire.down).stall(seconds)

    # --- processes ------------------------------------------------------------------------------------------

    def _suspend_client(self) -> None:
        processes = list(self._processes())
        process = self.world.random.choice(processes)
        seconds = self.world.between(0.05, 10.0)
        self._note(f"suspend {process.name} {seconds:.3f}")
        process.suspend(seconds)

    def _suspend_broker(self) -> None:
        if self._machine.process is not None:
            seconds = self.world.between(0.05, 10.0)
            self._note(f"suspend broker {seconds:.3f}")
            self._machine.process.suspend(seconds)

    def _kill_client(self) -> None:
        index = self.world.upto(len(self._killable) - 1)
        self._note(f"kill client {index}")
        self._killable[index]()

    def _set_clock(self) -> None:
        seconds = self.world.random.choice((-1, 1)) * self.world.between(*self.world.random.choice(_CLOCK_S))
        self._note(f"clock {seconds:+.3f}")
        self.world.set_clock_by(seconds)

    # --- the machine ----------------------------------------------------------------------------------------

    def _fail_disk(self) -> None:
        op = self.world.random.choice(_DISK_FAULTS)
        nth, count = 1 + self.world.upto(5), 1 + self.world.upto(2)
        self._note(f"disk {op} {nth} {count}")
        self._machine.disk.fail(op, nth=nth, count=count)

    def _fill_disk(self) -> None:
        seconds = self.world.between(0.05, 2.0)
        self._note(f"disk full {seconds:.3f}")
        disk = self._machine.disk
        disk.fail("write", count=1_000_000, error=errno.ENOSPC)

        self.world.after(seconds, "free", disk.heal)

    def _nearly_fill_disk(self) -> None:
        """Writers are refused before the disk is full, and other clients are served."""
        seconds = self.world.between(0.05, 3.0)
        self._note(f"disk nearly full {seconds:.3f}")
        self._machine.fill(True)
        self.world.after(seconds, "room", lambda: self._machine.fill(False))

    def _hide_a_segment(self) -> None:
        """One segment of a log cannot be read for a while."""
        disk = self._machine.disk
        logs = [f"{ROOT}/resources/{name}" for name in disk.list_dir(f"{ROOT}/resources")]
        paths = [f"{log}/{name}" for log in logs for name in disk.list_dir(log) if name.endswith(".segment")]
        if not paths:
            return
        path, seconds = self.world.random.choice(paths), self.world.between(0.05, 5.0)
        self._note(f"unreadable {path} {seconds:.3f}")
        rule = disk.fail("read", count=1_000_000, when=lambda p: p == path)

        def well() -> None:
            disk.spare(rule)

        self.world.after(seconds, "well", well)

    def _start_on_a_bad_disk(self) -> None:
        """The broker restarts and cannot open all or some of its logs until the disk recovers."""
        if self._machine.process is None:
            return
        error = self.world.random.choice((errno.ENOSPC, errno.EIO))
        op = self.world.random.choice(("open", "read", "fsync_dir"))
        share, seconds = self.world.random.choice((0.5, 1.0)), self.world.between(0.5, 20.0)
        self._note(f"start on a disk that fails at {op} for {seconds:.3f}")
        disk = self._machine.disk
        self._machine.crashed()
        disk.fail(op, count=1_000_000, when=lambda _: self.world.chance(share), error=error)
        self.world.after(seconds, "well", disk.heal)

    def _fail_records(self) -> None:
        when = self.world.random.choice(("begin", "commit"))
        full = self.world.chance(0.3)
        left = 1 + self.world.upto(2)
        self._note(f"records {when} {left}")
        store = self._machine.store

        deadly = self.world.chance(0.2)

        def hook(at: str) -> None:
            nonlocal left
            if at == when and left:
                left -= 1
                if deadly:
                    raise Crashed
                raise refuse(full)

        store.hook = hook

    def _refuse_records(self) -> None:
        """The store of the records fails for a while, and then works again."""
        seconds = self.world.between(0.05, 2.0)
        full = self.world.chance(0.5)
        self._note(f"records refused {seconds:.3f}")
        store = self._machine.store

        def hook(_: str) -> None:
            raise refuse(full)

        def again() -> None:
            if store.hook is hook:
                store.hook = lambda _: None

        store.hook = hook
        self.world.after(seconds, "records", again)

    def _copy_records(self) -> None:
        """Copy the records, and restore the copy when the broker stops."""
        if self._machine.older is None:
            self._note("records copied")
            self._machine.older = self._machine.store.copy()

    def _crash_within(self) -> None:
        """Crash at one of the next steps of the disk, in the middle of its operation."""
        steps = self.world.upto(40)
        self._note(f"crash within {steps} disk steps")
        self._machine.disk.crash_after(steps)

    def _crash_now(self) -> None:
        if self._machine.process is not None:
            self._note("crash now")
            self._machine.crashed()

    def _stop(self) -> None:
        self._note("stop")
        self._machine.stop()

"""Faults of the system around a broker: its clock, limits of files, a slow or frozen disk, a pause of the process, an
unread log; and commands beside it.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable

from mtl.errors import MtlError
from tests.crash.checker import Finding
from tests.crash.faults import WRITING_S, Scene, expect_service, fail
from tests.crash.machine import MachineFailed, wait_until
from tests.crash.shim import EVERYTHING, Kind
from tests.crash.workload import PLAIN
from tests.support.unread import fill

SKEW_US = 15_000_000
"""How far a time may be ahead of the clock: the broker's 5 s, and as much again for a machine with other work."""

_IN_FLIGHT = 300
"""Contents that may have been on their way to the disk when the clock was set right."""

HOUR = 3600


def limited_files(scene: Scene) -> None:
    """Files may not grow above a limit (RLIMIT_FSIZE); later they may again."""
    scene.machine.limit_files(scene.chance.randrange(60_000, 160_000))
    _write_on(scene)
    scene.machine.limit_files(None)
    expect_service(scene, "files may grow again")


def no_inodes(scene: Scene) -> None:
    """For a while no file can be made, although there is room; or the quota is used up, or the disk read-only."""
    error = scene.chance.choice((errno.ENOSPC, errno.EDQUOT, errno.EROFS))
    fail(scene, Kind.CREATE, error, 1_000_000)
    expect_service(scene, "files can be made again")


def slow_disk(scene: Scene) -> None:
    """Operations take long for a while, or do not end before the disk works again. Sometimes the broker is killed
    meanwhile.
    """
    machine, chance = scene.machine, scene.chance
    kinds = chance.choice((Kind.SYNC, Kind.WRITE | Kind.SYNC, EVERYTHING))
    machine.control.slow(kinds, chance.choice((20_000, 200_000, None)))
    time.sleep(chance.uniform(0.2, 1.0))
    if chance.random() < 0.3:
        machine.kill()
        machine.start()
    machine.control.slow(Kind(0), 0)
    expect_service(scene, "the disk is fast again")


def jumping_clock(scene: Scene) -> None:
    """The clock is wrong for a while, sometimes also across a start. Afterwards new contents have the right time."""
    machine, chance = scene.machine, scene.chance
    wrong = chance.choice((-1, 1)) * chance.choice((60, 2 * HOUR, 26 * HOUR))
    machine.control["clock_s"] = wrong
    _write_on(scene)
    if chance.random() < 0.4:
        machine.kill()
        machine.launch()
        machine.control["clock_s"] = wrong
        machine.await_ready()
        _write_on(scene)
    machine.control["clock_s"] = 0
    try:
        before, ahead_us = _newest(scene)
        wait_until(lambda: _newest(scene)[1] <= SKEW_US, WRITING_S)
        after, ahead_us = _newest(scene)
    except MtlError:
        return
    if ahead_us > SKEW_US and after > before + _IN_FLIGHT:
        ahead = f"{after - before} contents later times are {ahead_us / 1e6:.0f} s ahead"
        text = f"the clock was wrong by {wrong} s, and is right: {ahead}"
        scene.findings.append(Finding("wrong", text))


def _newest(scene: Scene) -> tuple[int, int]:
    """The end of a resource, and by how many microseconds the time of its newest content is ahead of the clock."""
    found = scene.clients.connection.describe(PLAIN)[PLAIN]
    return found.known_next or 1, (found.newest_time or 0) - time.time_ns() // 1000


def inspected(scene: Scene) -> None:
    """`mtl verify` and `mtl recover` beside the broker, which is sometimes killed and started meanwhile."""
    machine, chance = scene.machine, scene.chance
    dying = threading.Timer(chance.uniform(0.0, 0.5), machine.kill) if chance.random() < 0.4 else None
    if dying is not None:
        dying.start()
    code, output = machine.command("verify", str(machine.data))
    if code:
        scene.findings.append(Finding("wrong", f"mtl verify beside a broker: {output}"))
    if dying is not None:
        dying.join()
        machine.start()
    code, output = machine.command("recover", str(machine.data))
    if code != 1 or "is using" not in output:
        scene.findings.append(Finding("wrong", f"mtl recover beside a broker, exit code {code}: {output}"))
    _write_on(scene)


def suspended(scene: Scene) -> None:
    """SIGSTOP for a while, longer than some of the clients' timeouts; then SIGCONT, or SIGKILL."""
    machine, chance = scene.machine, scene.chance
    machine.signal(signal.SIGSTOP)
    time.sleep(chance.choice((0.1, 1.0, 3.0)))
    if chance.random() < 0.3:
        machine.kill()
        machine.start()
    else:
        machine.signal(signal.SIGCONT)
    expect_service(scene, "the process runs again")
    _write_on(scene)


def unread_log(scene: Scene) -> None:
    """Nobody reads the broker's output, a pipe that is full from the start. The broker serves, and stops."""
    machine, chance = scene.machine, scene.chance
    machine.kill()
    pipe = machine.data.parent / "unread"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    fill(reader)
    try:
        machine.launch(pipe)
        if not machine.await_ready():
            raise MachineFailed(f"the broker did not start, code {machine.ended()}")
        expect_service(scene, "the log is not read")
        _write_on(scene)
        if chance.random() < 0.5:
            machine.kill()
        elif code := machine.stop():
            scene.findings.append(
                Finding("wrong", f"the log is not read, and the broker stopped with {code}")
            )
    finally:
        os.close(reader)
        pipe.unlink()
    machine.start()


def _write_on(scene: Scene) -> bool:
    """Wait until all writers have probably written; whether any has."""
    before = scene.clients.confirmed
    return wait_until(lambda: scene.clients.confirmed > before + 50, WRITING_S)


FAULTS: dict[str, Callable[[Scene], None]] = {
    "limited file": limited_files,
    "missing inode": no_inodes,
    "slow disk": slow_disk,
    "wrong clock": jumping_clock,
    "inspection": inspected,
    "suspension": suspended,
    "unread log": unread_log,
}
JOURNALED = {"missing inode"}

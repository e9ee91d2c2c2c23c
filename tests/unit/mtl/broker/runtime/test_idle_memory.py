from __future__ import annotations

import ctypes
import subprocess
import sys

from mtl.broker.limits import MEMORY_RETURNED
from mtl.broker.runtime.idle_memory import (
    BUSY_LOAD,
    CHECK_S,
    IDLE_S,
    UNSENT_CHECK_S,
    FallDetector,
    IdleDetector,
)


class Machine:
    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.detector = IdleDetector(lambda: self.now, lambda: self.used)

    def spend(self, seconds: float, share: float) -> int:
        """How often the broker became idle while it used this share of a processor."""
        times = 0
        for _ in range(int(seconds * 10)):
            self.now += 0.1
            self.used += 0.1 * share
            times += self.detector.became_idle()
        return times


WORK, QUIET = 2 * BUSY_LOAD, BUSY_LOAD / 2


def test_each_busy_period_is_followed_by_one_idle_moment() -> None:
    machine = Machine()
    assert machine.spend(2 * CHECK_S, WORK) == 0
    assert machine.spend(IDLE_S - CHECK_S, QUIET) == 0
    assert machine.spend(2 * CHECK_S, QUIET) == 1
    assert machine.spend(10 * IDLE_S, QUIET) == 0
    assert machine.spend(2 * CHECK_S, WORK) == 0
    assert machine.spend(IDLE_S + CHECK_S, QUIET) == 1


def test_a_broker_with_short_pauses_is_not_idle() -> None:
    machine = Machine()
    for _ in range(10):
        assert machine.spend(2 * CHECK_S, WORK) + machine.spend(IDLE_S / 2, QUIET) == 0


def test_a_broker_that_was_never_busy_does_not_become_idle() -> None:
    assert Machine().spend(10 * IDLE_S, QUIET) == 0


_FREED = """
import sys
from pathlib import Path
from mtl.broker.runtime.idle_memory import return_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

bodies = [bytes(1000) for _ in range(200_000)]
kept = bodies[::1000]
del bodies
before = resident()
return_memory()
print(before - resident())
"""


def test_freed_memory_returns_to_the_system() -> None:
    out = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True, check=True).stdout
    glibc = hasattr(ctypes.CDLL(None), "malloc_trim")
    assert int(out) > (100 << 20 if glibc else -(1 << 20))


class Unsent:
    def __init__(self) -> None:
        self.now, self.most = 0.0, 0
        self.detector = FallDetector(lambda: self.now, lambda: self.most)

    def fell(self, most: int) -> bool:
        self.now, self.most = self.now + UNSENT_CHECK_S, most
        return self.detector.fell()


def test_a_fall_of_unsent_octets_is_told_of_once() -> None:
    unsent = Unsent()
    assert [unsent.fell(MEMORY_RETURNED * n) for n in (0, 3, 5, 5, 1, 1, 0, 0)] == [
        *[False] * 4,
        True,
        False,
        True,
        False,
    ]


def test_octets_that_go_up_and_down_within_an_interval_are_no_fall() -> None:
    unsent = Unsent()
    unsent.fell(MEMORY_RETURNED * 3)
    unsent.now += UNSENT_CHECK_S / 2
    unsent.most = 0
    assert not unsent.detector.fell()
    assert not unsent.fell(MEMORY_RETURNED * 3 - 1)

from __future__ import annotations

import ctypes
import subprocess
import sys

from mtl.broker.runtime.rest import AT_WORK, LOOK_S, REST_S, Rest


class Machine:
    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.rest = Rest(lambda: self.now, lambda: self.used)

    def spend(self, seconds: float, share: float) -> int:
        """How often it came to rest while it used so much of a processor for so long."""
        times = 0
        for _ in range(int(seconds * 10)):
            self.now += 0.1
            self.used += 0.1 * share
            times += self.rest.begins()
        return times


WORK, QUIET = 2 * AT_WORK, AT_WORK / 2


def test_it_comes_to_rest_once_for_every_time_that_it_was_at_work() -> None:
    machine = Machine()
    assert machine.spend(2 * LOOK_S, WORK) == 0
    assert machine.spend(REST_S - LOOK_S, QUIET) == 0
    assert machine.spend(2 * LOOK_S, QUIET) == 1
    assert machine.spend(10 * REST_S, QUIET) == 0
    assert machine.spend(2 * LOOK_S, WORK) == 0
    assert machine.spend(REST_S + LOOK_S, QUIET) == 1


def test_who_works_now_and_then_does_not_rest() -> None:
    machine = Machine()
    for _ in range(10):
        assert machine.spend(2 * LOOK_S, WORK) + machine.spend(REST_S / 2, QUIET) == 0


def test_who_did_nothing_has_nothing_to_rest_from() -> None:
    assert Machine().spend(10 * REST_S, QUIET) == 0


_FREED = """
import sys
from pathlib import Path
from mtl.broker.runtime.rest import give_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

bodies = [bytes(1000) for _ in range(200_000)]
kept = bodies[::1000]
del bodies
before = resident()
give_back()
print(before - resident())
"""


def test_what_was_freed_goes_back_to_the_system() -> None:
    out = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True, check=True).stdout
    glibc = hasattr(ctypes.CDLL(None), "malloc_trim")
    assert int(out) > (100 << 20 if glibc else -(1 << 20))

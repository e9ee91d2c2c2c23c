"""Sends SIGINTs to a process that executes blocking calls again and again (`python -m tests.signals.victim`).

The process asks for each signal by an octet on standard output, the length of its call, and has it after a random
pause: so a signal strikes while the call is executed, anywhere in it, and none strikes the code around it.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]

PAUSE_S = 0.004
"""The longest pause before a signal to a call of length 1: longer than a call whose answer comes at once."""

STUCK_S = 30.0
"""Seconds without progress after which the process counts as stuck, on a loaded machine, too."""


class StormFailed(AssertionError):
    """The process is stuck, or has failed; the message has what it wrote, and the stacks of its threads."""


def interrupt(endpoint: str, names: Iterable[str], signals: int, seed: int = 1) -> float:
    """Send this number of signals into each case of these names, in one process. Returns the seconds that it took."""
    began, chance = time.monotonic(), random.Random(seed)
    victim = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "tests.signals.victim", endpoint, str(signals), *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert victim.stdout is not None
    try:
        while length := _asked(victim.stdout.fileno(), victim):
            time.sleep(chance.random() * PAUSE_S * length)
            victim.send_signal(signal.SIGINT)
        _, errors = victim.communicate(timeout=STUCK_S)
    except subprocess.TimeoutExpired:
        raise StormFailed(f"the process does not end\n{_stacks(victim)}") from None
    finally:
        victim.kill()
        victim.wait()
    if victim.returncode != 0:
        raise StormFailed(f"exit code {victim.returncode}\n{errors.decode(errors='replace')}")
    return time.monotonic() - began


def _asked(pipe: int, victim: subprocess.Popen[bytes]) -> int:
    """The length of the call that the process wants to be interrupted; 0 at its end."""
    if not select.select([pipe], [], [], STUCK_S)[0]:
        raise StormFailed(f"no progress for {STUCK_S:.0f} s\n{_stacks(victim)}")
    return int.from_bytes(os.read(pipe, 1), "big")


def _stacks(victim: subprocess.Popen[bytes]) -> str:
    """The stacks of the threads of a stuck process, which ends."""
    victim.send_signal(signal.SIGABRT)
    return victim.communicate()[1].decode(errors="replace")

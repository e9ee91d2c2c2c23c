"""python -m tests.signals.victim ENDPOINT SIGNALS NAME...: execute cases under signals, keep the exceptions, check."""

from __future__ import annotations

import gc
import os
import sys
from collections import deque

from tests.signals.cases import CASES, Case

CHECKED = 100
"""Signals between two checks."""

KEPT = 1_000
"""Exceptions that stay referenced with their frames, as a notebook keeps the last ones."""

OPEN_FILES = 100
"""Open files that a process has at most when the exceptions are dropped: signals leave no sockets behind. While they
are kept, they keep event loops that a signal struck in the first or last lines of `asyncio.run`."""


LOST = 0.01
"""Fraction of the signals that Python may lose: it ignores exceptions in finalizers, for example that of an event
loop, and signal handlers run there, too. Then Ctrl-C has to be pressed again.
"""


class Signals:
    """Asks for a signal by an octet on standard output, and again for one that Python has lost."""

    def __init__(self) -> None:
        self.length = 0
        self.lost = 0
        sys.unraisablehook = self._handle_ignored

    def ask(self, length: int) -> None:
        """Ask for one, in a call of this length."""
        self.length = length
        os.write(1, bytes([length]))

    def _handle_ignored(self, ignored: sys.UnraisableHookArgs) -> None:
        sys.__unraisablehook__(ignored)
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            self.lost += 1
            self.ask(self.length)


def interrupted(case: Case, signals: Signals) -> KeyboardInterrupt:
    """The exception of one signal."""
    try:
        signals.ask(case.length)
        while True:
            case.call()
    except KeyboardInterrupt as error:
        return error


def main() -> None:
    """Any other exception than KeyboardInterrupt is a failure."""
    endpoint, count, *names = sys.argv[1:]
    signals = Signals()
    kept: deque[KeyboardInterrupt] = deque(maxlen=KEPT)
    for name in names:
        sys.stderr.write(f"{name}\n")
        case = CASES[name](endpoint)
        for number in range(1, int(count) + 1):
            kept.append(interrupted(case, signals))
            case.interrupted()
            if number % CHECKED == 0:
                case.check()
        case.check()
        case.end()
    assert signals.lost <= max(1, LOST * int(count) * len(names)), f"{signals.lost} signals are lost"
    kept.clear()
    gc.collect()
    if os.path.isdir("/proc/self/fd"):  # noqa: PTH112 a list of descriptors, not a path
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        assert files < OPEN_FILES, f"{files} open files"


if __name__ == "__main__":
    main()

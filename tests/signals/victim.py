"""python -m tests.signals.victim ENDPOINT SIGNALS NAME...: execute cases under signals, keep the exceptions, check."""

from __future__ import annotations

import os
import sys
from collections import deque

from tests.signals.cases import CASES, Case

CHECKED = 100
"""Signals between two checks."""

KEPT = 1_000
"""Exceptions that stay referenced with their frames, as a notebook keeps the last ones."""

OPEN_FILES = 200
"""Open files that a process has at most: signals leave no sockets behind."""


def interrupted(case: Case) -> KeyboardInterrupt:
    """The exception of one signal."""
    try:
        os.write(1, bytes([case.length]))
        while True:
            case.call()
    except KeyboardInterrupt as error:
        return error


def main() -> None:
    """Any other exception than KeyboardInterrupt is a failure."""
    endpoint, signals, *names = sys.argv[1:]
    kept: deque[KeyboardInterrupt] = deque(maxlen=KEPT)
    for name in names:
        sys.stderr.write(f"{name}\n")
        case = CASES[name](endpoint)
        for number in range(1, int(signals) + 1):
            kept.append(interrupted(case))
            case.interrupted()
            if number % CHECKED == 0:
                case.check()
        case.check()
        case.end()
    if os.path.isdir("/proc/self/fd"):  # noqa: PTH112 a list of descriptors, not a path
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        assert files < OPEN_FILES, f"{files} open files"


if __name__ == "__main__":
    main()

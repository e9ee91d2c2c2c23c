"""Precedence of an administrator's change of the records over those of a busy broker.

SQLite does not queue its writers: a writer that finds the database locked tries again some milliseconds later. A broker
that saves all the time leaves shorter pauses, so `mtl user` could exceed SQLite's time-out ("database is locked"). So
`mtl user` holds a lock on the file `waiting` until its change is made, and a broker that sees the lock waits before its
next transaction.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAME = "waiting"
"""The file next to `broker.db`. It has no content."""

PRECEDENCE_S = 1.0
"""How long a broker waits at most: a suspended process of an administrator must not stop the broker."""

_RETRY_S = 0.002
"""Seconds between two attempts of a broker to take the lock."""


class Precedence:
    """The file `waiting`. An administrator's process (`first`) opens it for each use, a broker keeps it open."""

    def __init__(self, directory: Path, *, first: bool) -> None:
        self._path = directory / NAME
        self._first = first
        self._fd = -1

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The time of one transaction. Without the file, as on a full disk, there is no precedence."""
        with suppress(OSError):
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if self._first:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
            else:
                self._wait_for_administrators()
        try:
            yield
        finally:
            if self._first:
                self.close()

    def _wait_for_administrators(self) -> None:
        until = time.monotonic() + PRECEDENCE_S
        while time.monotonic() < until:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_RETRY_S)
            else:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                return

    def close(self) -> None:
        """Release the lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

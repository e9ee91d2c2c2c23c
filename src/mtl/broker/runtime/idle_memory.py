"""Returns memory to the system when a broker becomes idle after work.

The C library keeps freed memory, which is a large amount after many publishers. A broker that is busy from time to
time keeps it: freeing and re-allocating memory costs more than holding it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

IDLE_S = 60.0
"""Seconds of low load after which the broker counts as idle: longer than the pause between two batches of a query, and
short enough to be seen by a person that watches the memory of an idle broker."""

CHECK_S = 5.0
"""Seconds between two measurements of the load."""

BUSY_LOAD = 0.1
"""The load, in processors, above which the broker counts as busy."""


class IdleDetector:
    """`clock` counts elapsed seconds, `processor` the seconds of processor time that this process has used."""

    def __init__(self, clock: Callable[[], float], processor: Callable[[], float]) -> None:
        self._clock = clock
        self._processor = processor
        self._checked_at = clock()
        self._used = processor()
        self._busy_at: float | None = None

    def became_idle(self) -> bool:
        """Whether the broker has just become idle: not busy for `IDLE_S` after it was. Measures once in `CHECK_S`."""
        now = self._clock()
        passed = now - self._checked_at
        if passed < CHECK_S:
            return False
        used, self._used = self._processor() - self._used, self._processor()
        self._checked_at = now
        if used > BUSY_LOAD * passed:
            self._busy_at = now
        if self._busy_at is None or now - self._busy_at < IDLE_S:
            return False
        self._busy_at = None
        return True


def return_memory() -> None:
    """Return the freed memory that glibc keeps to the system. Does nothing with other C libraries."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))

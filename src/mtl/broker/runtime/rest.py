"""Returns memory to the system when a broker becomes idle after work.

The C library keeps freed memory, and after many publishers that is a lot. A broker that is busy from time to time keeps
it: freeing and re-allocating memory costs more than holding it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

REST_S = 60.0
"""Seconds of low load after which the broker counts as idle: longer than the pause between two batches of a query, and
short enough for a person who looks at the memory of an idle broker."""

LOOK_S = 5.0
"""Seconds between two looks at the load."""

AT_WORK = 0.1
"""The load, in processors, above which the broker counts as busy."""


class Rest:
    """`clock` counts elapsed seconds, `processor` the seconds of processor time that this process has used."""

    def __init__(self, clock: Callable[[], float], processor: Callable[[], float]) -> None:
        self._clock = clock
        self._processor = processor
        self._looked_at = clock()
        self._used = processor()
        self._worked_at: float | None = None

    def begins(self) -> bool:
        """Whether the broker has just become idle: not busy for `REST_S` after it was. Looks once in `LOOK_S`."""
        now = self._clock()
        passed = now - self._looked_at
        if passed < LOOK_S:
            return False
        used, self._used = self._processor() - self._used, self._processor()
        self._looked_at = now
        if used > AT_WORK * passed:
            self._worked_at = now
        if self._worked_at is None or now - self._worked_at < REST_S:
            return False
        self._worked_at = None
        return True


def give_back() -> None:
    """Return the freed memory that glibc keeps to the system. Does nothing with other C libraries."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))

"""When a broker that was at work comes to rest, it gives back the memory that it does not need any more.

The C library keeps what is freed, and after many publishers that is a lot. Whoever works now and then keeps it, for to
get it anew costs more than to have it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

REST_S = 60.0
"""How long it does next to nothing before it counts as resting: the pause between two batches of a query is shorter,
and whoever looks at what an idle broker has can wait for it."""

LOOK_S = 5.0
"""How often that is looked at."""

AT_WORK = 0.1
"""Processors that it uses at least when it is at work."""


class Rest:
    """`clock` and `processor` count seconds: those that pass, and those in which this process had a processor."""

    def __init__(self, clock: Callable[[], float], processor: Callable[[], float]) -> None:
        self._clock = clock
        self._processor = processor
        self._looked_at = clock()
        self._used = processor()
        self._worked_at: float | None = None

    def begins(self) -> bool:
        """Whether it has just come to rest: it was at work, and then was not for `REST_S`. Looks now and then."""
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
    """Give the system what glibc keeps of what was freed. Other C libraries are not asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))

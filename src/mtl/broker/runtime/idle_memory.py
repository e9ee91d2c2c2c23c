"""Returns memory to the system when a broker becomes idle after work, or has sent much that waited to be sent.

The C library keeps freed memory, which is a large amount after many publishers. A broker that is busy from time to
time keeps it: freeing and re-allocating memory costs more than holding it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from mtl.broker.limits import MEMORY_RETURNED

IDLE_S = 60.0
"""Seconds of low load after which the broker counts as idle: longer than the pause between two batches of a query, and
short enough to be seen by a person that watches the memory of an idle broker."""

CHECK_S = 5.0
"""Seconds between two measurements of the load."""

UNSENT_CHECK_S = 2.0
"""Seconds between two comparisons of the unsent octets; two later the memory of peers that left is returned."""

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


class FallDetector:
    """`most` returns the most octets that waited to be sent since its last call, which is every `UNSENT_CHECK_S`."""

    def __init__(self, clock: Callable[[], float], most: Callable[[], int]) -> None:
        self._clock = clock
        self._most = most
        self._checked_at = clock()
        self._highest = 0

    def fell(self) -> bool:
        """Whether the octets have just become at least `MEMORY_RETURNED` fewer: their memory is not needed any more."""
        now = self._clock()
        if now - self._checked_at < UNSENT_CHECK_S:
            return False
        self._checked_at = now
        most = self._most()
        if self._highest - most < MEMORY_RETURNED:
            self._highest = max(self._highest, most)
            return False
        self._highest = most
        return True


def return_memory() -> None:
    """Return the freed memory that glibc keeps to the system. Does nothing with other C libraries."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))

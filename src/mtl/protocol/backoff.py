"""Pauses between attempts, each twice as long as the one before."""

from __future__ import annotations

_MOST_DOUBLINGS = 60
"""More than any pause needs, and few enough for a float."""


def pause(first: float, top: float, attempt: int) -> float:
    """Seconds to pause after this attempt (from 1): `first` after the first, doubled after each, up to `top`."""
    return min(first * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS), top)


class Backoff:
    """The pauses of one series of attempts, in seconds. `attempts` counts those that failed since the last success."""

    __slots__ = ("_first", "_top", "attempts")

    def __init__(self, first: float, top: float) -> None:
        self._first = first
        self._top = top
        self.attempts = 0

    def failed(self) -> float:
        """An attempt failed: the pause before the next one."""
        self.attempts += 1
        return pause(self._first, self._top, self.attempts)

    def succeeded(self) -> None:
        """The next pause is the first one again."""
        self.attempts = 0

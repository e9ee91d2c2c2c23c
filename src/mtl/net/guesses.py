"""Wrong passwords, counted by the broker to limit guessing. Pure: the clock is a parameter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable


class Guesses:
    """Counts of wrong passwords by source: an address with a name.

    A count begins with its first wrong password and lasts `period_s` seconds. At most `most` counts are kept; the one
    that was unchanged for longest is dropped first. `clock` is in monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], period_s: float, most: int) -> None:
        self._clock = clock
        self._period_s = period_s
        self._most = most
        self._counts: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def wrong(self, *sources: Hashable) -> None:
        """Count one wrong password, for each of these sources."""
        for source in sources:
            since, count = self._count(source)
            self._counts[source] = since, count + 1
            self._counts.move_to_end(source)
        while len(self._counts) > self._most:
            self._counts.popitem(last=False)

    def reached(self, source: Hashable, limit: int) -> bool:
        """Whether the given number of passwords of a source were wrong in its period."""
        return self._count(source)[1] >= limit

    def _count(self, source: Hashable) -> tuple[float, int]:
        now = self._clock()
        since, count = self._counts.get(source, (now, 0))
        return (now, 0) if since + self._period_s <= now else (since, count)

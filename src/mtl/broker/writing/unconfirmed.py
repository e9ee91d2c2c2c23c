"""What a writing lease took in and has not confirmed: which numbers wait, and up to where a Confirm may go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import takewhile

from mtl.broker.writing.intake import Arrival


class Unconfirmed:
    """Arrivals by their numbers, lowest first; none overlaps another."""

    __slots__ = ("_arrivals", "_lasts")

    def __init__(self) -> None:
        self._arrivals: list[Arrival] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return len(self._arrivals)

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self._arrivals)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._lasts, number)
        return at < len(self._lasts) and self._arrivals[at].first <= number

    @property
    def lowest(self) -> int | None:
        """The lowest number that waits."""
        return self._arrivals[0].first if self._arrivals else None

    def add(self, arrival: Arrival) -> None:
        """It waits for its Confirm. Numbers come in order, unless a writer goes back to what an earlier lease sent."""
        at = bisect_left(self._lasts, arrival.last)
        self._arrivals.insert(at, arrival)
        self._lasts.insert(at, arrival.last)

    def forget_from(self, number: int) -> None:
        """Everything from `number` on will be sent again."""
        at = bisect_left(self._arrivals, number, key=lambda arrival: arrival.first)
        del self._arrivals[at:], self._lasts[at:]

    def clear(self) -> None:
        """Everything will be sent again."""
        self.forget_from(0)

    def take_done(self) -> int:
        """The last number of the durable prefix, which is taken out; 0 when there is none."""
        done = sum(1 for _ in takewhile(lambda arrival: arrival.done, self._arrivals))
        last = self._lasts[done - 1] if done else 0
        del self._arrivals[:done], self._lasts[:done]
        return last

"""The contents of a writing lease that are accepted and not confirmed."""

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
        """The lowest unconfirmed number."""
        return self._arrivals[0].first if self._arrivals else None

    def add(self, arrival: Arrival) -> None:
        """Add contents. Numbers are in order, unless a writer sends the numbers of an earlier lease again."""
        at = bisect_left(self._lasts, arrival.last)
        self._arrivals.insert(at, arrival)
        self._lasts.insert(at, arrival.last)

    def forget_from(self, number: int) -> None:
        """Forget the numbers from `number` on: they will be sent again."""
        at = bisect_left(self._arrivals, number, key=lambda arrival: arrival.first)
        del self._arrivals[at:], self._lasts[at:]

    def clear(self) -> None:
        """Forget all numbers: they will be sent again."""
        self.forget_from(0)

    def pop_durable(self) -> int:
        """Remove the durable prefix; returns its last number, 0 when there is none."""
        done = sum(1 for _ in takewhile(lambda arrival: arrival.done, self._arrivals))
        last = self._lasts[done - 1] if done else 0
        del self._arrivals[:done], self._lasts[:done]
        return last

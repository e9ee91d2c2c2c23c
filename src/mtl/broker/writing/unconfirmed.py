"""The contents of a writing lease that are accepted and not confirmed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import takewhile

from mtl.broker.writing.intake import AcceptedContents


class Unconfirmed:
    """Accepted contents by their numbers, lowest first; none overlaps another."""

    __slots__ = ("_accepted", "_lasts")

    def __init__(self) -> None:
        self._accepted: list[AcceptedContents] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return len(self._accepted)

    def __iter__(self) -> Iterator[AcceptedContents]:
        return iter(self._accepted)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._lasts, number)
        return at < len(self._lasts) and self._accepted[at].first <= number

    @property
    def lowest(self) -> int | None:
        """The lowest unconfirmed number."""
        return self._accepted[0].first if self._accepted else None

    def add(self, accepted: AcceptedContents) -> None:
        """Add contents. Numbers are in order, unless a writer sends the numbers of an earlier lease again."""
        at = bisect_left(self._lasts, accepted.last)
        self._accepted.insert(at, accepted)
        self._lasts.insert(at, accepted.last)

    def forget_from(self, number: int) -> None:
        """Forget the numbers from `number` on: they will be sent again."""
        at = bisect_left(self._accepted, number, key=lambda accepted: accepted.first)
        del self._accepted[at:], self._lasts[at:]

    def clear(self) -> None:
        """Forget all numbers: they will be sent again."""
        self.forget_from(0)

    def pop_durable(self) -> int:
        """Remove the durable prefix; returns its last number, 0 when there is none."""
        done = sum(1 for _ in takewhile(lambda accepted: accepted.done, self._accepted))
        last = self._lasts[done - 1] if done else 0
        del self._accepted[:done], self._lasts[:done]
        return last

"""The settled contents of a queue: all below a low-water mark, and ranges above it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Settled:
    """A set of sequences that only grows, as sorted and disjoint ranges. It needs memory for each range, not for
    each content.

    Everything below `low` belongs to it. Ends are exclusive.
    """

    __slots__ = ("_ends", "_starts", "low")

    def __init__(self, low: int, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.low = low
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, end in ranges:
            self.add(first, end)

    def copy(self) -> Settled:
        """A copy."""
        return Settled(self.low, self)

    def add(self, first: int, end: int) -> None:
        """Add the contents [first, end). Some of them may be in the set already."""
        first = max(first, self.low)
        if first >= end:
            return
        left, right = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if left < right:
            first, end = min(first, self._starts[left]), max(end, self._ends[right - 1])
        self._starts[left:right] = [first]
        self._ends[left:right] = [end]
        if first <= self.low:
            self.raise_low(end)

    def raise_low(self, low: int) -> None:
        """Add everything below `low`."""
        self.low = max(self.low, low)
        gone = bisect_right(self._starts, self.low)
        if gone:
            self.low = max(self.low, self._ends[gone - 1])
            del self._starts[:gone], self._ends[:gone]

    def after(self, sequence: int) -> int:
        """The lowest content at or above `sequence` that is not settled."""
        if sequence < self.low:
            return self.low
        at = bisect_right(self._starts, sequence)
        return max(sequence, self._ends[at - 1]) if at else sequence

    def __contains__(self, sequence: int) -> bool:
        return self.after(sequence) != sequence

    @property
    def above(self) -> int:
        """The number of settled contents above `low`."""
        return sum(self._ends) - sum(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The ranges above `low`, in order."""
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """The number of ranges above `low`."""
        return len(self._starts)

"""Contents that were sent and not yet settled by Confirm or Reject (RFC 11 "Content Confirmation").

Both senders keep an `Unsettled`: a writing client per flow, the broker per reading lease. A packed Content takes the
sequences first..last and settles as a whole with its last number; its other numbers settle nothing. Single contents
that were sent in a row share one record, since a record of each would cost more than sending it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Sent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A record of sent contents: their sequences, their size in octets, and an item that the sender gets back.

    One Content, which settles as a whole; or, when `divisible`, a run of single contents with equal shares of `size`.
    """

    first: int
    last: int
    size: int
    item: T
    divisible: bool = False

    @property
    def contents(self) -> int:
        """The number of sequences."""
        return self.last - self.first + 1

    def part(self, first: int, last: int) -> Sent[T]:
        """The part of a run within first..last; it may have no contents."""
        share = self.size // self.contents
        first, last = max(first, self.first), min(last, self.last)
        return Sent(first, last, share * max(0, last - first + 1), self.item, divisible=True)


class Unsettled(Generic[T]):
    """The records of sent contents, in order of their sequences, with the totals that windows are compared with.

    Records are found by bisection. Nearly all are settled at the front: there they are only skipped, and deleted when
    they are half of the list.
    """

    __slots__ = ("_begin", "_lasts", "_sent", "contents", "highest", "octets")

    def __init__(self) -> None:
        self._sent: list[Sent[T]] = []
        self._lasts: list[int] = []
        self._begin = 0
        self.contents = 0
        self.octets = 0
        self.highest = 0

    def __len__(self) -> int:
        return len(self._sent) - self._begin

    def __iter__(self) -> Iterator[Sent[T]]:
        return islice(self._sent, self._begin, None)

    @property
    def lowest(self) -> int | None:
        """The lowest sequence that is unsettled; None when none is."""
        return self._sent[self._begin].first if self else None

    def add(self, sent: Sent[T]) -> None:
        """Add a record of contents that are being sent; sequences only grow within a flow (PROTOCOL.md 3)."""
        self._sent.append(sent)
        self._lasts.append(sent.last)
        self.contents += sent.last - sent.first + 1
        self.octets += sent.size
        self.highest = sent.last

    def settle(self, sequence: int, multiple: bool) -> list[Sent[T]]:
        """Remove and return the records that a Confirm or Reject covers, in order.

        A sequence that was never sent covers none, and is not an error (MTL-93, MTL-98, PROTOCOL.md 3).
        """
        if sequence < 1 or sequence > self.highest:
            return []
        settled = self._settle_up_to(sequence) if multiple else self._settle_one(sequence)
        self._subtract(settled)
        return settled

    def cut(self, sequence: int) -> list[Sent[T]]:
        """Remove and return the records that end at or above `sequence`, in order: they were not sent, and their
        numbers are free again. Of a run only the part from `sequence` on.
        """
        at = bisect_left(self._lasts, sequence, self._begin)
        gone = self._sent[at:]
        del self._sent[at:], self._lasts[at:]
        self._subtract(gone)
        if gone and gone[0].divisible and gone[0].first < sequence:
            self.add(gone[0].part(gone[0].first, sequence - 1))
            gone[0] = gone[0].part(sequence, gone[0].last)
        self.highest = min(self.highest, sequence - 1)
        return gone

    def clear(self) -> list[Sent[T]]:
        """Remove and return all records, in order: the flow has ended."""
        everything = list(self)
        self._sent.clear()
        self._lasts.clear()
        self._begin = self.contents = self.octets = 0
        return everything

    def _settle_up_to(self, sequence: int) -> list[Sent[T]]:
        end = bisect_right(self._lasts, sequence, self._begin)
        settled = self._sent[self._begin : end]
        self._begin = end
        if end < len(self._sent) and self._sent[end].divisible and self._sent[end].first <= sequence:
            sent = self._sent[end]
            settled.append(sent.part(sent.first, sequence))
            self._sent[end] = sent.part(sequence + 1, sent.last)
        self._trim()
        return settled

    def _settle_one(self, sequence: int) -> list[Sent[T]]:
        at = bisect_left(self._lasts, sequence, self._begin)
        if at == len(self._sent):
            return []
        sent = self._sent[at]
        if not sent.divisible and sent.last == sequence:
            rest = []
        elif sent.divisible and sent.first <= sequence:
            rest = [sent.part(sent.first, sequence - 1), sent.part(sequence + 1, sent.last)]
        else:
            return []
        left = [x for x in rest if x.contents > 0]
        if left or at > self._begin:
            self._sent[at : at + 1] = left
            self._lasts[at : at + 1] = [x.last for x in left]
        else:
            self._begin += 1
            self._trim()
        return [sent.part(sequence, sequence) if sent.divisible else sent]

    def _subtract(self, removed: list[Sent[T]]) -> None:
        # `Sent.contents`, inlined here and in `add`: this runs for every content.
        self.contents -= sum([sent.last - sent.first + 1 for sent in removed])
        self.octets -= sum([sent.size for sent in removed])

    def _trim(self) -> None:
        if self._begin * 2 > len(self._sent):
            del self._sent[: self._begin], self._lasts[: self._begin]
            self._begin = 0

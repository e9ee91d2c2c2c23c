"""Contents that were sent and not yet settled: what Confirm and Reject cover (RFC 11 "Content Confirmation").

Both senders keep one of these: a writing client per flow, the broker per reading lease. A packed Content takes the
sequences first..last and settles as a whole with its last number; a single number inside it means nothing. Single
contents that were sent in a row are kept in a row, for a record of each would cost more than the sending.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Sent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What is on its way: the sequences it takes, its size in octets, and whatever its sender wants back.

    One Content, which settles as a whole; or, when `divisible`, a run of single contents of the same share of `size`.
    """

    first: int
    last: int
    size: int
    item: T
    divisible: bool = False

    @property
    def contents(self) -> int:
        """How many sequences it takes."""
        return self.last - self.first + 1

    def part(self, first: int, last: int) -> Sent[T]:
        """Of a run, what lies within first..last; nothing (no contents) when that is nothing."""
        share = self.size // self.contents
        first, last = max(first, self.first), min(last, self.last)
        return Sent(first, last, share * max(0, last - first + 1), self.item, divisible=True)


class Unsettled(Generic[T]):
    """What was sent, in order of its sequences, with the running totals that windows are made of.

    Found by bisection. What leaves at the front, as nearly everything does, is only skipped, and goes when it is half.
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
        """Remember what is being sent; sequences only grow within a flow (PROTOCOL.md 3)."""
        self._sent.append(sent)
        self._lasts.append(sent.last)
        self.contents += sent.last - sent.first + 1
        self.octets += sent.size
        self.highest = sent.last

    def settle(self, sequence: int, multiple: bool) -> list[Sent[T]]:
        """Take out what a Confirm or Reject covers, in order. Empty when it is invalid: that is ignored silently.

        A sequence that was never sent covers nothing (MTL-93, MTL-98, PROTOCOL.md 3).
        """
        if sequence < 1 or sequence > self.highest:
            return []
        settled = self._up_to(sequence) if multiple else self._one(sequence)
        self._leave(settled)
        return settled

    def cut(self, sequence: int) -> list[Sent[T]]:
        """Take out what ends at or above `sequence`, in order: it did not leave, and its numbers are free again. Of a
        run only what lies above.
        """
        at = bisect_left(self._lasts, sequence, self._begin)
        gone = self._sent[at:]
        del self._sent[at:], self._lasts[at:]
        self._leave(gone)
        if gone and gone[0].divisible and gone[0].first < sequence:
            self.add(gone[0].part(gone[0].first, sequence - 1))
            gone[0] = gone[0].part(sequence, gone[0].last)
        self.highest = min(self.highest, sequence - 1)
        return gone

    def clear(self) -> list[Sent[T]]:
        """Take everything out, in order: the flow is gone."""
        everything = list(self)
        self._sent.clear()
        self._lasts.clear()
        self._begin = self.contents = self.octets = 0
        return everything

    def _up_to(self, sequence: int) -> list[Sent[T]]:
        end = bisect_right(self._lasts, sequence, self._begin)
        settled = self._sent[self._begin : end]
        self._begin = end
        if end < len(self._sent) and self._sent[end].divisible and self._sent[end].first <= sequence:
            sent = self._sent[end]
            settled.append(sent.part(sent.first, sequence))
            self._sent[end] = sent.part(sequence + 1, sent.last)
        self._trim()
        return settled

    def _one(self, sequence: int) -> list[Sent[T]]:
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

    def _leave(self, gone: list[Sent[T]]) -> None:
        # `Sent.contents`, spelt out here and above: this runs for every content.
        self.contents -= sum([sent.last - sent.first + 1 for sent in gone])
        self.octets -= sum([sent.size for sent in gone])

    def _trim(self) -> None:
        if self._begin * 2 > len(self._sent):
            del self._sent[: self._begin], self._lasts[: self._begin]
            self._begin = 0

"""Contents that were sent and not yet settled: what Confirm and Reject cover (RFC 11 "Content Confirmation").

Both senders keep one of these: a writing client per flow, the broker per reading lease. A packed Content takes the
sequences first..last and settles as a whole with its last number; a single number inside it means nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Sent(NamedTuple, Generic[T]):
    """One Content on its way: the sequences it takes, its size in octets, and whatever its sender wants back."""

    first: int
    last: int
    size: int
    item: T


class Unsettled(Generic[T]):
    """Sent Contents in order of their sequences, with the running totals that windows are made of."""

    __slots__ = ("_by_last", "contents", "highest", "octets")

    def __init__(self) -> None:
        self._by_last: OrderedDict[int, Sent[T]] = OrderedDict()
        self.contents = 0
        self.octets = 0
        self.highest = 0

    def __len__(self) -> int:
        return len(self._by_last)

    def __iter__(self) -> Iterator[Sent[T]]:
        return iter(self._by_last.values())

    def add(self, sent: Sent[T]) -> None:
        """Remember a Content that is being sent; sequences only grow within a flow (PROTOCOL.md 3)."""
        self._by_last[sent.last] = sent
        self.contents += sent.last - sent.first + 1
        self.octets += sent.size
        self.highest = sent.last

    def settle(self, sequence: int, multiple: bool) -> list[Sent[T]]:
        """Take out what a Confirm or Reject covers, in order. Empty when it is invalid: that is ignored silently.

        A sequence that was never sent covers nothing (MTL-93, MTL-98, PROTOCOL.md 3).
        """
        if sequence < 1 or sequence > self.highest:
            return []
        if not multiple:
            one = self._by_last.pop(sequence, None)
            return [self._leave(one)] if one is not None else []
        settled: list[Sent[T]] = []
        while self._by_last:
            last, sent = next(iter(self._by_last.items()))
            if last > sequence:
                break
            del self._by_last[last]
            settled.append(self._leave(sent))
        return settled

    def cut(self, sequence: int) -> list[Sent[T]]:
        """Take out what begins at or above `sequence`, in order: it did not leave, and its numbers are free again."""
        gone = [sent for sent in self._by_last.values() if sent.last >= sequence]
        for sent in gone:
            del self._by_last[sent.last]
            self._leave(sent)
        self.highest = min(self.highest, sequence - 1)
        return gone

    def clear(self) -> list[Sent[T]]:
        """Take everything out, in order: the flow is gone."""
        everything = list(self._by_last.values())
        self._by_last.clear()
        self.contents = self.octets = 0
        return everything

    def _leave(self, sent: Sent[T]) -> Sent[T]:
        self.contents -= sent.last - sent.first + 1
        self.octets -= sent.size
        return sent

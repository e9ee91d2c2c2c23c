"""Which run of the broker appended which contents of a log: how a position of another copy of it is recognized. Pure.

PROTOCOL.md 5.1.1. Broker, clients and the Spark connector decide by the same rule, which is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class History:
    """A log that ends at `next` (exclusive) and its epochs, ascending, as pairs of first sequence and id.

    An epoch ends where the one after it begins. One that begins at `next` has no contents: it says which id the
    contents to come will have. Contents before the first epoch are older than what the history remembers.
    """

    entries: tuple[tuple[int, str], ...]
    next: int

    @classmethod
    def of(cls, entries: Iterable[tuple[int, str]] | None, following: int) -> History:
        """Of what a reply says; without epochs where it says nothing."""
        return cls(tuple((first, epoch) for first, epoch in entries or ()), following)

    def epoch_of(self, position: int) -> str | None:
        """The epoch of the content before `position`; None where there is none, or the history does not go back so far.

        It is also right above `next`, as long as the run of the broker lives that the history is from.
        """
        return next((epoch for first, epoch in reversed(self.entries) if first < position), None)

    def has(self, epoch: str) -> bool:
        """Whether contents of this epoch are, or were, in the log, or the next ones will be of it."""
        known = any(one == epoch for _, one in self.entries)
        return known or (bool(self.entries) and _number(epoch) < _number(self.entries[0][1]))

    def parting(self, position: int, epoch: str | None) -> int | None:
        """None when the log has what a reader saw that is at `position`, and saw a content of `epoch` last.

        Otherwise contents from here up to `position` were lost: the two logs are alike only before. Without an epoch
        only the end of the log is looked at.
        """
        if epoch is None:
            return None if position <= self.next else self.next
        kept = [one for one in self.entries if one[0] < self.next]
        ends = [*(after[0] for _, after in pairwise(kept)), self.next]
        for (_, known), end in zip(kept, ends, strict=False):
            if known == epoch:
                return None if position <= end else end
        if kept and _number(epoch) < _number(kept[0][1]):  # of an epoch that is no longer remembered
            return None if position <= kept[0][0] else kept[0][0]
        # Unknown: alike are at most those epochs that either copy of the log may have begun before it.
        alike = [end for (_, known), end in zip(kept, ends, strict=False) if _number(known) < _number(epoch)]
        oldest = kept[0][0] if kept else self.next
        return min(position, alike[-1] if alike else oldest)


def _number(epoch: str) -> int:
    return int(epoch.partition(".")[0])

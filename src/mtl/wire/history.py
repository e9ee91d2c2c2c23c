"""The epochs of a log, by which a position in another copy of the log is recognized. Pure.

PROTOCOL.md 5.1.1. Broker, clients and the Spark connector all use this rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class History:
    """A log that ends at `next` (exclusive) and its epochs, ascending, as pairs of first sequence and id.

    An epoch has the contents that one run of the broker appended, up to the begin of the next epoch. One that begins at
    `next` has no contents yet. Contents before the first epoch are older than the history.
    """

    entries: tuple[tuple[int, str], ...]
    next: int

    @classmethod
    def of(cls, entries: Iterable[tuple[int, str]] | None, following: int) -> History:
        """The history in a reply; without epochs if the reply has none."""
        return cls(tuple((first, epoch) for first, epoch in entries or ()), following)

    def epoch_of(self, position: int) -> str | None:
        """The epoch of the content before `position`; None without such a content, or if it is older than the history.

        It is also correct above `next` while the run of the broker that sent the history lasts.
        """
        return next((epoch for first, epoch in reversed(self.entries) if first < position), None)

    def has_epoch(self, epoch: str) -> bool:
        """Whether contents of this epoch are or were in the log, or the next contents will be of it."""
        known = any(known_epoch == epoch for _, known_epoch in self.entries)
        return known or (bool(self.entries) and _number(epoch) < _number(self.entries[0][1]))

    def diverges_at(self, position: int, epoch: str | None) -> int | None:
        """None when the log has the contents of a reader at `position` whose last content was of `epoch`.

        Otherwise the sequence at which the log and the one that was read differ: contents from there up to `position`
        were lost. Without an epoch only the end of the log is compared.
        """
        if epoch is None:
            return None if position <= self.next else self.next
        kept = [entry for entry in self.entries if entry[0] < self.next]
        ends = [*(after[0] for _, after in pairwise(kept)), self.next]
        for (_, known), end in zip(kept, ends, strict=False):
            if known == epoch:
                return None if position <= end else end
        if kept and _number(epoch) < _number(kept[0][1]):  # an epoch that is older than the history
            return None if position <= kept[0][0] else kept[0][0]
        # The epoch is unknown and not older than the history: it is from another copy of the log, which a broker
        # continued. Numbers of epochs ascend by one in each copy, so no epoch from this number on is in both. The
        # copies can agree at most up to the end of the last epoch below it.
        alike = [end for (_, known), end in zip(kept, ends, strict=False) if _number(known) < _number(epoch)]
        oldest = kept[0][0] if kept else self.next
        return min(position, alike[-1] if alike else oldest)


def _number(epoch: str) -> int:
    return int(epoch.partition(".")[0])

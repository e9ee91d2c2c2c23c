"""Saves records so that a log whose record is removed can be removed, too, by the next start if need be.

The transaction that removes the record of a resource or stage also writes a record `dropped` with the place of its
logs. That one goes when the logs are gone, with the next transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtl.storage.keys import place_of
from mtl.storage.records import AnyRecord, DroppedRecord, ResourceRecord, StageRecord
from mtl.storage.sqlite import RecordStore


class Tombstones:
    """Around a `RecordStore`; `dropped` are the places of logs that are to be removed."""

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._dropped: dict[str, None] = {}
        self._removed: dict[str, None] = {}

    def restore(self, records: Sequence[AnyRecord]) -> None:
        """What the last run left."""
        self._dropped = {r.place: None for r in records if isinstance(r, DroppedRecord)}

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        """As the store's. Raises `StorageError`; the transaction may be on the disk then, so its places stay known."""
        new = _places(forget)
        back = [x for x in _places(put) if x in self._dropped]
        removed = list(self._removed)
        self._dropped |= dict.fromkeys(new)
        self._records.save(
            (*put, *map(DroppedRecord, new)), (*forget, *map(DroppedRecord, (*back, *removed)))
        )
        for place in (*back, *removed):
            self._dropped.pop(place, None)
            self._removed.pop(place, None)

    @property
    def are_done(self) -> bool:
        """Whether there are places whose logs are gone, for the next transaction to forget."""
        return bool(self._removed)

    def removed(self, place: str) -> None:
        """The logs in a place are gone, durably."""
        if place in self._dropped:
            self._removed[place] = None


def _places(records: Sequence[AnyRecord]) -> list[str]:
    return [place_of(r) for r in records if isinstance(r, ResourceRecord | StageRecord)]

"""Saves records so that the logs of a removed record get removed, too, if necessary by the next start.

The transaction that removes the record of a resource or stage also writes a record `dropped` with the place of its
logs. The first transaction after the removal of the logs removes that record.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtl.storage.keys import directory_of
from mtl.storage.records import AnyRecord, DroppedRecord, ResourceRecord, StageRecord
from mtl.storage.sqlite import RecordStore


class Tombstones:
    """Wraps a `RecordStore` and adds records `dropped` for the places of logs that are to be removed. `removed` may be
    called by another thread than `save`: each step on a dict is atomic, and `save` works on a copy.
    """

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._dropped: dict[str, None] = {}
        self._removed: dict[str, None] = {}

    def restore(self, records: Sequence[AnyRecord]) -> None:
        """Take over the records `dropped` of the last run."""
        self._dropped = {r.place: None for r in records if isinstance(r, DroppedRecord)}

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        """As `RecordStore.save`. After a `StorageError` the transaction may be on the disk, so its places are kept."""
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
    def has_removed_logs(self) -> bool:
        """Whether logs were removed whose `dropped` records the next transaction can delete."""
        return bool(self._removed)

    def removed(self, place: str) -> None:
        """The logs in a place were removed, durably."""
        if place in self._dropped:
            self._removed[place] = None


def _places(records: Sequence[AnyRecord]) -> list[str]:
    return [directory_of(r) for r in records if isinstance(r, ResourceRecord | StageRecord)]

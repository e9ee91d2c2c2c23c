"""The broker's records in memory, as SQLite keeps them on a failing disk and a machine that stops.

A save is one atomic transaction. A failed one is undecided: its pages may have reached the disk before the error, so
it may appear after a crash, until a later successful save replaces it in the write-ahead log.

Rows can be damaged or lost, and an older copy can be restored: the generation beside the rows reveals it, as in the
real store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from mtl.errors import OldRecords, StorageError, StorageFailed, StorageFull
from mtl.storage.records import KINDS, AnyRecord, RecordDamage
from mtl.storage.rows import Loaded

Rows = dict[tuple[str, str], bytes]
Hook = Callable[[str], None]
"""Called before ("begin") and after ("commit") every transaction takes hold; may raise to fail it or to crash there."""


class FaultyStore:
    """A `RecordStore`. `rows` are those of the process; `crash` leaves the rows that a new process would find.

    Set `hook` to inject failures: a `StorageError` at "begin" has no effect, at "commit" it leaves the save undecided;
    any other exception is the crash itself.
    """

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.generation = 0
        self.mark = 0
        """The highest generation that was saved, as the file beside the database keeps it."""
        self.saves = 0
        self.hook: Hook = lambda _: None
        self.damages: list[RecordDamage] = []
        self._limbo: Rows | None = None

    def load(self) -> Loaded:
        """Everything that was saved, in order of kind and key."""
        if self.generation < self.mark:
            raise OldRecords(f"the records end with transaction {self.generation}, the last was {self.mark}")
        self.mark = self.generation
        unreadable = {(d.kind, d.key) for d in self.damages}
        return Loaded(
            [
                cast(AnyRecord, msgspec.json.decode(value, type=KINDS[kind]))
                for (kind, key), value in sorted(self.rows.items())
                if (kind, key) not in unreadable
            ],
            tuple(self.damages),
        )

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        """Save atomically; raises the exception of the hook."""
        after = dict(self.rows)
        for record in put:
            after[record.kind, record.key] = msgspec.json.encode(record)
        for record in forget:
            after.pop((record.kind, record.key), None)
        self.hook("begin")
        try:
            self.hook("commit")
        except BaseException:
            self._limbo = after
            raise
        self._take(after)
        self.mark = max(self.mark, self.generation)
        touched = {(r.kind, r.key) for r in (*put, *forget)}
        self.damages = [d for d in self.damages if (d.kind, d.key) not in touched]
        self.saves += 1

    def _take(self, rows: Rows) -> None:
        self.rows, self._limbo = rows, None
        self.generation += 1

    def complete(self, kinds: Sequence[str]) -> None:
        """Rows of these kinds no longer count as lost."""
        self.damages = [d for d in self.damages if d.key is not None or d.kind not in kinds]

    def close(self) -> None:
        """Nothing is held open."""

    def crash(self, *, landed: bool) -> None:
        """End the process or the machine; `landed`: whether an undecided save is kept."""
        if landed and self._limbo is not None:
            self._take(self._limbo)
        self._limbo = None
        self.hook = lambda _: None

    def damage(self, kind: str, key: str) -> None:
        """The row of this record does not verify any more."""
        self.damages.append(RecordDamage(kind, key, "its checksum does not fit"))

    def lose(self, kind: str, key: str) -> None:
        """Lose the row of this record; its key becomes unknown."""
        del self.rows[kind, key]
        self.damages.append(RecordDamage(kind, None, "1 of them is missing"))

    def put_back(self, older: FaultyStore) -> None:
        """Replace the rows by an older copy; the generation beside them stays."""
        self.rows, self.generation = dict(older.rows), older.generation

    def copy(self) -> FaultyStore:
        """A copy with the same rows, to inspect the state after a crash."""
        twin = FaultyStore()
        twin.rows = dict(self.rows)
        twin.generation, twin.mark = self.generation, self.mark
        twin.damages = list(self.damages)
        twin._limbo = self._limbo
        return twin


def refuse(full: bool) -> StorageError:
    """The error of SQLite when the disk fails in a transaction."""
    if full:
        return StorageFull("no space left for the broker's records; free some and try again")
    return StorageFailed("disk I/O error")

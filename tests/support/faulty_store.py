"""The broker's records in memory, as SQLite would keep them on a disk that fails and a machine that stops.

A save is one transaction: after a crash all of it is there or nothing. One that failed is not gone for good: its pages
may have reached the disk before the error, so a crash may bring it back, until a later save that succeeds takes its
place in the write-ahead log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from mtl.broker.records import KINDS, AnyRecord
from mtl.errors import StorageError, StorageFailed, StorageFull

Rows = dict[tuple[str, str], bytes]
Hook = Callable[[str], None]
"""Called before ("begin") and after ("commit") every transaction takes hold; may raise to fail it or to crash there."""


class FaultyStore:
    """A `RecordStore`. `rows` are what a process sees; `crash` leaves what a new process would find.

    Set `hook` to inject: a `StorageError` raised at "begin" leaves nothing behind, at "commit" it leaves the save in
    limbo; anything else that is raised is the crash itself.
    """

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.saves = 0
        self.hook: Hook = lambda _: None
        self._limbo: Rows | None = None

    def load(self) -> list[AnyRecord]:
        """Everything that was saved, in order of kind and key."""
        return [
            cast(AnyRecord, msgspec.json.decode(value, type=KINDS[kind]))
            for (kind, _), value in sorted(self.rows.items())
        ]

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        """All of it or nothing; raises what the hook raises."""
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
        self.rows = after
        self._limbo = None
        self.saves += 1

    def close(self) -> None:
        """Nothing is held open."""

    def crash(self, *, landed: bool) -> None:
        """The process or the machine is gone; `landed` decides about a save that was in limbo."""
        if landed and self._limbo is not None:
            self.rows = self._limbo
        self._limbo = None
        self.hook = lambda _: None

    def copy(self) -> FaultyStore:
        """Another one with the same rows, for a look at what a crash would leave."""
        twin = FaultyStore()
        twin.rows = dict(self.rows)
        twin._limbo = self._limbo
        return twin


def refuse(full: bool) -> StorageError:
    """What SQLite says when the disk does not take a transaction."""
    if full:
        return StorageFull("no space left for the broker's records; free some and try again")
    return StorageFailed("disk I/O error")

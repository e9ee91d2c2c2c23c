"""The low-rate records in SQLite: one row each, one transaction per save, synced before it counts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

import msgspec

from mtl.broker.records import KINDS, AnyRecord, SecretRecord, UserRecord
from mtl.errors import Damaged, NewerVersion, StorageError, StorageFailed, StorageFull

T = TypeVar("T", UserRecord, SecretRecord)

VERSION = 3
"""Format of the database and of everything beside it in the data directory.

    1  the first one
    2  records of queues, and of a resource what its queues do with dead letters; what 1 wrote is valid as it is
    3  commits that take the place of what was there; what 2 wrote is valid as it is
"""


class RecordStore(Protocol):
    """Where records are kept; the simulator brings one that can crash."""

    def load(self) -> list[AnyRecord]:
        """Everything that was saved."""

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        """All of it or nothing, durably; raises `StorageError`."""

    def close(self) -> None:
        """Give the file back."""


class SqliteStore:
    """Records in one SQLite file, WAL and synchronous=FULL: a save that returned survives a power cut.

    Another process may change records meanwhile (`mtl user` does): `changed` tells. Only its owner can read the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            Path(path).touch(mode=0o600)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > VERSION:
                self._db.close()
                raise NewerVersion(
                    f"{path} has format {version}, this broker knows up to {VERSION}; use the newer "
                    "version that wrote it"
                )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS record "
                "(kind TEXT, key TEXT, value BLOB, PRIMARY KEY (kind, key)) WITHOUT ROWID"
            )
            self._db.execute(f"PRAGMA user_version={VERSION}")
            self._seen = self._version()
        except OSError as e:
            raise StorageFailed(f"{path}: {e.strerror}") from e
        except sqlite3.Error as e:
            raise self._named(e) from e

    def _version(self) -> int:
        """SQLite's count of what other connections have changed."""
        version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
        return version

    def changed(self) -> bool:
        """Whether somebody else changed a record since this was last asked."""
        try:
            before, self._seen = self._seen, self._version()
        except sqlite3.Error as e:
            raise self._named(e) from e
        return before != self._seen

    def load(self) -> list[AnyRecord]:
        """Everything that was saved; raises `Damaged` for rows that no longer decode."""
        return self._select("ORDER BY kind, key")

    def of(self, kind: type[T]) -> list[T]:
        """The records of one kind; raises `Damaged` for rows that no longer decode."""
        return cast("list[T]", self._select("WHERE kind = ? ORDER BY key", kind.kind))

    def edit(self, kind: type[T], key: str, change: Callable[[T | None], T | None]) -> None:
        """Replace one record by what `change` makes of it (None: there is none), and let nobody in between. What
        `change` raises leaves it as it was.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            found = self._select("WHERE kind = ? AND key = ?", kind.kind, key)
            after = change(cast(T, found[0]) if found else None)
            if after is None:
                self._db.execute("DELETE FROM record WHERE kind = ? AND key = ?", (kind.kind, key))
            else:
                self._db.execute(
                    "INSERT OR REPLACE INTO record VALUES (?, ?, ?)",
                    (kind.kind, key, msgspec.json.encode(after)),
                )
            self._db.execute("COMMIT")
        except sqlite3.Error as e:
            raise self._named(e) from e
        finally:
            self._roll_back()

    def _select(self, which: str, *values: str) -> list[AnyRecord]:
        try:
            rows = self._db.execute(f"SELECT kind, value FROM record {which}", values).fetchall()  # noqa: S608 ours
            return [cast(AnyRecord, msgspec.json.decode(value, type=KINDS[kind])) for kind, value in rows]
        except sqlite3.Error as e:
            raise self._named(e) from e
        except (msgspec.DecodeError, KeyError) as e:
            raise Damaged(
                f"{self._path}: a record does not decode ({e}); restore the file from a copy"
            ) from e

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        """One transaction."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT OR REPLACE INTO record VALUES (?, ?, ?)",
                [(r.kind, r.key, msgspec.json.encode(r)) for r in put],
            )
            self._db.executemany(
                "DELETE FROM record WHERE kind = ? AND key = ?", [(r.kind, r.key) for r in forget]
            )
            self._db.execute("COMMIT")
        except sqlite3.Error as e:
            self._roll_back()
            raise self._named(e) from e

    def _roll_back(self) -> None:
        """Should this fail too, the next save begins with it."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass

    def close(self) -> None:
        """Give the file back."""
        self._db.close()

    def _named(self, e: sqlite3.Error) -> StorageError:
        # Errors that Python's module finds by itself have no code.
        if getattr(e, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return StorageFull(
                f"{self._path}: no space left for the broker's records; free some and try again"
            )
        if not isinstance(e, sqlite3.OperationalError):
            return Damaged(
                f"{self._path}: {e}; restore the file from a copy, the contents beside it are not touched"
            )
        return StorageFailed(f"{self._path}: {e}")

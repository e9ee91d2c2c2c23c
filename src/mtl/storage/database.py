"""The SQLite file of the records: its format, upgrades of older formats, and the project's errors for SQLite's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from mtl.errors import Damaged, NewerVersion, StorageError, StorageFailed, StorageFull
from mtl.log.files import file_limit, file_limit_text
from mtl.storage.records import KINDS, StateRecord
from mtl.storage.rows import Row, checksums, encode_row, total

VERSION = 4
"""Format of the database and of the whole data directory.

    1  the first one
    2  records of queues, and the dead-letter settings of a resource; records of format 1 are valid unchanged
    3  commits that replace former contents; records of format 2 are valid unchanged
    4  checksums in every row, the state of all rows, the file `generation`; a database of format 3 gets them when it is
       opened. Every log has a manifest; logs of format 3 get theirs at the broker's start, then the state gets format 4
"""

WITH_MANIFESTS = 4
"""The first format whose logs have manifests."""

_PAGE = 4096
_WAL_PAGES = 1000
"""SQLite's defaults: octets of a page, and pages of the write-ahead log at which a checkpoint empties it."""

_NEAR = 256 << 10
"""A file that is nearer to the limit of file sizes than this has probably reached it: SQLite does not pass on the
system's reason. A transaction is smaller."""

BUSY_S = 10.0
"""Seconds for which a transaction waits for one of another process, whose sync may take seconds on a slow disk."""

_OLD_TABLE = "CREATE TABLE record (kind TEXT, key TEXT, value BLOB, PRIMARY KEY (kind, key)) WITHOUT ROWID"
_COLUMNS = ("ALTER TABLE record ADD COLUMN named INTEGER", "ALTER TABLE record ADD COLUMN crc INTEGER")

TABLE = _OLD_TABLE.replace("BLOB,", "BLOB, named INTEGER, crc INTEGER,")
_SCHEMA = [("table", "record", 2, TABLE)]
"""The rows of sqlite_master: type, name, root page and statement."""

_SYSTEM = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_AUTH,
}
"""Errors of the system. While a database is opened every other error means that its file is damaged."""


def named(path: str, error: sqlite3.Error, *, opening: bool = False) -> StorageError:
    """The project's error for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)  # errors of Python's own module have no code
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_FULL:
        return StorageFull(f"{path}: no space left for the broker's records; free some and try again")
    limit = file_limit()
    if primary == sqlite3.SQLITE_IOERR and limit is not None and _largest(path) + _NEAR > limit:
        return StorageFailed(
            f"{path}: {error}: {file_limit_text()}; raise the limit, then restart the broker"
        )
    damaged = primary not in {*_SYSTEM, None} if opening else not isinstance(error, sqlite3.OperationalError)
    return Damaged(f"{path}: {error}", file=path) if damaged else StorageFailed(f"{path}: {error}")


def _largest(path: str) -> int:
    """Octets of the larger one of the database and its write-ahead log."""
    places = (Path(path), Path(f"{path}-wal"))
    return max((place.stat().st_size for place in places if place.exists()), default=0)


def connect(uri: str) -> sqlite3.Connection:
    """A connection without implicit transactions; text that is not UTF-8 is not an error, since it may be damaged."""
    db = sqlite3.connect(
        uri, BUSY_S, uri=uri.startswith("file:"), isolation_level=None, check_same_thread=False
    )
    db.text_factory = lambda octets: octets.decode("utf-8", "surrogateescape")
    try:
        db.execute("PRAGMA synchronous=FULL")
        if (limit := file_limit()) is not None:
            # The write-ahead log begins again before it reaches the limit.
            db.execute(f"PRAGMA wal_autocheckpoint={max(1, min(_WAL_PAGES, limit // 2 // _PAGE))}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def open_database(path: str, name: Callable[[], str]) -> sqlite3.Connection:
    """The database at `path`, in the present format and checked as a whole; it is made if it does not exist. `name`
    returns the name of a new one.

    Raises `NewerVersion`, `Damaged`, `StorageFull`, `StorageFailed`.
    """
    db = None
    try:
        Path(path).touch(mode=0o600)
        db = connect(path)
        _open(path, db, name)
    except OSError as error:
        raise StorageFailed(f"{path}: {error.strerror}") from error
    except sqlite3.Error as error:
        if db is not None:
            db.close()
        raise named(path, error, opening=True) from error
    except BaseException:
        if db is not None:
            db.close()
        raise
    return db


def _open(path: str, db: sqlite3.Connection, name: Callable[[], str]) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise NewerVersion(
            f"{path} has format {version}, this broker knows up to {VERSION}; use the newer version that wrote it"
        )
    db.execute("PRAGMA journal_mode=WAL")
    if schema(db) != _SCHEMA:
        _upgrade(path, db, version, name)
    elif version != VERSION:
        raise Damaged(f"{path}: it is marked as format {version}, but has format {VERSION}", file=path)
    check(path, db)


def schema(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    """The database's schema."""
    return db.execute("SELECT type, name, rootpage, sql FROM sqlite_master").fetchall()


def is_current(db: sqlite3.Connection) -> bool:
    """Whether the schema is that of the present format."""
    return schema(db) == _SCHEMA


def check(path: str, db: sqlite3.Connection) -> None:
    """Raises `Damaged` when the file's structure is damaged: SQLite itself only checks the pages that it reads."""
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise Damaged(f"{path}: {found}", file=path)


def _upgrade(path: str, db: sqlite3.Connection, version: int, name: Callable[[], str]) -> None:
    """Convert the database to the present format, in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    present = schema(db)
    if present == _SCHEMA:  # another process has converted it meanwhile
        db.execute("ROLLBACK")
        return
    if not present and version == 0:
        db.execute(_OLD_TABLE)
    elif version == VERSION or [x[1] for x in present] != ["record"]:
        raise Damaged(f"{path}: its tables are not those of the broker's records", file=path)
    for statement in _COLUMNS:
        db.execute(statement)
    totals: dict[str, tuple[int, int]] = {}
    for kind, key, value in db.execute("SELECT kind, key, value FROM record").fetchall():
        octets = value.encode() if isinstance(value, str) else value
        found, crc = checksums(kind, key, octets)
        db.execute(
            "UPDATE record SET value = ?, named = ?, crc = ? WHERE kind = ? AND key = ?",
            (octets, found, crc, kind, key),
        )
        rows, sum_ = totals.get(kind, (0, 0))
        totals[kind] = rows + 1, total([crc], sum_)
    known = {k: totals[k] for k in sorted(totals) if k in KINDS}
    put(db, encode_row(StateRecord(name(), version or VERSION, 1, known)))
    db.execute(f"PRAGMA user_version={VERSION}")
    db.execute("COMMIT")


def put(db: sqlite3.Connection, row: Row) -> None:
    """Write one row."""
    db.execute("INSERT OR REPLACE INTO record (kind, key, value, named, crc) VALUES (?, ?, ?, ?, ?)", row)

"""The SQLite file of the records: its format, and the project's errors for SQLite's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from mtl.errors import Damaged, StorageError, StorageFailed, StorageFull, UnknownFormat
from mtl.log.files import file_limit, file_limit_text
from mtl.storage.records import StateRecord
from mtl.storage.rows import Row, encode_row

VERSION = 4
"""Format of the database and of the whole data directory. Those below it were never released."""

_PAGE = 4096
_WAL_PAGES = 1000
"""SQLite's defaults: octets of a page, and pages of the write-ahead log at which a checkpoint empties it."""

_NEAR = 256 << 10
"""A file that is nearer to the limit of file sizes than this has probably reached it: SQLite does not pass on the
system's reason. A transaction is smaller."""

BUSY_S = 10.0
"""Seconds for which a transaction waits for one of another process, whose sync may take seconds on a slow disk."""

TABLE = (
    "CREATE TABLE record (kind TEXT, key TEXT, value BLOB, named INTEGER, crc INTEGER, PRIMARY KEY (kind, key)) "
    "WITHOUT ROWID"
)
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
    """The database at `path`, checked as a whole; it is made if it does not exist. `name`
    returns the name of a new one.

    Raises `UnknownFormat`, `Damaged`, `StorageFull`, `StorageFailed`.
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
    version, schema = _version(db), _schema(db)
    if version > VERSION or (0 < version < VERSION and schema != _SCHEMA):
        raise UnknownFormat.of(path, version, VERSION)
    db.execute("PRAGMA journal_mode=WAL")
    if not version and not schema:
        _create(db, name)
    if (problem := format_problem(db)) is not None:
        raise Damaged(f"{path}: {problem}", file=path)
    check(path, db)


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _schema(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    return db.execute("SELECT type, name, rootpage, sql FROM sqlite_master").fetchall()


def format_problem(db: sqlite3.Connection) -> str | None:
    """The difference from the format of the records; None if there is none."""
    if _schema(db) != _SCHEMA:
        return "its tables are not those of the broker's records"
    version = _version(db)
    return None if version == VERSION else f"it is marked as format {version}, but has format {VERSION}"


def check(path: str, db: sqlite3.Connection) -> None:
    """Raises `Damaged` when the file's structure is damaged: SQLite itself only checks the pages that it reads."""
    result = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if result != "ok":
        raise Damaged(f"{path}: {result}", file=path)


def _create(db: sqlite3.Connection, name: Callable[[], str]) -> None:
    """Make the table, with the state of no records, in one transaction; another process may have made it meanwhile."""
    db.execute("BEGIN IMMEDIATE")
    if not _schema(db):
        db.execute(TABLE)
        put(db, encode_row(StateRecord(name(), 1)))
        db.execute(f"PRAGMA user_version={VERSION}")
    db.execute("COMMIT")


def put(db: sqlite3.Connection, row: Row) -> None:
    """Write one row."""
    db.execute("INSERT OR REPLACE INTO record (kind, key, value, named, crc) VALUES (?, ?, ?, ?, ?)", row)

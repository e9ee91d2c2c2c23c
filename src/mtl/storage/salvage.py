"""Reads a damaged database as far as possible, and makes a new database of its rows.

    1  the file and its write-ahead log are copied to `lost+found/broker.db-<n>/` and stay there
    2  the rows of the copy are read by ranges, from both ends of each kind, as far as they can be read
    3  the rows that verify become a new database, complete and synced under the name `broker.db.salvaged`
    4  the write-ahead log of `broker.db` is removed, and the new database renamed to `broker.db`

A crash before the end of 3 leaves the database unchanged; after it the next start repeats 4.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from mtl.errors import Damaged, StorageFailed
from mtl.storage.database import TABLE, VERSION, connect, put
from mtl.storage.generation import GenerationFile, GenerationMark
from mtl.storage.records import KINDS, RecordDamage, StateRecord
from mtl.storage.rows import Row, decode_row, encode_row, incomplete, read_rows, state_of
from mtl.storage.sqlite import SqliteStore, too_old

LOST_FOUND = "lost+found"
_PAGE = 4096
_FILES = ("broker.db", "broker.db-wal")
_READY = "broker.db.salvaged"
_WORK = "salvage-"


def open_records(directory: Path, *, accept: bool = False) -> SqliteStore:
    """The records of a data directory; of a damaged file those that can be read, with a note in the store's `notes`.

    Raises `OldRecords`, unless they are accepted; `Damaged` when no record can be read; `StorageFailed`.
    """
    path = directory / "broker.db"
    _finish(directory)
    try:
        return SqliteStore(str(path), accept=accept)
    except Damaged as damage:
        kept = salvage(directory, damage, accept=accept)
        store = SqliteStore(str(path), accept=accept)
        store.notes.insert(
            0, f"{damage}; its readable records are in use, the damaged file is kept in {kept}"
        )
        return store


def salvage(directory: Path, damage: Damaged, *, accept: bool = False) -> Path:
    """Replace a damaged database by a new one. Returns the damaged one's new place. Raises as `open_records` does."""
    try:
        rows = _read_all(directory)
        state = state_of(read_rows(rows))
        rows = [row for row in rows if row[0] != StateRecord.kind]
        mark = _mark(directory)
        if not read_rows(rows).records and not accept:
            raise Damaged(
                f"{damage}. None of its records can be read. Put the newest intact copy of broker.db and "
                "broker.db-wal in its place, or begin without records: `mtl recover DIR --accept-records` rebuilds the "
                "resources from their logs",
                file=damage.file,
            )
        if state is not None and mark is not None and state.generation < mark.generation and not accept:
            raise too_old(str(directory / "broker.db"), f"ends with transaction {state.generation}", mark)
        kept = _copy_files(directory)
        _write(directory, rows, _state(rows, state, mark, accept=accept))
        _finish(directory)
    except OSError as error:
        raise StorageFailed(f"{directory}: salvaging the records failed: {error.strerror}") from error
    return kept


def _mark(directory: Path) -> GenerationMark | None:
    with suppress(Damaged):
        return GenerationFile(directory).read()
    return None


# --- reading ------------------------------------------------------------------------------------------------


def _read_all(directory: Path) -> list[Row]:
    """Every row that can be read from the file, either unchanged or with its first page replaced: that page is the same
    in every such database. Of two different rows with one key neither is returned.
    """
    rows: dict[tuple[str, str], set[Row]] = {}
    for mended in (False, True):
        with tempfile.TemporaryDirectory(dir=directory, prefix=_WORK) as place:
            for name in _FILES:
                with suppress(FileNotFoundError):
                    shutil.copyfile(directory / name, Path(place) / name)
            copy = Path(place) / "broker.db"
            if mended:
                _mend(copy, Path(place) / "template.db")
            with suppress(sqlite3.Error), closing(connect(str(copy))) as db:
                for row in map(_sound, _rows(db)):
                    if row is not None:
                        rows.setdefault((row.kind, row.key), set()).add(row)
    return [versions.pop() for versions in rows.values() if len(versions) == 1]


def _sound(columns: Sequence[Any]) -> Row | None:
    """A row with its right kind and key, or an unchanged damaged row with a known key."""
    record = decode_row(columns)
    if not isinstance(record, RecordDamage):
        return encode_row(record)
    kind, key, value, named, crc = columns
    octets = value if isinstance(value, bytes) else b""
    return (
        Row(kind, key, octets, named, crc if isinstance(crc, int) else 0) if record.key is not None else None
    )


def _mend(copy: Path, template: Path) -> None:
    with closing(connect(str(template))) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(TABLE)
        db.execute(f"PRAGMA user_version={VERSION}")
    page = bytearray(template.read_bytes()[:_PAGE])
    pages = copy.stat().st_size // _PAGE if copy.exists() else 0
    page[28:32] = pages.to_bytes(4, "big")
    with copy.open("r+b") as file:
        file.write(page)


def _rows(db: sqlite3.Connection) -> Iterator[Sequence[Any]]:
    for kind in (None, *KINDS):
        for order in ("ASC", "DESC"):
            which = "" if kind is None else "WHERE kind = ?"
            values = () if kind is None else (kind,)
            with suppress(sqlite3.Error):
                yield from db.execute(
                    f"SELECT kind, key, value, named, crc FROM record {which} "  # noqa: S608 ours
                    f"ORDER BY kind {order}, key {order}",
                    values,
                )


# --- writing ------------------------------------------------------------------------------------------------


def _copy_files(directory: Path) -> Path:
    """A durable copy of the damaged files."""
    lost = directory / LOST_FOUND
    lost.mkdir(mode=0o700, exist_ok=True)
    number = 1
    while (place := lost / f"broker.db-{number}").exists():
        number += 1
    place.mkdir(mode=0o700)
    for name in _FILES:
        with suppress(FileNotFoundError):
            shutil.copyfile(directory / name, place / name)
            (place / name).chmod(0o600)
            _sync(place / name)
    for path in (place, lost, directory):
        _sync(path)
    return place


def _write(directory: Path, rows: Sequence[Row], state: StateRecord) -> None:
    """Write a new database of these rows; when it is complete it gets the name that `_finish` looks for."""
    path = directory / f"{_READY}.new"
    for old in directory.glob(f"{path.name}*"):
        old.unlink()
    path.touch(mode=0o600)
    with closing(connect(str(path))) as db:
        db.execute(TABLE)
        db.execute("BEGIN")
        for row in (*rows, encode_row(state)):
            put(db, row)
        db.execute(f"PRAGMA user_version={VERSION}")
        db.execute("COMMIT")
    _sync(path)
    path.rename(directory / _READY)
    _sync(directory)


def _state(
    rows: Sequence[Row], state: StateRecord | None, mark: GenerationMark | None, *, accept: bool
) -> StateRecord:
    """The state of a new database. A kind is complete when it has all rows that the former state counts."""
    loaded = read_rows(rows)
    lost = dict.fromkeys(
        sorted(KINDS.keys() - {"state"}), "broker.db was damaged, and not all of it can be read"
    )
    if accept:
        lost = {}
    elif state is not None:
        lost = {d.kind: d.reason for d in incomplete(loaded, state, "broker.db") if d.kind is not None}
    names = [mark.database] if mark is not None else []
    names += [state.database] if state is not None else [os.urandom(4).hex()]
    generation = 1 + max(mark.generation if mark else 0, state.generation if state else 0)
    return StateRecord(names[0], generation, dict(loaded.totals), lost)


def _finish(directory: Path) -> None:
    """Rename a salvaged database, if there is one, to `broker.db`, and remove the files of an earlier attempt."""
    for left in directory.glob(f"{_WORK}*"):
        shutil.rmtree(left)
    if not (directory / _READY).exists():
        return
    for name in ("broker.db-wal", "broker.db-shm"):
        (directory / name).unlink(missing_ok=True)
    _sync(directory)
    (directory / _READY).rename(directory / "broker.db")
    _sync(directory)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

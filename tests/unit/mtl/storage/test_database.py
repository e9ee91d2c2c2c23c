"""The file of the records: its structure and its errors."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from mtl.errors import Damaged, MtlError, StorageFailed, StorageFull
from mtl.storage.database import VERSION, format_problem, named, open_database
from tests.support.texts import in_order


def opened(path: Path) -> sqlite3.Connection:
    return open_database(str(path), lambda: "0123abcd")


def test_a_database_is_created_or_opened(tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    for _ in range(2):
        db = opened(path)
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert format_problem(db) is None
        db.close()


@pytest.mark.parametrize(
    "statement", ["DROP TABLE record", "ALTER TABLE record RENAME kind TO sort", "CREATE TABLE more (x)"]
)
def test_a_database_with_other_tables_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "broker.db"
    db = opened(path)
    db.execute(statement)
    db.close()
    with pytest.raises(Damaged, match="not those of the broker's records"):
        opened(path)


def test_a_corrupt_structure_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    db = opened(path)
    db.executemany(
        "INSERT INTO record VALUES (?, ?, x'00', 0, 0)", [("cursor", f"{n:0500}") for n in range(99)]
    )
    db.close()
    octets = bytearray(path.read_bytes())
    octets[36] = 2  # free pages that there are not
    path.write_bytes(octets)
    with pytest.raises(Damaged):
        opened(path)


@pytest.mark.parametrize(
    ("code", "opening", "kind"),
    [
        (sqlite3.SQLITE_FULL, False, StorageFull),
        (sqlite3.SQLITE_IOERR, False, StorageFailed),
        (sqlite3.SQLITE_IOERR | 4 << 8, True, StorageFailed),
        (sqlite3.SQLITE_BUSY, True, StorageFailed),
        (sqlite3.SQLITE_ERROR, False, StorageFailed),
        (sqlite3.SQLITE_ERROR, True, Damaged),
        (sqlite3.SQLITE_CORRUPT, True, Damaged),
        (None, True, StorageFailed),
    ],
)
def test_sqlite_errors_become_named_ones(code: int | None, opening: bool, kind: type[MtlError]) -> None:
    error = sqlite3.OperationalError("x")
    if code is not None:
        error.sqlite_errorcode = code
    assert type(named("p", error, opening=opening)) is kind


def test_corruption_is_damage_at_any_time() -> None:
    assert isinstance(named("p", sqlite3.DatabaseError("malformed")), Damaged)


@pytest.mark.parametrize(("octets", "is_named"), [(1_000_000, True), (100, False)])
def test_a_reached_limit_of_file_sizes_is_named(
    octets: int, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mtl.log.files", "mtl.storage.database"):
        monkeypatch.setattr(f"{module}.file_limit", lambda: 1_000_000)
    (tmp_path / "broker.db-wal").write_bytes(bytes(octets))
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    found = str(named(str(tmp_path / "broker.db"), error))
    assert bool(re.search(in_order("1,000,000 octets", "ulimit -f"), found)) == is_named

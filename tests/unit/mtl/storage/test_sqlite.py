"""The records in SQLite: all or nothing, named errors, newer formats."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtl.errors import Damaged, OldRecords, OptionError, StorageFailed, StorageFull, UnknownFormat
from mtl.storage.database import VERSION
from mtl.storage.records import (
    KINDS,
    AnyRecord,
    ClockRecord,
    CursorRecord,
    StateRecord,
    UserRecord,
    WriterRecord,
)
from mtl.storage.rows import Loaded, encode_row
from mtl.storage.sqlite import SqliteStore
from tests.unit.mtl.storage.test_records import RECORDS

OLD_TABLE = "CREATE TABLE record (kind TEXT, key TEXT, value BLOB, PRIMARY KEY (kind, key)) WITHOUT ROWID"
CLOCK = ClockRecord("boot", 1, 2)
SOME: list[AnyRecord] = [
    WriterRecord("/", "a", 1, 1),
    CursorRecord("/", "g", "r", "i", 5),
    CursorRecord("/", "h", "r", "i", 6),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "broker.db")


@pytest.fixture
def store(path: str) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def records_of(path: str) -> list[object]:
    store = SqliteStore(path)
    try:
        return list(store.load().records)
    finally:
        store.close()


def test_saved_records_are_loaded_in_order(store: SqliteStore, path: str) -> None:
    store.save([x for x in RECORDS if not isinstance(x, StateRecord)], ())
    found = records_of(path)
    saved = [x for x in RECORDS if not isinstance(x, StateRecord)]
    assert sorted(map(repr, found)) == sorted(map(repr, saved))
    kinds = [x.kind for x in found]  # type: ignore[attr-defined]
    assert kinds == sorted(kinds)


def test_put_replaces_and_forget_removes(store: SqliteStore, path: str) -> None:
    store.save((WriterRecord("/", "a", 1, 1), WriterRecord("/", "b", 2, 1)), ())
    store.save((WriterRecord("/", "a", 1, 2),), (WriterRecord("/", "b", 2, 1),))
    assert records_of(path) == [WriterRecord("/", "a", 1, 2)]


def test_a_save_is_durable_when_it_returns(store: SqliteStore) -> None:
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_failed_save_is_atomic(store: SqliteStore, path: str) -> None:
    store._db.execute("CREATE TRIGGER no BEFORE INSERT ON record WHEN NEW.kind = 'writer' BEGIN "
                      "SELECT RAISE(ABORT, 'no'); END")  # fmt: skip
    with pytest.raises(Damaged):
        store.save((CLOCK, WriterRecord("/", "a", 1, 1)), ())
    store._db.execute("DROP TRIGGER no")
    assert records_of(path) == []
    store.save((CLOCK,), ())
    assert len(records_of(path)) == 1


def test_a_newer_format_is_refused_unchanged(path: str) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={VERSION + 1}")
    db.close()
    with pytest.raises(UnknownFormat, match=f"format {VERSION + 1}"):
        SqliteStore(path)


def test_a_file_that_is_not_a_database_is_damage(tmp_path: Path, path: str) -> None:
    Path(path).write_bytes(b"not a database" * 100)
    with pytest.raises(Damaged):
        SqliteStore(path)


def test_a_missing_directory_is_an_error() -> None:
    with pytest.raises(StorageFailed):
        SqliteStore("/nowhere/broker.db")


def test_a_full_disk_is_a_named_error(store: SqliteStore, path: str) -> None:
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages + 1}")
    with pytest.raises(StorageFull):
        store.save([WriterRecord("/", f"{n}" * 50, n, 1) for n in range(1, 500)], ())
    assert records_of(path) == []


class Broken:
    """A connection on which some statements fail, as COMMIT does when the sync of the log fails."""

    def __init__(self, db: sqlite3.Connection, *statements: str) -> None:
        self._db = db
        self._statements = statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *values: Any) -> Any:
        if sql in self._statements:
            raise sqlite3.OperationalError("disk I/O error")
        return self._db.execute(sql, *values)


def test_a_commit_that_fails_is_rolled_back(store: SqliteStore, path: str) -> None:
    db = store._db
    store._db = Broken(db, "COMMIT")  # type: ignore[assignment]
    with pytest.raises(StorageFailed, match="disk I/O error"):
        store.save(SOME, ())
    store._db = db
    assert not db.in_transaction
    store.save((CLOCK,), ())
    assert records_of(path) == [CLOCK]


def test_a_failed_rollback_is_repeated_later(store: SqliteStore, path: str) -> None:
    db = store._db
    store._db = Broken(db, "COMMIT", "ROLLBACK")  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(StorageFailed):
            store.save(SOME, ())
    store._db = db
    with pytest.raises(StorageFailed, match="within a transaction"):
        store.save(SOME, ())
    store.save((CLOCK,), ())
    assert records_of(path) == [CLOCK]


# --- users: changes by another process ----------------------------------------------------------------------


def test_a_change_by_another_process_is_noticed_once(store: SqliteStore, path: str) -> None:
    store.save((WriterRecord("/", "a", 1, 1),), ())
    assert not store.changed(), "our own do not count"
    other = SqliteStore(path)
    other.edit(UserRecord, "me", lambda _: UserRecord("me"))
    other.close()
    assert store.changed()
    assert store.of(UserRecord) == [UserRecord("me")]
    assert not store.changed()


def test_an_edit_replaces_the_stored_record(store: SqliteStore) -> None:
    def grown(found: UserRecord | None) -> UserRecord:
        return UserRecord("me", keys=(*(found.keys if found else ()), "k"))

    for count in (1, 2):
        store.edit(UserRecord, "me", grown)
        assert store.of(UserRecord) == [UserRecord("me", keys=("k",) * count)]
    store.edit(UserRecord, "me", lambda _: None)
    assert store.of(UserRecord) == []


def test_an_edit_that_raises_changes_nothing_and_releases_the_lock(store: SqliteStore, path: str) -> None:
    def no(_: UserRecord | None) -> UserRecord:
        raise OptionError("no")

    with pytest.raises(OptionError):
        store.edit(UserRecord, "me", no)
    other = SqliteStore(path)
    other.edit(UserRecord, "me", lambda _: UserRecord("me"))
    other.close()
    assert store.of(UserRecord) == [UserRecord("me")]


def test_the_file_is_accessible_only_to_its_owner(store: SqliteStore, path: str) -> None:
    """It contains verifiers of passwords."""
    store.save((UserRecord("me"),), ())
    for file in Path(path).parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        SqliteStore(str(tmp_path / "nowhere" / "broker.db"))


# --- rows that changed --------------------------------------------------------------------------------------


def damage(path: str, sql: str, *values: object) -> None:
    """Change the file behind the store's back."""
    db = sqlite3.connect(path)
    db.execute(sql, values)
    db.commit()
    db.close()


def loaded(path: str) -> Loaded:
    store = SqliteStore(path)
    try:
        return store.load()
    finally:
        store.close()


@pytest.fixture
def saved(path: str) -> str:
    store = SqliteStore(path)
    store.save(SOME, ())
    store.close()
    return path


H = CursorRecord("/", "h", "r", "i", 6)


def test_a_changed_value_is_damage_of_its_key_only(saved: str) -> None:
    damage(saved, "UPDATE record SET value = replace(value, ':6', ':7') WHERE key = ?", H.key)
    found = loaded(saved)
    assert list(found.records) == [x for x in sorted(SOME, key=lambda x: (x.kind, x.key)) if x != H]
    assert [(d.kind, d.key) for d in found.damages] == [("cursor", H.key)]


@pytest.mark.parametrize("column", ["named", "crc"])
def test_a_changed_checksum_is_damage(saved: str, column: str) -> None:
    damage(saved, f"UPDATE record SET {column} = {column} + 1 WHERE key = ?", H.key)
    found = loaded(saved)
    assert not [d for d in found.damages if d.key != H.key]
    assert (H in found.records) != bool(found.damages)


@pytest.mark.parametrize(
    ("column", "value"), [("kind", "cussor"), ("key", "['/','h','q']"), ("kind", b"\xff")]
)
def test_a_changed_kind_or_key_is_restored_from_the_value(saved: str, column: str, value: object) -> None:
    damage(saved, f"UPDATE record SET {column} = CAST(? AS TEXT) WHERE key = ?", value, H.key)
    first, second = loaded(saved), loaded(saved)
    for found in (first, second):
        assert H in found.records
        assert not found.damages
    assert first.repaired
    assert not second.repaired


def test_a_missing_row_makes_its_kind_incomplete(saved: str) -> None:
    damage(saved, "DELETE FROM record WHERE key = ?", H.key)
    for _ in range(2):
        found = loaded(saved)
        assert len(found.records) == 2
        assert [(d.kind, d.key, d.reason) for d in found.damages] == [("cursor", None, "1 of 2 are missing")]


def test_an_undecodable_row_counts_as_the_missing_one(saved: str) -> None:
    damage(saved, "UPDATE record SET key = 'x', value = 'y' WHERE key = ?", H.key)
    assert [(d.kind, d.key) for d in loaded(saved).damages] == [("cursor", None)]


def test_a_row_of_an_older_transaction_is_rejected(saved: str) -> None:
    older = encode_row(CursorRecord("/", "h", "r", "i", 1))
    damage(saved, "UPDATE record SET value = ?, crc = ? WHERE key = ?", older.value, older.crc, H.key)
    with pytest.raises(OldRecords, match=r"kind cursor.*mtl recover"):
        loaded(saved)


def test_replacing_a_damaged_row_ends_the_damage(saved: str) -> None:
    damage(saved, "UPDATE record SET crc = crc + 1, value = 'x' WHERE key = ?", H.key)
    store = SqliteStore(saved)
    assert store.load().damages
    store.save((), (H,))
    store.close()
    assert not loaded(saved).damages


def test_a_changed_state_row_is_rebuilt(saved: str) -> None:
    damage(
        saved, "UPDATE record SET value = replace(value, '\"format\":4', '\"format\":3') WHERE kind = 'state'"
    )
    store = SqliteStore(saved)
    assert "written again" in store.notes[0]
    assert not store.load().damages
    store.close()
    assert loaded(saved).records


def test_a_missing_state_row_makes_every_kind_incomplete(saved: str) -> None:
    damage(saved, "DELETE FROM record WHERE kind = 'state'")
    for _ in range(2):
        found = loaded(saved)
        assert len(found.records) == 3
        assert {d.kind for d in found.damages} == set(KINDS) - {"state"}


def test_an_edit_of_a_damaged_record_is_refused(saved: str) -> None:
    damage(saved, "INSERT INTO record VALUES ('user', 'me', 'x', 1, 1)")
    store = SqliteStore(saved)
    with pytest.raises(Damaged, match="remove it and make it again"):
        store.edit(UserRecord, "me", lambda found: found)
    store.close()


# --- older copies -------------------------------------------------------------------------------------------


def copy(path: str, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for file in Path(path).parent.glob("broker.db*"):
        shutil.copy(file, target / file.name)


def test_an_older_copy_is_refused_until_accepted(saved: str, tmp_path: Path) -> None:
    copy(saved, tmp_path / "older")
    store = SqliteStore(saved)
    store.save((WriterRecord("/", "b", 2, 1),), ())
    store.close()
    copy(str(tmp_path / "older" / "broker.db"), tmp_path)
    for _ in range(2):
        with pytest.raises(OldRecords, match=r"transaction 2; the last transaction .* is 3.*mtl recover"):
            SqliteStore(saved)
    SqliteStore(saved, accept=True).close()
    assert len(loaded(saved).records) == 3


def test_a_lost_write_ahead_log_is_detected(store: SqliteStore, path: str, tmp_path: Path) -> None:
    store.save(SOME, ())
    (tmp_path / "older").mkdir()
    for name in ("broker.db", "generation"):  # as after a kill, without broker.db-wal
        shutil.copy(tmp_path / name, tmp_path / "older" / name)
    with pytest.raises(OldRecords):
        SqliteStore(str(tmp_path / "older" / "broker.db"))


def test_a_missing_database_is_not_treated_as_new(saved: str) -> None:
    Path(saved).unlink()
    with pytest.raises(OldRecords, match="is not there"):
        SqliteStore(saved)
    assert not Path(saved).exists()
    SqliteStore(saved, accept=True).close()
    assert loaded(saved).records == []


def test_the_database_of_another_directory_is_refused(saved: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = SqliteStore(str(tmp_path / "other" / "broker.db"))
    for _ in range(9):
        other.save(SOME, ())
    other.close()
    copy(str(tmp_path / "other" / "broker.db"), tmp_path)
    with pytest.raises(OldRecords, match="another data directory"):
        SqliteStore(saved)


def test_a_damaged_generation_file_is_reported_and_rebuilt(saved: str, tmp_path: Path) -> None:
    file = tmp_path / "generation"
    octets = file.read_bytes()
    for at in range(len(octets)):
        file.write_bytes(octets[:at] + bytes([octets[at] ^ 4]) + octets[at + 1 :])
        store = SqliteStore(saved)
        store.close()
        assert "does not verify" in store.notes[0]
        assert file.read_bytes() == octets
    file.unlink()
    store = SqliteStore(saved)
    store.close()
    assert "is missing" in store.notes[0]


def test_saves_of_another_process_count_in_the_generation(saved: str, tmp_path: Path) -> None:
    store = SqliteStore(saved)
    other = SqliteStore(saved)
    other.edit(UserRecord, "me", lambda _: UserRecord("me"))
    store.save((WriterRecord("/", "b", 2, 1),), ())
    other.close()
    assert (tmp_path / "generation").read_text().split()[1] == f"{4:020}"
    store.close()
    assert len(loaded(saved).records) == 5


# --- other formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_format_that_was_never_released_is_refused_unchanged(path: str, version: int) -> None:
    db = sqlite3.connect(path)
    db.execute(OLD_TABLE)
    db.execute(f"PRAGMA user_version={version}")
    db.commit()
    db.close()
    before = Path(path).read_bytes()
    for accept in (False, True):
        with pytest.raises(
            UnknownFormat, match=f"format {version}, from before the first release.*use a new data"
        ):
            SqliteStore(path, accept=accept)
    assert Path(path).read_bytes() == before


def test_a_database_marked_with_another_format_is_damage(saved: str) -> None:
    damage(saved, "PRAGMA user_version=0")
    with pytest.raises(Damaged, match="is marked as format 0"):
        SqliteStore(saved)

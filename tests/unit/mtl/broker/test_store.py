"""The records in SQLite: all or nothing, named errors, newer formats."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtl.broker.records import RunRecord, UserRecord, WriterRecord
from mtl.broker.store import VERSION, SqliteStore
from mtl.errors import Damaged, NewerVersion, OptionError, StorageFailed, StorageFull
from tests.unit.mtl.broker.test_records import RECORDS


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
        return list(store.load())
    finally:
        store.close()


def test_what_was_saved_is_there_in_order(store: SqliteStore, path: str) -> None:
    store.save(RECORDS, ())
    found = records_of(path)
    assert sorted(map(repr, found)) == sorted(map(repr, RECORDS))
    kinds = [x.kind for x in found]  # type: ignore[attr-defined]
    assert kinds == sorted(kinds)


def test_put_replaces_and_forget_removes(store: SqliteStore, path: str) -> None:
    store.save((WriterRecord("/", "a", 1, 1), WriterRecord("/", "b", 2, 1)), ())
    store.save((WriterRecord("/", "a", 1, 2),), (WriterRecord("/", "b", 2, 1),))
    assert records_of(path) == [WriterRecord("/", "a", 1, 2)]


def test_a_save_is_durable_when_it_returns(store: SqliteStore) -> None:
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_save_that_fails_in_the_middle_leaves_nothing(store: SqliteStore, path: str) -> None:
    store._db.execute("CREATE TRIGGER no BEFORE INSERT ON record WHEN NEW.kind = 'writer' BEGIN "
                      "SELECT RAISE(ABORT, 'no'); END")  # fmt: skip
    with pytest.raises(Damaged):
        store.save((RunRecord("boot", clean=True), WriterRecord("/", "a", 1, 1)), ())
    assert records_of(path) == []
    store._db.execute("DROP TRIGGER no")
    store.save((RunRecord("boot", clean=True),), ())
    assert len(records_of(path)) == 1


def test_a_newer_format_is_left_alone(path: str) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={VERSION + 1}")
    db.close()
    with pytest.raises(NewerVersion, match=f"format {VERSION + 1}"):
        SqliteStore(path)


def test_rows_that_do_not_decode(store: SqliteStore) -> None:
    store._db.execute("INSERT INTO record VALUES ('writer', 'x', '{}')")
    with pytest.raises(Damaged, match="does not decode"):
        store.load()
    store._db.execute("UPDATE record SET kind = 'unheard-of'")
    with pytest.raises(Damaged, match="does not decode"):
        store.load()


def test_a_file_that_is_no_database(tmp_path: Path, path: str) -> None:
    Path(path).write_bytes(b"not a database" * 100)
    with pytest.raises(Damaged):
        SqliteStore(path)


def test_a_directory_that_is_not_there() -> None:
    with pytest.raises(StorageFailed):
        SqliteStore("/nowhere/broker.db")


def test_a_full_disk(store: SqliteStore, path: str) -> None:
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

    def execute(self, sql: str) -> Any:
        if sql in self._statements:
            raise sqlite3.OperationalError("disk I/O error")
        return self._db.execute(sql)


def test_a_commit_that_fails_is_rolled_back(store: SqliteStore, path: str) -> None:
    db = store._db
    store._db = Broken(db, "COMMIT")  # type: ignore[assignment]
    with pytest.raises(StorageFailed, match="disk I/O error"):
        store.save(RECORDS, ())
    store._db = db
    assert not db.in_transaction
    store.save((RunRecord("boot", clean=False),), ())
    assert records_of(path) == [RunRecord("boot", clean=False)]


def test_a_rollback_that_fails_too_is_made_up_for(store: SqliteStore, path: str) -> None:
    db = store._db
    store._db = Broken(db, "COMMIT", "ROLLBACK")  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(StorageFailed):
            store.save(RECORDS, ())
    store._db = db
    with pytest.raises(StorageFailed, match="within a transaction"):
        store.save(RECORDS, ())
    store.save((RunRecord("boot", clean=False),), ())
    assert records_of(path) == [RunRecord("boot", clean=False)]


# --- users: what another process changes --------------------------------------------------------------------


def test_a_change_by_somebody_else_is_noticed_once(store: SqliteStore, path: str) -> None:
    store.save((WriterRecord("/", "a", 1, 1),), ())
    assert not store.changed(), "our own do not count"
    other = SqliteStore(path)
    other.edit(UserRecord, "me", lambda _: UserRecord("me"))
    other.close()
    assert store.changed()
    assert store.of(UserRecord) == [UserRecord("me")]
    assert not store.changed()


def test_an_edit_sees_what_is_there_and_replaces_it(store: SqliteStore) -> None:
    def grown(found: UserRecord | None) -> UserRecord:
        return UserRecord("me", keys=(*(found.keys if found else ()), "k"))

    for count in (1, 2):
        store.edit(UserRecord, "me", grown)
        assert store.of(UserRecord) == [UserRecord("me", keys=("k",) * count)]
    store.edit(UserRecord, "me", lambda _: None)
    assert store.of(UserRecord) == []


def test_an_edit_that_raises_changes_nothing_and_lets_others_in(store: SqliteStore, path: str) -> None:
    def no(_: UserRecord | None) -> UserRecord:
        raise OptionError("no")

    with pytest.raises(OptionError):
        store.edit(UserRecord, "me", no)
    other = SqliteStore(path)
    other.edit(UserRecord, "me", lambda _: UserRecord("me"))
    other.close()
    assert store.of(UserRecord) == [UserRecord("me")]


def test_nobody_else_can_read_the_file(store: SqliteStore, path: str) -> None:
    """There are verifiers of passwords in it."""
    store.save((UserRecord("me"),), ())
    for file in Path(path).parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        SqliteStore(str(tmp_path / "nowhere" / "broker.db"))

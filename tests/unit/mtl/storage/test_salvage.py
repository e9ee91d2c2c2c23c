"""A damaged broker.db: readable records are used, wrong values are not, and losses are reported."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from mtl.errors import Damaged, OldRecords, StorageError
from mtl.storage.inspection import inspect_records
from mtl.storage.records import AnyRecord, ApplicationRecord, CursorRecord, StateRecord, WriterRecord
from mtl.storage.salvage import open_records
from mtl.storage.sqlite import SqliteStore
from mtl.storage.unreadable import Unreadable

PAGE = 4096
RECORDS: list[AnyRecord] = [
    *(CursorRecord("/", f"group-{n}", "orders", "i1", n) for n in range(150)),
    *(WriterRecord("/", f"writer-{n}", n, 1) for n in range(60)),
    *(ApplicationRecord("/", f"app-{n}", n, "query", {"orders": (n, 10)}, 0) for n in range(60)),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with many pages, some of them free, as a clean stop leaves it."""
    directory = tmp_path_factory.mktemp("source")
    store = SqliteStore(str(directory / "broker.db"))
    passing = [CursorRecord("/", f"passing-{n}", "orders", "i1", n) for n in range(200)]
    store.save(RECORDS, ())
    store.save(passing, ())
    store.save((), passing)
    store.close()
    return directory


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def flip(path: Path, at: int, bit: int) -> None:
    octets = bytearray(path.read_bytes())
    octets[at] ^= 1 << bit
    path.write_bytes(octets)


def damage_and_records(directory: Path) -> tuple[str, int]:
    """How a start noticed damage ("" if not), and the number of readable records; none may have a wrong value.
    `mtl verify` must notice the same damage.
    """
    findings = inspect_records(directory).findings
    noticed, records = _start(directory)
    assert findings or not noticed, f"a start has found {noticed}, and `mtl verify` nothing"
    return noticed, records


def _start(directory: Path) -> tuple[str, int]:
    try:
        store = open_records(directory)
    except StorageError as error:
        return type(error).__name__, 0
    try:
        loaded = store.load()
    except StorageError as error:
        return type(error).__name__, 0
    finally:
        store.close()
    assert all(record in RECORDS for record in loaded.records)
    unreadable = Unreadable(loaded.damages)
    for record in set(map(repr, RECORDS)) - set(map(repr, loaded.records)):
        lost = next(r for r in RECORDS if repr(r) == record)
        assert unreadable.reason(type(lost), lost.key), f"{lost} is lost without a report"
    noticed = loaded.damages or store.notes or loaded.repaired
    return "noticed" if noticed else "", len(loaded.records)


def test_flipped_bits_never_change_a_record(source: Path, tmp_path: Path) -> None:
    rng = random.Random(29)
    size = (source / "broker.db").stat().st_size
    places = [(rng.randrange(size), rng.randrange(8)) for _ in range(150)]
    places += [(rng.randrange(100), rng.randrange(8)) for _ in range(30)]
    places += [(PAGE + rng.randrange(40), rng.randrange(8)) for _ in range(20)]
    served = 0
    for at, bit in places:
        directory = copied(source, tmp_path / "flipped")
        flip(directory / "broker.db", at, bit)
        noticed, records = damage_and_records(directory)
        if not noticed:
            assert records == len(RECORDS), f"octet {at}, bit {bit}: records are lost without a report"
        served += records > 0
    assert served > len(places) * 3 // 4, "most starts continue with the readable records"


def test_a_lost_page_is_detected(source: Path, tmp_path: Path) -> None:
    size = (source / "broker.db").stat().st_size
    for number in range(size // PAGE):
        directory = copied(source, tmp_path / "lost")
        with (directory / "broker.db").open("r+b") as file:
            file.seek(number * PAGE)
            file.write(bytes(PAGE))
        noticed, records = damage_and_records(directory)
        assert noticed or records == len(RECORDS)


def test_a_lost_first_page_loses_no_records(source: Path, tmp_path: Path) -> None:
    directory = copied(source, tmp_path / "lost")
    with (directory / "broker.db").open("r+b") as file:
        file.write(bytes(PAGE))
    assert damage_and_records(directory) == ("noticed", len(RECORDS))
    assert damage_and_records(directory) == ("", len(RECORDS))
    kept = directory / "lost+found" / "broker.db-1" / "broker.db"
    assert kept.read_bytes()[:PAGE] == bytes(PAGE)


def test_records_behind_a_damaged_page_are_read_from_the_end(source: Path, tmp_path: Path) -> None:
    """The cursors take several pages: a lost one ends the reading in each direction."""
    directory = copied(source, tmp_path / "lost")
    path = directory / "broker.db"
    octets = path.read_bytes()
    page = octets.index(b"group-75") // PAGE
    path.write_bytes(octets[: page * PAGE] + bytes(PAGE) + octets[(page + 1) * PAGE :])
    store = open_records(directory)
    kept = {record.group for record in store.load().records if isinstance(record, CursorRecord)}
    store.close()
    assert {"group-0", "group-99"} <= kept, "the first and the last in the order of their keys"


def test_a_loss_is_reported_until_it_is_accepted(source: Path, tmp_path: Path) -> None:
    directory = copied(source, tmp_path / "lost")
    path = directory / "broker.db"
    flip(path, 2 * PAGE, 3)
    first = damage_and_records(directory)
    assert first[0] == "noticed"
    assert first[1] < len(RECORDS)
    store = SqliteStore(str(path))
    store.save((WriterRecord("/", "writer-1", 1, 1),), ())
    store.close()
    assert damage_and_records(directory)[0] == "noticed"
    open_records(directory, accept=True).close()
    store = open_records(directory)
    assert not store.load().damages
    store.close()


def test_a_database_without_readable_records_is_damage(source: Path, tmp_path: Path) -> None:
    directory = copied(source, tmp_path / "lost")
    (directory / "broker.db").write_bytes(b"not a database" * 1000)
    for _ in range(2):
        with pytest.raises(Damaged, match=r"None of its records.*--accept-records"):
            open_records(directory)
    store = open_records(directory, accept=True)
    assert list(store.load().records) == []
    store.close()


def test_a_damaged_older_copy_is_refused_as_an_older_copy(source: Path, tmp_path: Path) -> None:
    directory = copied(source, tmp_path / "older")
    older = (directory / "broker.db").read_bytes()
    store = SqliteStore(str(directory / "broker.db"))
    store.save((), RECORDS[:1])
    store.close()
    (directory / "broker.db").write_bytes(older)
    flip(directory / "broker.db", 17, 3)
    with pytest.raises(OldRecords):
        open_records(directory)


@pytest.mark.parametrize("name", ["broker.db.salvaged", "salvage-x"])
def test_an_interrupted_salvage_is_repeated(source: Path, tmp_path: Path, name: str) -> None:
    directory = copied(source, tmp_path / "half")
    if name == "salvage-x":
        (directory / name).mkdir()
    else:  # complete, and not in its place yet
        (directory / "broker.db").rename(directory / name)
        flip(directory / name, 0, 0)
        flip(directory / name, 0, 0)
        (directory / "broker.db").write_bytes(b"damaged")
        (directory / "broker.db-wal").write_bytes(b"damaged")
    assert damage_and_records(directory) == ("", len(RECORDS))
    assert not (directory / name).exists()


def test_records_in_the_write_ahead_log_are_salvaged(tmp_path: Path) -> None:
    """After a kill most records may be only there."""
    running = SqliteStore(str(tmp_path / "broker.db"))
    running.save(RECORDS, ())
    directory = tmp_path / "killed"
    directory.mkdir()
    for name in ("broker.db", "broker.db-wal", "generation"):
        shutil.copy(tmp_path / name, directory / name)
    running.close()
    assert damage_and_records(copied(directory, tmp_path / "whole")) == ("", len(RECORDS))
    size = (directory / "broker.db-wal").stat().st_size
    rng = random.Random(30)
    for _ in range(20):
        flipped = copied(directory, tmp_path / "flipped")
        flip(flipped / "broker.db-wal", rng.randrange(size), rng.randrange(8))
        noticed, records = damage_and_records(flipped)
        assert noticed or records == len(RECORDS)


def test_a_new_database_is_not_damaged(tmp_path: Path) -> None:
    open_records(tmp_path).close()
    with sqlite3.connect(tmp_path / "broker.db") as db:
        assert db.execute("SELECT kind FROM record").fetchall() == [(StateRecord.kind,)]
    db.close()

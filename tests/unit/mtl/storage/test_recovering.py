"""`mtl recover`, one action at a time. With brokers and processes: tests/integration/test_recover.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.errors import Damaged, DirectoryInUse, OptionError
from mtl.log.change import LogOptions
from mtl.log.extent import extent
from mtl.log.files import RealDisk
from mtl.storage.api import Append, CreateLog, Draft, OpenLog, Save
from mtl.storage.local import Storage
from mtl.storage.records import (
    AnyRecord,
    ApplicationRecord,
    CursorRecord,
    DroppedRecord,
    PublishRecord,
    ResourceRecord,
    StageRecord,
    encode_owner,
)
from mtl.storage.recovering import Recovery
from mtl.storage.salvage import open_records

RESOURCE = ResourceRecord("/", "a", "i1", "l1")
STAGE = StageRecord("/", "s1", "app", 5, {"a": "i1"}, 0)
CURSOR = CursorRecord("/", "g", "a", "i1", 2)
LAST = ApplicationRecord("/", "app", 5, "", {"a": (3, 1)}, 0)
PUBLISH = PublishRecord("/", "app", 5, ["s1"], [], 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(tmp_path: Path) -> Path:
    """A resource with three contents, a stage with two, and a record of most kinds; as after a clean stop."""
    store = open_records(tmp_path)
    storage = Storage(RealDisk(), str(tmp_path), store, 1 << 20)
    storage.restore()
    storage.perform(Save(1, (RESOURCE, STAGE, CURSOR, LAST)))
    for place, owner, bodies in (
        ("resources/l1", RESOURCE, [b"1", b"2", b"3"]),
        ("stages/s1/0", STAGE, [b"4", b"5"]),
    ):
        storage.perform(CreateLog(2, place, LogOptions(), encode_owner(owner)))
        storage.perform(Append(3, place, [Draft([body], None, ()) for body in bodies], 0))
    storage.close()
    return tmp_path


@pytest.fixture
def recovery(data: Path) -> Iterator[Recovery]:
    with Recovery(data) as recovery:
        yield recovery


def change(data: Path, sql: str) -> None:
    with sqlite3.connect(data / "broker.db") as db:
        db.execute(sql)
    db.close()


def records(data: Path) -> list[AnyRecord]:
    store = open_records(data)
    try:
        loaded = store.load()
        assert not loaded.damages
        return [r for r in loaded.records if not isinstance(r, DroppedRecord)]
    finally:
        store.close()


def lose(data: Path, *kinds: str) -> None:
    """Start and stop a broker without these records: their logs are moved to lost+found."""
    store = open_records(data)
    for record in store.load().records:
        if record.kind in kinds:
            store.forget(record.kind, record.key)
    storage = Storage(RealDisk(), str(data), store, 1 << 20)
    storage.restore()
    storage.close()


def test_recovery_locks_the_directory_and_refuses_others(
    recovery: Recovery, data: Path, tmp_path: Path
) -> None:
    assert recovery.items() == []
    with pytest.raises(DirectoryInUse):
        Recovery(data)
    with pytest.raises(OptionError, match="not a data directory"):
        Recovery(tmp_path / "resources")


def test_restored_logs_have_their_former_records(data: Path) -> None:
    before = records(data)
    lose(data, "resource", "stage")
    with Recovery(data) as recovery:
        assert [x.option for x in recovery.items()] == ["resource-l1", "stage-s1"]
        for name in ("resource-l1", "stage-s1"):
            assert "from the next start" in recovery.restore_log(name, None, None)
        with pytest.raises(OptionError, match="there is no"):
            recovery.restore_log("resource-l1", None, None)
        assert recovery.items() == []
    assert sorted(map(repr, records(data))) == sorted(map(repr, before))
    assert extent(RealDisk(), f"{data}/resources/l1").end == 4


def test_a_log_is_restored_under_another_name_and_virtual_host(data: Path) -> None:
    lose(data, "resource")
    with Recovery(data) as recovery:
        recovery.restore_log("resource-l1", "b", "/other")
    found = [(r.vhost, r.name, r.log) for r in records(data) if isinstance(r, ResourceRecord)]
    assert found == [("/other", "b", "l1")]


def test_a_log_of_unknown_owner_needs_a_name(data: Path) -> None:
    lose(data, "resource", "stage")
    for name in ("resource-l1", "stage-s1/0"):
        (data / "lost+found" / name / "manifest").write_bytes(b"x")
    with Recovery(data) as recovery:
        for name in ("resource-l1", "stage-s1"):
            with pytest.raises(OptionError, match="not known"):
                recovery.restore_log(name, None, None)
        recovery.restore_log("resource-l1", "b", None)
    (found,) = [r for r in records(data) if isinstance(r, ResourceRecord)]
    assert (found.name, found.log != "l1") == ("b", True)
    assert extent(RealDisk(), f"{data}/resources/{found.log}")[:2] == (1, 4)
    assert (data / "resources" / found.log / "manifest.damaged").exists()


def test_manifests_are_rebuilt(data: Path, recovery: Recovery) -> None:
    (data / "resources/l1/manifest").unlink()
    (data / "stages/s1/0/manifest").write_bytes(b"x")
    assert {(x.what, x.option) for x in recovery.items()} == {
        ("resources/l1", "--manifests"),
        ("stages/s1/0", "--manifests"),
    }
    assert len(recovery.manifests()) == 2
    assert recovery.items() == []


def test_undecodable_rows_are_moved_to_lost_and_found(data: Path) -> None:
    change(data, "UPDATE record SET key = 'x', value = 'y' WHERE kind = 'cursor'")
    with Recovery(data) as recovery:
        assert {x.option for x in recovery.items()} == {"--accept-records"}
        assert any("rows that are not records" in x for x in recovery.accept())
        assert [x.what for x in recovery.items()] == ["lost+found/broker.db-rows-1.jsonl"]
    assert CURSOR not in records(data)
    assert "'x'" in (data / "lost+found/broker.db-rows-1.jsonl").read_text()


def test_lost_records_are_restored_from_manifests(data: Path) -> None:
    (data / "broker.db").write_bytes(b"")
    with Recovery(data) as recovery:
        assert [x for x in recovery.accept() if "was created again" in x]
    found = records(data)
    assert RESOURCE in found
    assert STAGE in found


def test_a_damaged_record_is_removed_only_by_name(data: Path, recovery: Recovery) -> None:
    change(data, "UPDATE record SET value = x'00' WHERE kind = 'cursor'")
    with pytest.raises(OptionError, match="not a damaged record"):
        recovery.forget("cursor another")
    assert recovery.forget(f"cursor {CURSOR.key}") == f"cursor {CURSOR.key} is forgotten"
    assert recovery.items() == []


def test_an_interrupted_commit_that_cannot_be_read_is_undone(data: Path) -> None:
    store = open_records(data)
    store.save((PUBLISH,), ())
    store.close()
    change(data, "UPDATE record SET value = x'00' WHERE kind = 'publish'")
    store = open_records(data)
    storage = Storage(RealDisk(), str(data), store, 1 << 20)
    storage.restore()
    stopped = storage.perform(OpenLog(1, "resources/l1", LogOptions(), 1, None, encode_owner(RESOURCE), 0))
    storage.close()
    assert isinstance(stopped, Damaged)
    assert "undoes the commit" in str(stopped)
    with Recovery(data) as recovery:
        recovery.forget(f"publish {PUBLISH.key}")
        assert recovery.items() == []
    assert extent(RealDisk(), f"{data}/resources/l1")[:2] == (1, 3)
    assert not [r for r in records(data) if isinstance(r, ApplicationRecord)]
    assert STAGE in records(data)

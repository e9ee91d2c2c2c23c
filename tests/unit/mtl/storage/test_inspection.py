"""The findings of `mtl verify` in records, and differences between records and logs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mtl.log.files import RealDisk
from mtl.storage.inspection import Finding, compare, inspect_records
from mtl.storage.records import DroppedRecord, ResourceRecord
from mtl.storage.salvage import open_records
from tests.support.texts import in_order
from tests.unit.mtl.storage.test_recovering import CURSOR, STAGE, change, made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made(tmp_path)


def test_intact_records_have_no_findings(data: Path) -> None:
    found = inspect_records(data)
    assert found.findings == compare(data, RealDisk()) == []
    assert CURSOR in found.records


def test_an_empty_directory_has_no_findings(tmp_path: Path) -> None:
    assert inspect_records(tmp_path) == ((), [])


def test_differences_between_records_and_logs_are_findings(data: Path) -> None:
    store = open_records(data)
    store.save((ResourceRecord("/", "a", "i9", "l1", "os"), ResourceRecord("/", "b", "i2", "l2")), (STAGE,))
    store.close()
    assert [x.about for x in compare(data, RealDisk())] == [
        "resources/l1",
        "resources/l1",
        "resources/l2",
        "stages/s1",
    ]
    (about, problem), *_ = compare(data, RealDisk())
    assert about == "resources/l1"
    assert re.search(in_order("log", "i1", "record", "i9"), problem)


def test_a_log_being_removed_is_not_a_finding(data: Path) -> None:
    store = open_records(data)
    store.save((DroppedRecord("stages/s1"),), (STAGE,))
    store.close()
    assert compare(data, RealDisk()) == []


@pytest.mark.parametrize(
    ("damage", "about"),
    [
        ("UPDATE record SET value = x'00' WHERE kind = 'cursor'", f"cursor {CURSOR.key}"),
        ("DELETE FROM record WHERE kind = 'cursor'", "records of kind cursor"),
        ("UPDATE record SET value = x'00' WHERE kind = 'state'", "broker.db"),
        ("PRAGMA user_version=7", "broker.db"),
        ("ALTER TABLE record RENAME TO records", "broker.db"),
    ],
)
def test_damaged_records_are_findings(data: Path, damage: str, about: str) -> None:
    change(data, damage)
    assert about in [x.about for x in inspect_records(data).findings]


def test_missing_files_are_findings(data: Path) -> None:
    (data / "generation").unlink()
    assert inspect_records(data).findings == [Finding("generation", "is missing")]
    open_records(data).close()
    (data / "broker.db").unlink()
    assert inspect_records(data).findings == [Finding("broker.db", "is not there")]

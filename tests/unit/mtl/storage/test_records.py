"""The stored form of every kind of record: JSON, key, and the golden file of its version."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest

from mtl.storage.database import VERSION
from mtl.storage.records import (
    KINDS,
    AnyRecord,
    ApplicationRecord,
    ClockRecord,
    CursorRecord,
    DroppedRecord,
    GrantRecord,
    LetterEntry,
    PasswordRecord,
    PublishEntry,
    PublishRecord,
    QueueRecord,
    ResourceRecord,
    SecretRecord,
    StageRecord,
    StateRecord,
    UserRecord,
    WriterRecord,
    decode_owner,
    encode_owner,
)
from mtl.wire.control import Retention

GOLDEN = Path(__file__).parents[3] / "golden" / "broker" / f"records-v{VERSION}.jsonl"

RECORDS: list[AnyRecord] = [
    ResourceRecord("/", "orders", "i1", "l1"),
    ResourceRecord("/", 'qu"oted', "i2", "l2", "os", Retention(bytes=1, age=2.5, groups=("g",)), 77),
    ResourceRecord("/", "mail", "i3", "l3", dead_letter="bounced", max_deliveries=3),
    ResourceRecord("/", "theirs", "i4", "l4", owner="etl"),
    CursorRecord("/", "group", "orders", "i1", 12, 3, "driver"),
    CursorRecord("/", "later", "orders", "i1", 12, 3, "driver", "2.0a1b2c3d"),
    CursorRecord("/", "theirs", "orders", "i1", 12, owner="etl"),
    QueueRecord("/", "orders", "default", "i1", 1 << 61, 5, 1_005),
    QueueRecord("/", "orders", "later", "i1", 78, 5, 1_005, end=9, log_epoch="2.0a1b2c3d"),
    QueueRecord("/", "orders", "theirs", "i1", 79, 5, 1_005, owner="etl"),
    QueueRecord(
        "/",
        "orders",
        "audit",
        "i1",
        77,
        5,
        1_005,
        [(7, 9), (12, 13)],
        [(6, 2), (9, 1)],
        [LetterEntry(10, 3, "rejected", 1), LetterEntry(11, 4, "deliveries", 10)],
        4,
    ),
    WriterRecord("/", "writer", 1 << 62, 4, "holder"),
    WriterRecord("/", "etl.writer", 7, 1, "holder", "etl"),
    StageRecord("/", "s1", "app", 5, {"orders": "i1"}, 1_700_000_000_000_000, 1_700_000_000_000_001),
    StageRecord("/", "s2", "app", 5, {"orders": "i1"}, 1, 2, {"orders": 10}),
    StageRecord("/", "s3", "etl.app", 5, {"orders": "i1"}, 1, owner="etl"),
    ApplicationRecord("/", "app", 5, "query", {"orders": (1, 10)}, 1_700_000_000_000_000, 2),
    ApplicationRecord("/", "etl.app", 5, "", {"orders": (1, 10)}, 1, digest={"rows": "10"}, owner="etl"),
    PublishRecord(
        "/", "app", 5, ["s1"], [PublishEntry("orders", "i1", 1, 10, ["stages/s1/0"])], 1_700_000_000_000_000
    ),
    PublishRecord("/", "overwrites", 1, [], [PublishEntry("orders", "i1", 11, 0, [], truncate=True)], 7),
    UserRecord(
        "etl",
        PasswordRecord(b"salt", 4096, b"stored", b"server"),
        ("k" * 40,),
        (GrantRecord("/", "read", "orders.*"),),
    ),
    UserRecord("anonymous"),
    SecretRecord(b"random"),
    ClockRecord(
        "boot", 7_000_000, 1_700_000_000_000_000, [(1_600_000_000_000_000, 1_600_000_093_600_000)], 5
    ),
    DroppedRecord("resources/l0"),
    StateRecord("0123abcd", 77, {"cursor": (1, 4_000_000_000)}, {"queue": "1 of 3 are missing"}),
]


def line(record: AnyRecord) -> str:
    return f"{record.kind} {record.key} {msgspec.json.encode(record).decode()}"


def test_records_are_encoded_as_in_the_golden_file() -> None:
    """A change of this file is a change of the format: it needs a new version of the database (store.VERSION)."""
    assert [line(x) for x in RECORDS] == GOLDEN.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("record", [x for x in RECORDS if isinstance(x, ResourceRecord | StageRecord)])
def test_an_encoded_owner_is_decoded_to_its_record(record: ResourceRecord | StageRecord) -> None:
    """Except the members that change with the log."""
    owner = decode_owner(encode_owner(record))
    assert (owner.kind, owner.key) == (record.kind, record.key)
    left_out = {"earliest": 1} if isinstance(record, ResourceRecord) else {"sealed_us": 0, "contents": {}}
    assert owner == msgspec.structs.replace(record, **left_out)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.kind)
def test_an_encoded_record_is_decoded(record: AnyRecord) -> None:
    again = cast(AnyRecord, msgspec.json.decode(msgspec.json.encode(record), type=KINDS[record.kind]))
    assert (again, again.key) == (record, record.key)


def test_verifiers_are_hidden_in_repr() -> None:
    printed = repr(RECORDS)
    assert not [x for x in ("stored", "server", "random") if repr(x.encode()) in printed]


def test_keys_of_different_records_differ() -> None:
    pairs = [("a", "b,c"), ("a,b", "c"), ('a"', '"b'), ("", "ab")]
    assert len({ResourceRecord(v, n, "", "").key for v, n in pairs}) == len(pairs)
    assert len({x.key for x in RECORDS if isinstance(x, ResourceRecord)}) == 4
    assert len({x.key for x in RECORDS if isinstance(x, QueueRecord)}) == 4


def test_every_kind_of_record_is_tested() -> None:
    assert set(KINDS) == {x.kind for x in RECORDS}

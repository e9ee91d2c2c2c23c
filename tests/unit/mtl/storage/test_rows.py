"""Rows and their checksums: every flipped bit is detected, and no other record is returned."""

from __future__ import annotations

import pytest

from mtl.errors import OldRecords
from mtl.storage.records import AnyRecord, CursorRecord, RecordDamage, StateRecord, WriterRecord
from mtl.storage.rows import (
    Loaded,
    checksums,
    decode_row,
    encode_row,
    incomplete,
    read_rows,
    total,
)
from tests.unit.mtl.storage.test_records import RECORDS


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.kind)
def test_an_encoded_row_is_decoded(record: AnyRecord) -> None:
    assert decode_row(encode_row(record)) == record


def flips(octets: bytes) -> list[bytes]:
    return [
        octets[:at] + bytes([octets[at] ^ 1 << bit]) + octets[at + 1 :]
        for at in range(len(octets))
        for bit in range(8)
    ]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.kind)
def test_a_flipped_bit_never_gives_another_record(record: AnyRecord) -> None:
    row = encode_row(record)
    known = RecordDamage(record.kind, record.key, "its checksum does not fit")
    for value in flips(row.value):
        assert decode_row(row._replace(value=value)) == known
    for octets in flips(row.kind.encode()):
        assert decode_row(row._replace(kind=octets.decode("utf-8", "surrogateescape"))) == record
    for octets in flips(row.key.encode()):
        assert decode_row(row._replace(key=octets.decode("utf-8", "surrogateescape"))) == record
    for bit in range(32):
        assert decode_row(row._replace(crc=row.crc ^ 1 << bit)) == known
        assert decode_row(row._replace(named=row.named ^ 1 << bit)) == record


def test_a_row_of_wrong_types_is_damage_without_key() -> None:
    assert decode_row((None, b"x", 1.5, None, "y")) == RecordDamage(
        None, None, "the kind or key of a row is not a text"
    )
    assert decode_row(("cursor", "x", 7, None, None)).kind is None


def test_a_row_of_a_later_version_is_damage() -> None:
    row = encode_row(WriterRecord("/", "a", 1, 1))._replace(value=b"{}")
    row = row._replace(crc=checksums(row.kind, row.key, row.value)[1])
    assert decode_row(row) == RecordDamage("writer", row.key, "it verifies, but this version cannot read it")


A, B = CursorRecord("/", "a", "r", "i", 1), CursorRecord("/", "b", "r", "i", 1)


def state(*records: AnyRecord) -> StateRecord:
    return StateRecord("db", 1, dict(read_rows([encode_row(r) for r in records]).totals))


def read(*records: AnyRecord) -> Loaded:
    return read_rows([encode_row(r) for r in records])


def test_missing_and_surplus_rows_are_damage() -> None:
    assert incomplete(read(A, B), state(A, B), "") == []
    assert incomplete(read(A), state(A, B), "") == [RecordDamage("cursor", None, "1 of 2 are missing")]
    for found in (read(A, B), read(B)):
        with pytest.raises(OldRecords):
            incomplete(found, state(A), "")


def test_a_kind_known_as_incomplete_stays_incomplete() -> None:
    known = StateRecord("db", 1, {}, {"queue": "lost"})
    assert incomplete(read(), known, "") == [RecordDamage("queue", None, "lost")]


def test_sums_of_checksums_can_be_added_and_subtracted() -> None:
    assert total([5, 7], 1) == 13
    assert total([-7], total([7])) == 0
    assert total([-1]) >= 0


def test_a_damage_is_described_by_kind_key_and_reason() -> None:
    assert str(RecordDamage("cursor", "k", "why")) == "record cursor k: why"
    assert str(RecordDamage("cursor", None, "why")) == "records of kind cursor: why"
    assert str(RecordDamage(None, None, "why")) == "records: why"

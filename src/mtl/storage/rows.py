"""Records as rows of the database, with checksums that detect damaged rows.

A row has two checksums (CRC-32C): of its kind and key, and of its kind, key and value. So the key of a damaged value is
known, and a damaged kind or key is restored from the value, which has the fields of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import google_crc32c
import msgspec

from mtl.errors import OldRecords
from mtl.storage.records import DECODERS, KINDS, AnyRecord, RecordDamage, StateRecord

_SUM_MASK = (1 << 63) - 1
"""Sums of checksums are kept modulo 2**63."""


class Row(NamedTuple):
    """The columns of the table `record`."""

    kind: str
    key: str
    value: bytes
    named: int
    """CRC-32C of kind and key."""
    crc: int
    """CRC-32C of kind, key and value."""


class Loaded(NamedTuple):
    """The result of reading the records: those that verify, and the damages of the others. Those in `repaired` have a
    row with a damaged kind or key, which the value shows. `totals` are per kind the number of rows and the sum of their
    checksums, without the state's own row.
    """

    records: Sequence[AnyRecord]
    damages: Sequence[RecordDamage] = ()
    repaired: Sequence[tuple[AnyRecord, tuple[str, str]]] = ()
    totals: Mapping[str, tuple[int, int]] = MappingProxyType({})


def encode_row(record: AnyRecord) -> Row:
    """The row of a record."""
    value = msgspec.json.encode(record)
    return Row(record.kind, record.key, value, *checksums(record.kind, record.key, value))


def decode_row(columns: Iterable[Any]) -> AnyRecord | RecordDamage:
    """The record of a row that verifies; otherwise the damage."""
    kind, key, value, named, crc = columns
    if not (isinstance(kind, str) and isinstance(key, str)):
        return RecordDamage(None, None, "the kind or key of a row is not a text")
    octets = value if isinstance(value, bytes) else b""
    sums = checksums(kind, key, octets)
    if sums == (named, crc) and kind in KINDS:
        record = decode_value(kind, octets)
        if record is not None and record.key == key:
            return record
        return RecordDamage(kind, key, "it verifies, but this version cannot read it")
    for candidate in dict.fromkeys((kind, *KINDS)):
        record = decode_value(candidate, octets)
        if record is not None and checksums(candidate, record.key, octets)[1] == crc:
            return record
    if sums[0] == named and kind in KINDS:
        return RecordDamage(kind, key, "its checksum does not fit")
    return RecordDamage(None, None, f"the checksums of row {kind!r} {key!r} do not fit")


def read_rows(rows: Iterable[Sequence[Any]]) -> Loaded:
    """All records of these rows."""
    records, damages, repaired = [], [], []
    totals: dict[str, tuple[int, int]] = {}
    for row in rows:
        record = decode_row(row)
        if isinstance(record, RecordDamage):
            damages.append(record)
        else:
            records.append(record)
            if (record.kind, record.key) != row[:2]:
                repaired.append((record, (row[0], row[1])))
        if record.kind is not None and record.kind != StateRecord.kind:
            count, crcs = totals.get(record.kind, (0, 0))
            totals[record.kind] = count + 1, total([row[4] if isinstance(row[4], int) else 0], crcs)
    return Loaded(records, damages, repaired, totals)


def incomplete(loaded: Loaded, state: StateRecord, path: str) -> list[RecordDamage]:
    """The kinds of which records are missing. Raises `OldRecords` for a kind whose rows verify but do not match the
    totals in the state.
    """
    damages = []
    for kind in sorted({*state.totals, *loaded.totals}):
        (wanted, sum_), (count, added) = state.totals.get(kind, (0, 0)), loaded.totals.get(kind, (0, 0))
        damaged = any(d.kind == kind for d in loaded.damages)
        if kind in state.incomplete:
            damages.append(RecordDamage(kind, None, state.incomplete[kind]))
        elif count < wanted:
            damages.append(RecordDamage(kind, None, f"{wanted - count} of {wanted} are missing"))
        elif count > wanted or (sum_ != added and not damaged):
            raise OldRecords(
                f"{path}: records of kind {kind} are older than the transaction that was last written to it. "
                f"{OldRecords.WAYS}"
            )
    return damages + [
        RecordDamage(k, None, why) for k, why in state.incomplete.items() if k not in state.totals
    ]


def total(crcs: Iterable[int], start: int = 0) -> int:
    """The sum of checksums, by which sets of rows are compared."""
    return (start + sum(crcs)) & _SUM_MASK


def state_of(loaded: Loaded) -> StateRecord | None:
    """The state among these records."""
    return next((r for r in loaded.records if isinstance(r, StateRecord)), None)


def decode_value(kind: str, value: bytes) -> AnyRecord | None:
    """The record of a kind and its JSON, without any checksum; None when it cannot be decoded."""
    if kind not in KINDS:
        return None
    try:
        return cast(AnyRecord, DECODERS[kind].decode(value))
    except (msgspec.DecodeError, ValueError):
        return None


def checksums(kind: str, key: str, value: bytes) -> tuple[int, int]:
    """CRC-32C of kind and key, and of all three."""
    named = google_crc32c.value(f"{kind}\0{key}\0".encode("utf-8", "surrogateescape"))
    return named, google_crc32c.extend(named, value)

"""Converts the properties of many contents at once: field tables to the column map<string,string>, and back.

Arrow does the work per row; Python handles each distinct table, and each distinct pair of a name and a value, once.
Values of a map are text. Values of field tables have types (RFC 11); a reader converts them to text (`mtl.wire.text`).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mtl.errors import FieldError
from mtl.limits import MAX_TABLE
from mtl.wire.fields import decode_table, encode_properties
from mtl.wire.text import text

MAP = pa.map_(pa.string(), pa.string())
"""Spark's map<string,string>."""

_PAIRS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]))

TIMESTAMP = "timestamp"
"""The property with a row's timestamp: text, ISO 8601 in UTC with µs, since a time field has only whole seconds."""

_TIMESTAMP_LENGTH = len("2026-01-31T12:00:00.000000Z")


# --- reading ------------------------------------------------------------------------------------------------


def to_maps(tables: Any) -> Any:
    """The maps of encoded field tables (binary; null means no properties, and becomes an empty map)."""
    encoded = tables.dictionary_encode()
    distinct = [[], *(_texts(table) for table in encoded.dictionary.to_pylist())]
    indices = pc.add(pc.fill_null(encoded.indices, -1), 1)
    return pa.array(distinct, MAP).take(indices)


def _texts(table: bytes) -> list[tuple[str, str | None]]:
    return [(name, text(value)) for name, value in decode_table(table).items()]


# --- writing ------------------------------------------------------------------------------------------------


def to_tables(count: int, maps: Any | None, times: Any | None) -> Any:
    """Encoded field tables (binary; null means no entries) of `count` rows, from their maps and timestamps, if given.

    A timestamp replaces a property of that name. FieldError for an invalid name of a property, and for a table above
    MAX_TABLE.
    """
    columns = []
    if maps is not None:
        columns.append(_map_entries(maps, without=None if times is None else TIMESTAMP))
    if times is not None:
        columns.append(_time_entries(times))
    if not columns:
        return pa.nulls(count, pa.binary())
    entries = pc.binary_join_element_wise(*columns, b"") if len(columns) > 1 else columns[0]
    encoded = entries.dictionary_encode()
    tables = pa.array([_table(entry) for entry in encoded.dictionary.to_pylist()], pa.binary())
    return tables.take(encoded.indices)


def _table(entries: bytes) -> bytes | None:
    if len(entries) + 4 > MAX_TABLE:
        raise FieldError(
            f"properties of {len(entries) + 4} octets, more than {MAX_TABLE}; put large values into the body"
        )
    return len(entries).to_bytes(4, "big") + entries if entries else None


def _map_entries(maps: Any, *, without: str | None) -> Any:
    """The encoded entries of each map, joined, except the name `without`. A null map has none."""
    lists = maps.cast(_PAIRS)  # Arrow can flatten and measure lists, but not maps
    keys, values = lists.flatten().flatten()
    keys, values = keys.dictionary_encode(), values.dictionary_encode()
    places = len(values.dictionary) + 1
    pairs = pc.add(
        pc.multiply(keys.indices.cast(pa.int64()), places),
        pc.add(pc.fill_null(values.indices.cast(pa.int64()), -1), 1),
    ).dictionary_encode()
    names, texts = keys.dictionary.to_pylist(), [None, *values.dictionary.to_pylist()]
    distinct = [
        _entry(names[pair // places], texts[pair % places], without) for pair in pairs.dictionary.to_pylist()
    ]
    entries = pa.array(distinct, pa.binary()).take(pairs.indices)
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.concat_arrays([pa.array([0], lengths.type), pc.cumulative_sum(lengths)])
    return pc.binary_join(pa.ListArray.from_arrays(offsets, entries), b"")


def _entry(name: str, value: str | None, without: str | None) -> bytes:
    return b"" if name == without else encode_properties({name: value})[4:]


def _time_entries(times: Any) -> Any:
    """The encoded entry `timestamp` of each time (UTC, µs); no octets for a null."""
    written = pc.strftime(times.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ")
    lengths = pc.binary_length(written)
    if pc.any(pc.not_equal(lengths, _TIMESTAMP_LENGTH)).as_py():
        raise FieldError("the column 'timestamp' has a time outside the years 0 to 9999 in UTC")
    head = encode_properties({TIMESTAMP: "0" * _TIMESTAMP_LENGTH})[4:-_TIMESTAMP_LENGTH]
    return pc.fill_null(pc.binary_join_element_wise(head, written.cast(pa.binary()), b""), b"")

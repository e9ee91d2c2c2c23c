"""Decoders of typed bodies. The types of the schema are a part of the input: a line of octets, and then the body.

The expected rows come from decoders that share no code with the connector: Python's json, msgspec without types, and
Arrow's values as Python objects. A body that is not bad has exactly the numbers that these find.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import types

from pyspark_mtl.limits import MAX_BODY_OCTETS
from pyspark_mtl.rows.bodies.decoding import decoder

_LEAVES = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal128(38, 18), pa.decimal128(38, 38)),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")),
)
_KEYS = (pa.string(), pa.int8(), pa.int64())
_LIST, _STRUCT, _MAP = b"lsm"
_COLUMNS = "abc"


def leaf(kind: Any) -> bytes:
    """A leaf type as an octet of the schema's line."""
    return bytes([ord("A") + _LEAVES.index(kind)])


def schema_of(line: bytes) -> Any:
    """The schema that any line describes: up to three columns, nested at most four times."""
    octets = iter(line[:16])
    fields = []
    for name in _COLUMNS:
        kind = _kind(octets, 4)
        if kind is not None:
            fields.append((name, kind))
    return pa.schema(fields or [("a", pa.int64())])


def _kind(octets: Iterator[int], depth: int) -> Any:
    octet = next(octets, None)
    if octet is None:
        return None
    if depth > 0 and octet in (_LIST, _STRUCT, _MAP):
        inner = _kind(octets, depth - 1) or pa.int64()
        if octet == _LIST:
            return pa.list_(pa.field("element", inner))
        if octet == _MAP:
            return pa.map_(_KEYS[next(octets, 0) % len(_KEYS)], inner)
        return pa.struct([("a", inner), ("b", _kind(octets, depth - 1) or pa.string())])
    return _LEAVES[(octet - ord("A")) % len(_LEAVES)]


def run(name: str, expected: Callable[[bytes], list[Any] | None]) -> Callable[[bytes], None]:
    """The target of a format; `expected` makes a body's rows of Python values, or None where it cannot."""

    def target(data: bytes) -> None:
        line, _, body = data.partition(b"\n")
        schema = pa.schema([("a", pa.string())]) if name == "text" else schema_of(line)
        decode = decoder(name, schema)
        pool = pa.default_memory_pool()
        before, peak = pool.bytes_allocated(), pool.max_memory()
        found = decode(pa.array([body, body], pa.binary()))
        most = max(peak, before + 6 * MAX_BODY_OCTETS)
        assert pool.max_memory() <= most, f"{len(data)} octets made Arrow allocate {pool.max_memory()}"
        found.rows.validate(full=True)
        assert found.rows.schema == schema
        assert found.taken is not None or found.rows.num_rows == 2
        if found.bad:
            assert all(found.bad.values())
            assert all(column.null_count == len(column) for column in found.rows.columns)
            return
        rows = expected(body)
        if rows is not None and found.taken in (None, 2):
            assert found.rows.num_rows == 2 * len(rows)
            for field, column in zip(schema, found.rows.columns, strict=True):
                for value, row in zip(_values(column), rows * 2, strict=True):
                    _check(value, row.get(field.name), field.type)

    return target


def _values(column: Any) -> list[Any]:
    """The values of a column; times and dates as numbers, since Python's have fewer years."""
    return _numeric(column).to_pylist()  # type: ignore[no-any-return]


def _numeric(column: Any) -> Any:
    return column.cast(_numbers(column.type)) if _numbers(column.type) != column.type else column


def _numbers(kind: Any) -> Any:
    if types.is_timestamp(kind):
        return pa.int64()
    if types.is_date32(kind):
        return pa.int32()
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([kind.field(at).with_type(_numbers(kind.field(at).type)) for at in range(2)])
    if types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_numbers(kind.item_type)))
    return kind


def _check(found: Any, expected: Any, kind: Any) -> None:
    if found is None or expected is None:
        assert found is expected, f"{expected!r} became {found!r}"
    elif types.is_list(kind):
        for one, other in zip(found, expected, strict=True):
            _check(one, other, kind.value_type)
    elif types.is_struct(kind):
        for name, value in found.items():
            _check(value, expected.get(name), kind.field(name).type)
    elif types.is_map(kind):
        pairs = list(expected.items()) if isinstance(expected, dict) else expected
        for (_, one), (_, other) in zip(found, pairs, strict=True):
            _check(one, other, kind.item_type)
    elif types.is_integer(kind) or types.is_decimal(kind):
        assert Fraction(found) == _fraction(expected), f"{expected!r} became {found!r}"
    elif types.is_boolean(kind):
        assert found is expected
    elif types.is_floating(kind):
        _check_float(found, expected, kind)
    elif types.is_string(kind) and isinstance(expected, str):
        assert found == expected


def _fraction(value: Any) -> Fraction:
    if isinstance(value, float):
        return Fraction(repr(value)) if not value.is_integer() else Fraction(value)
    return Fraction(Decimal(value) if isinstance(value, str) else value)


def _check_float(found: float, expected: Any, kind: Any) -> None:
    number = float(expected)
    if math.isnan(number):
        assert math.isnan(found)
    elif math.isinf(number):
        assert found == number
    else:
        rounded = struct.unpack("f", struct.pack("f", number))[0] if types.is_float32(kind) else number
        assert math.isclose(found, rounded, rel_tol=1e-6, abs_tol=1e-37), f"{expected!r} became {found!r}"


# --- what is expected ---------------------------------------------------------------------------------------


def of_text(body: bytes) -> list[Any] | None:
    return [{"a": body.decode()}]


def of_json(body: bytes) -> list[Any] | None:
    try:
        return [json.loads(body, parse_float=Decimal)]
    except (ValueError, ArithmeticError, RecursionError):
        return None  # msgspec limits other things, such as the digits of ignored numbers


def of_msgpack(body: bytes) -> list[Any] | None:
    try:
        value = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None  # a name of an ignored map that is no key of a dict
    return [value]


def of_arrow(body: bytes) -> list[Any] | None:
    try:
        with pa.ipc.open_stream(body) as stream:
            return [row for batch in stream for row in _plain(batch)]
    except (pa.ArrowException, ValueError, OverflowError, ArithmeticError, KeyError, OSError, EOFError):
        return None  # a column that is not read, or a time outside Python's years


def _plain(batch: Any) -> list[Any]:
    columns = [batch.schema.get_field_index(name) for name in _COLUMNS]
    batch = batch.select([at for at in columns if at >= 0])
    if any(types.is_temporal(field.type) or _is_nested_time(field.type) for field in batch.schema):
        raise ValueError("times are compared by the unit tests")
    found: list[Any] = batch.to_pylist()
    return found


def _is_nested_time(kind: Any) -> bool:
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return types.is_temporal(kind) or any(map(_is_nested_time, inner))


# --- seeds --------------------------------------------------------------------------------------------------


def _stream(**columns: Any) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _decimal(kind: Any) -> Any:
    """One value, with any scale, which pyarrow itself would not write."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(b"\1" + bytes(kind.byte_width - 1))])


_PRICE, _EXACT = leaf(pa.decimal128(10, 2)), leaf(pa.decimal128(38, 18))
_LONG, _TEXT, _FLOAT = leaf(pa.int64()), leaf(pa.string()), leaf(pa.float32())
_TIME, _LOCAL, _DAY = leaf(pa.timestamp("us", "UTC")), leaf(pa.timestamp("us")), leaf(pa.date32())

TEXTS = (b"\n", b"\none", "\nzwölf".encode(), b"\n\xff")

_NUMBERS = ("1e-5000000", "0e-5000000", "1e-77", "1e-39", "1e5000000", "1.50", "0." + "0" * 60, '"NaN"')
JSONS = (
    *(line + b'\n{"a": %s, "b": 1}' % text.encode() for text in _NUMBERS for line in (_PRICE, _EXACT)),
    b"l" + _PRICE + b'\n{"a": [1e-5000000, null]}',
    b"s" + _PRICE + _FLOAT + b'\n{"a": {"a": 1e-78, "b": 1e39}}',
    b"m" + _EXACT + b'\0\n{"a": {"k": 1e-90, "z": null}}',
    _LONG + _TEXT + _FLOAT + b'\n{"a": -9223372036854775808, "b": "x", "c": 0.1}',
    _TIME
    + _LOCAL
    + _DAY
    + b'\n{"a": "0001-01-01T00:00:00+23:59", "b": "9999-12-31T23:59:59", "c": "2026-01-31"}',
)
JSON_TOKENS = (b"e-5000000", b"e+308", b"null", b'"a"', b'"b"', b"1e-77", b"0.00", b'"9999-12-31T23:59:59Z"')

_VALUES: tuple[tuple[bytes, Any], ...] = (
    (_PRICE, "1e-5000000"),
    (_PRICE, 0.1),
    (_EXACT, 1e-90),
    (_EXACT, "-0e-99"),
    (b"l" + _PRICE, ["1e-78", None]),
    (b"s" + _FLOAT + _LONG, {"a": 1e300, "b": 1 << 62}),
    (b"m" + _PRICE + b"\2", {1: "5"}),
    (_TIME, datetime(9999, 12, 31, 23, 59, 59).astimezone()),
    (_DAY, date(2026, 1, 31)),
)
MSGPACKS = tuple(line + b"\n" + msgspec.msgpack.encode({"a": value}) for line, value in _VALUES)

_SCALES = (0, 2, 38, 39, -1, -77, 5_000_000, -(1 << 31))
ARROWS = (
    *(
        line + b"\n" + _stream(a=_decimal(kind(digits, scale)))
        for kind, digits in ((pa.decimal128, 38), (pa.decimal256, 76))
        for scale in _SCALES
        for line in (_PRICE, _LONG, _TEXT)
    ),
    _PRICE + b"\n" + _stream(a=["1e-5000000"]),
    _PRICE + b"\n" + _stream(a=pa.array(["1e-5000000"]).dictionary_encode()),
    _TEXT + _LONG + b"\n" + _stream(a=pa.array(["x", None, "x"]).dictionary_encode(), b=[1.0, 2.0, None]),
    b"l" + _PRICE + b"\n" + _stream(a=pa.array([[1], None], pa.large_list(pa.decimal64(5, 2)))),
    b"s" + _FLOAT + _LONG + b"\n" + _stream(a=[{"a": 1e300, "b": 5}]),
    b"m" + _LONG + b"\0\n" + _stream(a=pa.array([[("k", 1)]], pa.map_(pa.string_view(), pa.uint64()))),
    _TIME
    + _LOCAL
    + _DAY
    + b"\n"
    + _stream(a=pa.array([1 << 40], pa.timestamp("s")), c=pa.array([0], pa.date64())),
)

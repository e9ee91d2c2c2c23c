from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyspark_mtl.rows.bodies.arrow_types import READABLE, check
from pyspark_mtl.rows.bodies.from_arrow import FromArrow
from pyspark_mtl.rows.bodies.shape import LEAVES
from tests.support.texts import in_order

DECIMAL = pa.decimal128(10, 2)
UTC = pa.timestamp("us", "UTC")


def stream(column: Any) -> bytes:
    batch = pa.RecordBatch.from_arrays([column], names=["x"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return bytes(sink.getvalue())


def read(column: Any, kind: Any) -> list[Any] | None:
    """The column of a body, read as `kind`; None if the body is bad."""
    found = FromArrow(pa.schema([("x", kind)]))(pa.array([stream(column)], pa.binary()))
    return None if found.bad else found.rows.column(0).to_pylist()


def scaled(kind: Any) -> Any:
    """A column with the digit 1 at the last place of a decimal."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(b"\1" + bytes(kind.byte_width - 1))])


OUT_OF_BOUNDS = """
import pyarrow as pa
from tests.unit.pyspark_mtl.rows.bodies.test_arrow_types import read, scaled
texts = pa.array(["1e-5000000"])
found = [texts, texts.dictionary_encode(), pa.array([["1e-5000000"]])]
for decimal, digits in ((pa.decimal128, 38), (pa.decimal256, 76), (pa.decimal64, 18)):
    found += [scaled(decimal(digits, scale)) for scale in (5_000_000, -5_000_000, 2**31 - 1, -(2**31), 77, -39)]
kinds = [pa.decimal128(10, 2), pa.decimal128(38, 38), pa.int64(), pa.int8(), pa.string(), pa.float64()]
print({str(read(column, kind)) for column in found for kind in [*kinds, pa.list_(kinds[0])] if kind != pa.string()})
"""


def test_no_scale_ends_the_process() -> None:
    """In a process of its own: a failure ends it."""
    ended = subprocess.run(
        [sys.executable, "-c", OUT_OF_BOUNDS], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "{'None'}"), ended.stderr


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (pa.array([5, None], pa.uint8()), pa.int64(), [5, None]),
        (pa.array([5.0]), pa.int8(), [5]),
        (pa.array([Decimal("5.00")]), pa.int8(), [5]),
        (pa.array([Decimal("1.5")], pa.decimal256(50, 4)), DECIMAL, [Decimal("1.50")]),
        (pa.array([Decimal("1.5")]), pa.float64(), [1.5]),
        (pa.array([7], pa.int8()), DECIMAL, [Decimal("7.00")]),
        (pa.array([True]), pa.bool_(), [True]),
        (pa.array(["ä"], pa.large_string()).dictionary_encode(), pa.string(), ["ä"]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array([1], pa.int8()).dictionary_encode(), pa.int64(), [1]),
        (pa.nulls(2), pa.list_(DECIMAL), [None, None]),
        (pa.array([[Decimal(1)]], pa.large_list(pa.decimal64(5, 0))), pa.list_(DECIMAL), [[Decimal("1.00")]]),
    ],
)
def test_values_of_one_kind_are_read_exactly(column: Any, kind: Any, values: list[Any]) -> None:
    assert read(column, kind) == values


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        # Arrow would cast these, and make another value.
        (pa.array([2]), pa.bool_()),
        (pa.array([0.001]), DECIMAL),
        (pa.array([1e39]), pa.float32()),
        (pa.array([[1e39]]), pa.list_(pa.float32())),
        (pa.array([{"a": 1e39}]), pa.struct([("a", pa.float32())])),
        (pa.array([[("k", 1e39)]], pa.map_(pa.string(), pa.float64())), pa.map_(pa.string(), pa.float32())),
        (scaled(pa.decimal256(76, 77)), pa.int64()),
        (pa.array([1], pa.timestamp("us")), pa.date32()),
        (pa.array([0], pa.timestamp("us", "America/New_York")), pa.timestamp("us")),
        (pa.array([2**31 - 1], pa.int32()).view(pa.date32()), pa.string()),
        (pa.array([2**62]).view(pa.timestamp("s")), pa.string()),
        (pa.array([1]), UTC),
        (pa.array([1], pa.duration("s")), pa.int64()),
        # It has no check for these, or the check is that the value is lost.
        (pa.array([2**62]).view(pa.timestamp("s")), UTC),
        (pa.array([1], pa.timestamp("ns")), UTC),
        (pa.array([1.5]), pa.int64()),
        (pa.array([Decimal("0.01")]), pa.int64()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([2**64 - 1], pa.uint64()), pa.int64()),
        # Another kind.
        (pa.array(["5"]), pa.int64()),
        (pa.array(["true"]), pa.bool_()),
        (pa.array(["2026-01-31"]), UTC),
        (pa.array([5]), pa.string()),
        (pa.array([[1]], pa.list_view(pa.int64())), pa.list_(pa.int64())),
        (pa.array([1]), pa.list_(pa.int64())),
        (pa.array([1]), pa.struct([("a", pa.int64())])),
        (pa.array([1]), pa.map_(pa.string(), pa.int64())),
        (pa.array([[1]]), pa.string()),
        (pa.array([{"a": "x"}]), pa.struct([("a", pa.int64())])),
        (pa.array([{"a": 1}]), pa.int64()),
        (pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([5])), pa.int64()),
    ],
)
def test_a_value_that_would_change_makes_the_body_bad(column: Any, kind: Any) -> None:
    assert read(column, kind) is None


def test_the_place_of_a_column_is_named() -> None:
    found = pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.string())))])
    wanted = pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.int64())))])
    with pytest.raises(ValueError, match=in_order("'x.a.element.value'", "string", "int64")):
        check(found, wanted, "x")


def test_a_field_that_occurs_twice_is_an_error() -> None:
    twice = pa.struct([pa.field("a", pa.int64()), pa.field("a", pa.int64())])
    with pytest.raises(ValueError, match="occurs 2 times"):
        check(twice, pa.struct([("a", pa.int64())]), "x")


@pytest.mark.parametrize("is_leaf", LEAVES, ids=lambda is_leaf: is_leaf.__name__)
def test_every_type_of_a_schema_can_be_read(is_leaf: Any) -> None:
    kinds = [DECIMAL, UTC, pa.date32(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.bool_()]
    kinds += [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    (kind,) = filter(is_leaf, kinds)
    assert any(test(kind) and any(source(kind) for source in sources) for test, sources in READABLE)


def test_more_buffers_of_views_than_a_batch_has_are_refused_before_they_are_allocated() -> None:
    """The number of a column's buffers is stated; Arrow allocates a reference for each."""
    texts = pa.array(["x" * 50], pa.string_view())
    body = stream(texts)
    at = body.index((1).to_bytes(4, "little") + (1).to_bytes(8, "little"))  # a vector of one number, one
    found = body[: at + 4] + (1 << 24).to_bytes(8, "little") + body[at + 12 :]
    decoded = FromArrow(pa.schema([("x", pa.string())]))(pa.array([found], pa.binary()))
    assert "more buffers than their batch has" in decoded.bad[0]

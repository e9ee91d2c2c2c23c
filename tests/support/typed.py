"""Columns of every type that a body may hold, and their values, drawn by Hypothesis."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from pyspark_mtl.options.settings import Bodies
from pyspark_mtl.rows.bodies.shape import Shape, of_source

_FIRST, _LAST = datetime(1, 1, 2), datetime(9999, 12, 30)  # noqa: DTZ001 local times

_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    *((kind, st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)) for kind, bits in (
        (pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64))),
    (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.decimal128(12, 3), st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3))),
    (pa.string(), st.text(max_size=12)),
    (pa.binary(), st.binary(max_size=12)),
    (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    (pa.timestamp("us", "UTC"), st.datetimes(_FIRST, _LAST, timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes(_FIRST, _LAST)),
]  # fmt: skip


def element(kind: Any) -> Any:
    """A list type as in Spark."""
    return pa.list_(pa.field("element", kind))


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type and its values; nested at most once."""
    kind, values = draw(st.sampled_from(_LEAVES))
    match draw(st.sampled_from(["leaf", "leaf", "list", "struct", "map"])):
        case "list":
            return element(kind), st.lists(st.none() | values, max_size=3)
        case "struct":
            return pa.struct([("a b", kind), ("é", pa.int32())]), st.fixed_dictionaries(
                {"a b": st.none() | values, "é": st.none() | st.integers(0, 9)}
            )
        case "map":
            pairs = st.dictionaries(st.text(max_size=4), st.none() | values, max_size=3)
            return pa.map_(pa.string(), kind), pairs.map(lambda found: list(found.items()))
    return kind, values


@st.composite
def batches(draw: st.DrawFn) -> Any:
    """A record batch of up to three columns and any values in them."""
    names = draw(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=3, unique=True))
    drawn = [draw(columns()) for _ in names]
    count = draw(st.integers(1, 6))
    arrays = [pa.array([draw(st.none() | values) for _ in range(count)], kind) for kind, values in drawn]
    schema = pa.schema([(name, kind) for name, (kind, _) in zip(names, drawn, strict=True)])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def shape(fields: Any, body_format: str = "json", **options: Any) -> Shape:
    """The shape of a source with these fields."""
    return of_source(pa.schema(fields), Bodies(body_format, **options))

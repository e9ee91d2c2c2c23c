from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mtl.errors import Malformed
from pyspark_mtl.limits import MAX_BODY_ROWS
from pyspark_mtl.rows.bodies import arrow_octets

TEXTS = pa.array(["ab", None, "cde"])


def compressed(columns: dict[str, Any], codec: str | None = "zstd") -> Any:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_batch(batch)
        stream.write_batch(batch)
    return sink.getvalue()


BEFORE: dict[str, Any] = {
    "null": pa.nulls(100),
    "number": pa.array([1] * 100),
    "bit": pa.array([True] * 100),
    "text": pa.array(["x"] * 100),
    "large": pa.array(["x"] * 100, pa.large_string()),
    "view": pa.array(["x" * 50] * 100, pa.string_view()),
    "short view": pa.array(["x"] * 100, pa.string_view()),
    "list": pa.array([["x"]] * 100),
    "view of a list": pa.array([[1]] * 100, pa.list_view(pa.int64())),
    "pair": pa.array([[1, 2]] * 100, pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}] * 100),
    "map": pa.array([[("a", 1)]] * 100, pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["x"] * 100).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([100], pa.int32()), pa.array(["x"])),
    "union": pa.UnionArray.from_sparse(pa.array([0] * 100, pa.int8()), [pa.array([1] * 100)]),
    "dense union": pa.UnionArray.from_dense(
        pa.array([0] * 100, pa.int8()), pa.array(range(100), pa.int32()), [pa.array([1] * 100)]
    ),
}


@pytest.mark.parametrize("name", BEFORE)
def test_only_requested_columns_count(name: str) -> None:
    """Other columns may come before them, with any number of buffers."""
    body = compressed({"before": BEFORE[name], "wanted": pa.array([7] * 100)})
    dictionaries = arrow_octets.decompressed(body, set())
    assert dictionaries < 100
    assert arrow_octets.decompressed(body, {"wanted"}) - dictionaries == 2 * 100 * 8


def test_uncompressed_columns_need_no_memory() -> None:
    assert arrow_octets.decompressed(compressed({"a": TEXTS}, None), {"a"}) == 0


def test_a_damaged_stream_is_an_error() -> None:
    body = compressed({"a": pa.array([1] * 100)}).to_pybytes()
    for at in range(0, len(body) - 4, 3):
        damaged = body[:at] + b"\xff\xff\xff\x7f" + body[at + 4 :]
        try:
            arrow_octets.decompressed(pa.py_buffer(damaged), {"a"})
        except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, TypeError, Malformed):
            continue


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1, 2], pa.int8()), pa.int64()),
        (pa.array([True] * 100), pa.int64()),
        (TEXTS, pa.string()),
        (TEXTS, pa.binary()),
        (TEXTS.cast(pa.large_string()), pa.string()),
        (TEXTS.cast(pa.string_view()), pa.string()),
        (pa.array(["x" * 100] * 50).cast(pa.string_view())[10:20], pa.string()),
        (pa.array(["x" * 100] * 50).dictionary_encode(), pa.string()),
        (pa.array(["x" * 100] * 50).dictionary_encode()[5:25], pa.string()),
        (pa.array([1] * 50).dictionary_encode(), pa.int64()),
        (pa.nulls(7), pa.string()),
        (pa.nulls(7), pa.list_(pa.int64())),
        (pa.array([[1, 2], []], pa.list_(pa.int8())), pa.list_(pa.int64())),
        (pa.array([[1, 2], []], pa.large_list(pa.int8())), pa.list_(pa.int64())),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), pa.list_(pa.int64())),
        (pa.array([["x" * 100]] * 9, pa.list_(pa.dictionary(pa.int8(), pa.string()))), pa.list_(pa.string())),
        (pa.array([{"a": 1, "b": "x"}]), pa.struct([("a", pa.int64()), ("b", pa.string())])),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_cast_column_uses_at_most_the_computed_octets(column: Any, kind: Any) -> None:
    cast = column.cast(kind)
    # Bitmaps and the one offset more are the same for any column, and padding.
    assert cast.nbytes - len(column) // 8 - 32 <= arrow_octets.cast(column, kind) <= 64 * (cast.nbytes + 8)


def test_a_shared_value_counts_for_every_row() -> None:
    indices = pa.array([0] * 1000, pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 1000]))
    assert arrow_octets.cast(column, pa.string()) == 1000 * 1004
    lists = pa.ListArray.from_arrays(pa.array([0, 1000], pa.int32()), column)
    assert arrow_octets.cast(lists, pa.list_(pa.string())) == 4 + 1000 * 1004
    zeros = pa.Array.from_buffers(
        pa.int8(), MAX_BODY_ROWS + 1, [None, pa.py_buffer(bytes(MAX_BODY_ROWS + 1))]
    )
    many = pa.DictionaryArray.from_arrays(zeros, pa.array(["xyz"]))
    assert arrow_octets.cast(many, pa.string()) == (MAX_BODY_ROWS + 1) * 7


def test_missing_fields_count_as_nulls() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.decimal128(38, 0))])
    assert arrow_octets.cast(pa.array([{"c": 1}] * 10), kind) == 10 * (8 + 16)
    assert arrow_octets.nulls(10, pa.struct([("s", pa.string()), ("v", pa.null())])) == 40

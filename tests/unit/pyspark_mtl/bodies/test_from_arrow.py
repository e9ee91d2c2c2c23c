from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from pyspark_mtl.bodies.encoding import streams
from pyspark_mtl.bodies.from_arrow import FromArrow
from pyspark_mtl.limits import MAX_BODY_ROWS
from tests.support.typed import batches

DECODER = FromArrow(pa.schema([("n", pa.int32()), ("s", pa.string())]))


def body(**columns: Any) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


@given(batches())
def test_what_is_written_is_read_as_it_was(rows: Any) -> None:
    found = FromArrow(rows.schema)(pa.array(list(streams(rows, 100)), pa.binary()))
    assert found.bad == {}
    assert found.rows.equals(rows)


def test_rows_know_their_bodies() -> None:
    bodies = [body(n=[1, 2]), b"bad", body(n=pa.array([], pa.int32())), body(n=[3])]
    found = DECODER(pa.array(bodies, pa.binary()))
    assert found.rows.column("n").to_pylist() == [1, 2, None, 3]
    assert found.origin.to_pylist() == [0, 0, 1, 3]
    assert list(found.bad) == [1]


def test_columns_are_found_by_name_and_cast() -> None:
    found = DECODER(pa.array([body(more=[1.5], s=pa.array(["x"], pa.large_string()), n=[7])], pa.binary()))
    assert found.rows.to_pylist() == [{"n": 7, "s": "x"}]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        body(n=[1 << 40]),
        body(n=["x"]),
        body(n=[1])[:-20],
        body(n=[1]).replace(b"\x01\x00\x00\x00", b"\xff\xff\xff\x7f"),
        body(z=pa.nulls(MAX_BODY_ROWS + 1)),
    ],
)
def test_a_bad_body_is_a_row_of_nulls(bad: bytes) -> None:
    found = DECODER(pa.array([bad], pa.binary()))
    assert found.rows.to_pylist() == [{"n": None, "s": None}]
    assert list(found.bad) == [0]


def test_no_bodies_are_no_rows() -> None:
    assert DECODER(pa.array([], pa.binary())).rows.num_rows == 0

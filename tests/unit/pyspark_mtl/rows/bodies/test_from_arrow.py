from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from pyspark_mtl.limits import MAX_BODY_OCTETS, MAX_BODY_ROWS
from pyspark_mtl.rows.bodies import from_arrow
from pyspark_mtl.rows.bodies.encoding import streams
from pyspark_mtl.rows.bodies.from_arrow import FromArrow
from tests.support.typed import batches

DECODER = FromArrow(pa.schema([("n", pa.int32()), ("s", pa.string())]))


def body(**columns: Any) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


@given(batches())
def test_encoded_rows_are_decoded(rows: Any) -> None:
    found = FromArrow(rows.schema)(pa.array(list(streams(rows, 100)), pa.binary()))
    assert found.bad == {}
    assert found.rows.equals(rows)


def test_rows_have_the_index_of_their_body() -> None:
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


def test_a_body_may_have_as_many_rows_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_mtl.rows.bodies.from_arrow.MAX_BODY_ROWS", 3)
    found = DECODER(pa.array([body(n=[1, 2, 3]), body(n=[1, 2, 3, 4])], pa.binary()))
    assert (found.rows.column("n").to_pylist(), list(found.bad)) == ([1, 2, 3, None], [1])


def compressed(codec: str, **columns: Any) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


WATCHED = pa.proxy_memory_pool(pa.default_memory_pool())
"""Has to outlive what is allocated in it."""


def most_allocated(work: Callable[[], Any]) -> tuple[Any, int]:
    """The result of the call, and the peak of octets that Arrow allocated so far."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(WATCHED)
    try:
        return work(), WATCHED.max_memory() or 0
    finally:
        pa.set_memory_pool(before)


BOMB = pa.array(["\0" * (MAX_BODY_OCTETS + 1)])
MANY = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array(["x" * (100 << 10)]))
NULLS = pa.FixedSizeListArray.from_arrays(pa.nulls(MAX_BODY_OCTETS), MAX_BODY_OCTETS)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lambda: compressed("zstd", s=BOMB), id="compressed"),
        pytest.param(lambda: compressed("lz4", s=BOMB), id="compressed otherwise"),
        pytest.param(lambda: compressed("zstd", s=BOMB.dictionary_encode()), id="compressed dictionary"),
        pytest.param(
            lambda: compressed("zstd", other=BOMB.dictionary_encode(), n=[1]), id="beside the fields"
        ),
        pytest.param(lambda: body(s=MANY), id="one value many times"),
        pytest.param(lambda: body(s=MANY.cast(pa.string()).cast(pa.string_view())), id="views"),
    ],
)
def test_a_body_that_expands_too_much_is_bad_without_allocation(bad: Callable[[], bytes]) -> None:
    bodies = pa.array([bad()], pa.large_binary())
    found, octets = most_allocated(lambda: DECODER(bodies))
    assert "more than" in found.bad[0]
    assert "octets after decompression and cast" in found.bad[0]
    assert octets < MAX_BODY_OCTETS // 4


def test_a_list_of_nulls_that_expands_too_much_is_bad() -> None:
    decoder = FromArrow(pa.schema([("l", pa.list_(pa.int64()))]))
    found, octets = most_allocated(lambda: decoder(pa.array([body(l=NULLS)], pa.binary())))
    assert "octets after decompression" in found.bad[0]
    assert octets < MAX_BODY_OCTETS // 4


def test_unrequested_columns_are_not_decompressed() -> None:
    bomb = compressed("zstd", s=["x"], other=BOMB, n=[7])
    found, octets = most_allocated(lambda: DECODER(pa.array([bomb], pa.binary())))
    assert found.bad == {}
    assert found.rows.to_pylist() == [{"n": 7, "s": "x"}]
    assert octets < MAX_BODY_OCTETS // 4


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_body_is_decoded(codec: str) -> None:
    bodies = [compressed(codec, n=[1] * 1000, s=["x" * 100] * 1000), compressed(codec, more=["y"], n=[2])]
    found = DECODER(pa.array(bodies, pa.binary()))
    assert found.bad == {}
    assert found.rows.to_pylist() == [{"n": 1, "s": "x" * 100}] * 1000 + [{"n": 2, "s": None}]


def test_a_body_without_the_requested_columns_gives_nulls() -> None:
    found = DECODER(pa.array([body(other=[1, 2])], pa.binary()))
    assert found.rows.to_pylist() == [{"n": None, "s": None}] * 2


def test_bodies_with_many_octets_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_arrow, "MAX_BODY_OCTETS", 100)
    bodies = pa.array([body(n=[1, 2], s=["a", "b"])] * 10, pa.binary())
    counts = []
    while len(bodies):
        found = DECODER(bodies)
        assert found.bad == {}
        assert found.taken is not None
        counts.append(found.taken)
        bodies = bodies.slice(found.taken)
    assert sum(counts) == 10
    assert 1 < len(counts) < 10


def test_no_bodies_give_no_rows() -> None:
    assert DECODER(pa.array([], pa.binary())).rows.num_rows == 0

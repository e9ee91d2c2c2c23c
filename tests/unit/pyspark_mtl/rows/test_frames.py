from __future__ import annotations

import subprocess
import sys
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import ContentTooLarge, SchemaError
from mtl.limits import MAX_PACK_CONTENTS, MAX_PACK_PROPERTIES
from mtl.wire.fields import encode_table
from mtl.wire.packs import SCHEMA, decode_pack, encode_batch
from pyspark_mtl.rows.frames import ROWS, ROWS_WITH_PROPERTIES, contents, gathered, rows, split
from tests.support.texts import in_order

BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=60)


def pack(bodies: list[bytes], properties: list[bytes | None] | None = None) -> pa.RecordBatch:
    tables = pa.array(properties or [None] * len(bodies), pa.binary())
    return pa.RecordBatch.from_arrays([tables, pa.array(bodies, pa.binary())], schema=SCHEMA)


# --- packs to rows ------------------------------------------------------------------------------------------


@given(BODIES, st.data())
def test_the_rows_of_a_pack_are_its_contents(bodies: list[bytes], data: st.DataObject) -> None:
    """Also of a pack trimmed to the range of a task."""
    skip = data.draw(st.integers(0, len(bodies) - 1))
    received = decode_pack(encode_batch(pack(bodies)), len(bodies)).slice(skip)
    found = rows(received, "orders", 7 + skip, 1_700_000_000_000_001, include_properties=False)
    found.validate(full=True)
    assert found.schema.equals(ROWS)
    assert found.column("body").to_pylist() == bodies[skip:]
    assert found.column("sequence").to_pylist() == list(range(7 + skip, 7 + len(bodies)))
    assert set(found.column("resource").to_pylist()) == {"orders"}
    assert set(found.column("timestamp").cast(pa.int64()).to_pylist()) == {1_700_000_000_000_001}


def test_bodies_are_not_copied() -> None:
    received = pack([b"one", b"two"])
    found = rows(received, "orders", 1, 0, include_properties=True)
    assert found.column("body").buffers()[2].address == received.column("body").buffers()[2].address


def test_properties_are_a_column_if_requested() -> None:
    received = pack([b"a", b"b"], [encode_table({"k": "v", "n": 7}), None])
    found = rows(received, "orders", 1, 0, include_properties=True)
    assert found.schema.equals(ROWS_WITH_PROPERTIES)
    assert found.column("properties").to_pylist() == [[("k", "v"), ("n", "7")], []]


def test_sequences_of_the_largest_pack() -> None:
    found = rows(pack([b""] * MAX_PACK_CONTENTS), "orders", 1 << 40, None, include_properties=False)
    assert found.column("sequence")[-1].as_py() == (1 << 40) + MAX_PACK_CONTENTS - 1
    assert found.column("timestamp").null_count == MAX_PACK_CONTENTS


@pytest.mark.parametrize("count", [1, 2, 3, 4, 1_023, 1_024, MAX_PACK_CONTENTS - 1, MAX_PACK_CONTENTS])
def test_every_row_has_the_name_of_its_resource(count: int) -> None:
    for resource in ("orders", "paid"):
        found = rows(pack([b""] * count), resource, 1, None, include_properties=False)
        found.validate(full=True)
        assert found.column("resource").unique().to_pylist() == [resource]


# --- rows to packs ------------------------------------------------------------------------------------------


def frame(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def test_all_rows_are_written_to_the_resource_of_the_option() -> None:
    given = frame(body=pa.array([b"1", b"2"]), resource=pa.array(["a", None]))
    ((resource, batch),) = contents(given, "orders")
    assert (resource, batch.schema, batch.column("body").to_pylist()) == ("orders", SCHEMA, [b"1", b"2"])


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.binary(max_size=4)), min_size=1, max_size=40))
def test_rows_are_written_to_the_resource_of_their_column_in_order(
    given_rows: list[tuple[str, bytes]],
) -> None:
    names, bodies = zip(*given_rows, strict=True)
    found = list(contents(frame(body=pa.array(bodies, pa.binary()), resource=pa.array(names)), None))
    assert [name for name, _ in found] == list(dict.fromkeys(names))
    for name, batch in found:
        assert batch.column("body").to_pylist() == [body for resource, body in given_rows if resource == name]


def test_types_that_spark_may_choose_are_accepted() -> None:
    required = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
    given = frame(
        body=pa.array([b"1"], pa.large_binary()),
        resource=pa.array(["a"], pa.large_string()),
        properties=pa.array([[("k", "v")]], required),
        timestamp=pa.array([0], pa.timestamp("us", "Etc/UTC")),
    )
    ((_, batch),) = contents(given, None)
    assert batch.column("properties").to_pylist() == [
        encode_table({"k": "v", "timestamp": "1970-01-01T00:00:00.000000Z"})
    ]


def test_text_becomes_a_body_in_utf8() -> None:
    ((_, batch),) = contents(frame(body=pa.array(["\u00e4", ""])), "orders")
    assert batch.column("body").to_pylist() == ["\u00e4".encode(), b""]


def test_an_empty_frame_has_no_contents() -> None:
    empty = frame(body=pa.array([], pa.binary()), resource=pa.array([], pa.string()))
    assert list(contents(empty, None)) == []
    assert list(contents(empty, "orders")) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (frame(body=pa.array([b"1", None])), "body of a row is null"),
        (frame(body=pa.array([b"1"]), resource=pa.array([None], pa.string())), "resource of a row is null"),
    ],
)
def test_nulls_are_errors(given: pa.RecordBatch, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        list(contents(given, None if given.num_columns > 1 else "orders"))


@given(st.lists(BODIES, max_size=8), st.integers(1, 400))
def test_small_frames_are_gathered_without_loss(frames: list[list[bytes]], octets: int) -> None:
    packs = [pack(bodies) for bodies in frames]
    found = list(gathered(packs, octets))
    assert [body for batch in found for body in batch.column("body").to_pylist()] == list(
        chain.from_iterable(frames)
    )
    assert len(found) <= sum(pack.nbytes for pack in packs) // octets + 1


# --- packs that fit -----------------------------------------------------------------------------------------


@given(BODIES, st.integers(1, 200), st.data())
def test_splitting_keeps_all_contents_and_the_limit(
    bodies: list[bytes], max_pack: int, data: st.DataObject
) -> None:
    skip = data.draw(st.integers(0, len(bodies) - 1))
    tables = data.draw(
        st.lists(st.none() | st.binary(min_size=1, max_size=9), min_size=len(bodies), max_size=len(bodies))
    )
    parts = list(split(pack(bodies, tables).slice(skip), 40, max_pack))
    assert [body for part in parts for body in part.column("body").to_pylist()] == bodies[skip:]
    for part in parts:
        octets = sum(map(len, part.column("body").to_pylist()))
        octets += sum(len(table or b"") for table in part.column("properties").to_pylist())
        assert part.num_rows == 1 or octets <= max_pack


def test_splitting_keeps_the_limit_of_properties() -> None:
    table = encode_table({"k": bytes(MAX_PACK_PROPERTIES // 10)})
    parts = list(split(pack([b"x"] * 30, [table] * 30).slice(5), 1, 1 << 22))
    assert [part.num_rows for part in parts] == [9, 9, 7]
    for part in parts:
        decode_pack(encode_batch(part), part.num_rows)


def test_splitting_keeps_the_limit_of_contents() -> None:
    batch = pack([b""] * (2 * MAX_PACK_CONTENTS + 1))
    assert [part.num_rows for part in split(batch, 1, 1)] == [MAX_PACK_CONTENTS, MAX_PACK_CONTENTS, 1]


def test_splitting_makes_as_few_packs_as_possible() -> None:
    assert [part.num_rows for part in split(pack([b"12", b"34", b"56", b"7"]), 2, 4)] == [2, 2]


def test_a_body_above_the_limit_is_an_error_with_its_size() -> None:
    with pytest.raises(ContentTooLarge, match=in_order("5 octets", 4)):
        next(split(pack([b"1", b"12345"]), 4, 100))


def test_rows_are_made_without_pandas() -> None:
    """pyarrow imports pandas, if installed, with the first Python value that it gets: 0.4 s in every new worker."""
    code = """
import sys
from importlib.abc import MetaPathFinder

class Watch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        assert name != "pandas", "pandas is imported"

sys.meta_path.insert(0, Watch())
from mtl.wire.packs import encode_pack, trust_pack
from pyspark_mtl.rows.frames import contents, rows, split

made = rows(trust_pack(encode_pack([b"one", b"two"])), "orders", 7, 8, include_properties=False)
for _, batch in contents(made.select(["body"]), "orders"):
    list(split(batch, 1 << 20, 1 << 20))
"""
    subprocess.run([sys.executable, "-c", code], check=True)

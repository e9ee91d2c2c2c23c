from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from mtl.errors import ContentTooLarge, SchemaError
from mtl.limits import MAX_CONTENT
from pyspark_mtl.rows.bodies.encoding import encode, streams
from tests.support.texts import in_order


def test_a_row_is_a_body() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [1, None], "s": ["x\ny", ""]})
    assert encode("json", rows).to_pylist() == [b'{"a":1,"s":"x\\ny"}', b'{"a":null,"s":""}']
    assert [
        msgspec.msgpack.decode(octets) for octets in encode("msgpack", rows).to_pylist()
    ] == rows.to_pylist()
    assert encode("text", rows.select(["s"])).to_pylist() == [b"x\ny", b""]


def test_a_map_with_a_repeated_name_is_an_error() -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8()))], names=["m"]
    )
    for name in ("json", "msgpack"):
        with pytest.raises(SchemaError, match=in_order("'m'", name)):
            encode(name, rows)


LATE = pa.array([253_402_318_799_000_000], pa.timestamp("us", "UTC"))
"""9999-12-31 23:59:59 in New York: the year 10000 in UTC."""

EARLY = pa.array([-62_135_600_008_000_000], pa.timestamp("us", "UTC"))
"""0001-01-01 00:00:00 in Berlin: the year 0 in UTC."""


@pytest.mark.parametrize("name", ["json", "msgpack"])
@pytest.mark.parametrize("value", [LATE, EARLY, LATE.cast(pa.timestamp("us")), LATE.cast(pa.date32())])
def test_the_column_of_a_value_outside_of_the_format_is_named(name: str, value: Any) -> None:
    struct = pa.StructArray.from_arrays([pa.array([1]), value], ["id", "until"])
    offsets = pa.array([0, 1], pa.int32())
    columns = {
        "until": value,
        "order.until": struct,
        "list.element": pa.ListArray.from_arrays(offsets, value),
        "lists.element.until": pa.ListArray.from_arrays(offsets, struct),
        "map.value": pa.MapArray.from_arrays(offsets, pa.array(["k"]), value),
    }
    for path, column in columns.items():
        rows = pa.RecordBatch.from_arrays([pa.array([1]), column], names=["id", path.partition(".")[0]])
        with pytest.raises(SchemaError, match=in_order(f"'{path}'", "1 to 9999", "UTC")):
            encode(name, rows)


def test_streams_have_about_the_requested_size() -> None:
    rows = pa.RecordBatch.from_pydict({"n": list(range(1000))})
    bodies = list(streams(rows, 1000))
    assert len(bodies) == 8
    assert len(list(streams(rows))) == 1


def test_unusually_large_rows_get_their_own_bodies() -> None:
    large = bytes(MAX_CONTENT - 1000)
    rows = pa.RecordBatch.from_pydict({"b": [b"", large, large, b""]})
    assert all(len(body) <= MAX_CONTENT for body in streams(rows, 100 * MAX_CONTENT))
    with pytest.raises(ContentTooLarge, match="row as an Arrow stream"):
        list(streams(pa.RecordBatch.from_pydict({"b": [large + bytes(1000)]})))

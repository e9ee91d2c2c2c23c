from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mtl.errors import BadBody, SchemaError
from mtl.wire.fields import encode_table
from mtl.wire.packs import SCHEMA
from pyspark_mtl.options.settings import Bodies
from pyspark_mtl.rows.bodies import from_arrow
from pyspark_mtl.rows.bodies.encoding import streams
from pyspark_mtl.rows.bodies.shape import of_sink
from pyspark_mtl.rows.typed import TypedRows, raw
from tests.support.texts import in_order
from tests.support.typed import shape

ID = ("id", pa.int64())
METADATA = [("resource", pa.string()), ("sequence", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))]
BODIES = [b'{"id": 1}', b"bad \xff", b'{"id": 3}']


def pack(*bodies: bytes) -> Any:
    tables = [encode_table({"k": "v"}), *[None] * (len(bodies) - 1)]
    return pa.RecordBatch.from_arrays(
        [pa.array(tables, pa.binary()), pa.array(bodies, pa.binary())], schema=SCHEMA
    )


# --- reading ------------------------------------------------------------------------------------------------


def test_rows_have_the_columns_of_the_schema_in_its_order() -> None:
    columns = [
        ("sequence", pa.int64()),
        ID,
        ("properties", pa.map_(pa.string(), pa.string())),
        *METADATA[::2],
    ]
    ((made, bad),) = TypedRows(shape(columns, metadata=True))(pack(b'{"id": 7}'), "orders", 5, 6)
    made.validate(full=True)
    assert made.schema == pa.schema(columns)
    assert made.select(["sequence", "id", "properties", "resource"]).to_pylist() == [
        {"sequence": 5, "id": 7, "properties": [("k", "v")], "resource": "orders"}
    ]
    assert bad == []


def test_the_time_of_a_content_may_be_a_local_time_which_is_utc() -> None:
    columns = [("timestamp", pa.timestamp("us")), ID]
    ((made, _),) = TypedRows(shape(columns, metadata=True))(pack(b'{"id": 7}'), "orders", 5, 6)
    assert made.schema == pa.schema(columns)
    assert made.column("timestamp").cast(pa.int64()).to_pylist() == [6]


def test_permissive_gives_nulls_and_the_corrupt_body() -> None:
    ((made, bad),) = TypedRows(shape([ID, ("_corrupt_record", pa.string())]))(pack(*BODIES), "orders", 5, 6)
    assert made.to_pylist() == [
        {"id": 1, "_corrupt_record": None},
        {"id": None, "_corrupt_record": "bad \ufffd"},
        {"id": 3, "_corrupt_record": None},
    ]
    assert [(letter.sequence, letter.body) for letter in bad] == [(6, BODIES[1])]


def test_dropmalformed_omits_bad_bodies() -> None:
    typed = TypedRows(shape([*METADATA, ID], metadata=True, mode="dropmalformed"))
    ((made, bad),) = typed(pack(*BODIES), "orders", 5, 6)
    assert made.select(["sequence", "id"]).to_pylist() == [{"sequence": 5, "id": 1}, {"sequence": 7, "id": 3}]
    assert [letter.sequence for letter in bad] == [6]


def test_failfast_names_the_first_bad_content() -> None:
    with pytest.raises(BadBody, match=in_order(6, "'orders'", "json", "malformed")):
        list(TypedRows(shape([ID], mode="failfast"))(pack(*BODIES, b""), "orders", 5, 6))


@pytest.mark.parametrize("mode", ["permissive", "dropmalformed"])
def test_every_row_of_an_arrow_body_has_the_sequence_of_its_content(mode: str) -> None:
    (two_rows,) = streams(pa.RecordBatch.from_pydict({"id": [1, 2]}))
    typed = TypedRows(
        shape([*METADATA, ID, ("_corrupt_record", pa.string())], "arrow", metadata=True, mode=mode)
    )
    ((made, _),) = typed(pack(two_rows, b"bad", two_rows), "orders", 5, 6)
    expected = [(5, 1, None), (5, 2, None), (6, None, "bad"), (7, 1, None), (7, 2, None)]
    found = made.select(["sequence", "id", "_corrupt_record"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        row for row in expected if row[1] or mode == "permissive"
    ]


def test_a_pack_with_large_rows_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_arrow, "MAX_BODY_OCTETS", 20)
    (two_rows,) = streams(pa.RecordBatch.from_pydict({"id": [1, 2]}))
    typed = TypedRows(shape([*METADATA, ID], "arrow", metadata=True))
    parts = list(typed(pack(two_rows, two_rows, b"bad", two_rows, two_rows, two_rows), "orders", 5, 6))
    assert [made.column("sequence").to_pylist() for made, _ in parts] == [
        [5, 5, 6, 6],
        [7, 8, 8, 9, 9],
        [10, 10],
    ]
    assert [[letter.sequence for letter in bad] for _, bad in parts] == [[], [7], []]


# --- writing ------------------------------------------------------------------------------------------------


def test_columns_of_the_content_are_not_part_of_the_body() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "resource": ["a", "b"]})
    (frame,) = raw(of_sink(rows.schema, Bodies("json", metadata=True)), [rows])
    assert frame.to_pylist() == [
        {"resource": "a", "body": b'{"id":1}'},
        {"resource": "b", "body": b'{"id":2}'},
    ]
    (frame,) = raw(of_sink(rows.schema, Bodies("json")), [rows])
    assert frame.column("body").to_pylist()[0] == b'{"id":1,"resource":"a"}'


def test_an_arrow_body_has_the_rows_of_one_resource() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "resource": ["a", "b", "a"]})
    shaped = of_sink(rows.schema, Bodies("arrow", metadata=True))
    found = {row["resource"]: row["body"] for frame in raw(shaped, [rows]) for row in frame.to_pylist()}
    assert {name: pa.ipc.open_stream(body).read_all()["id"].to_pylist() for name, body in found.items()} == {
        "a": [1, 3],
        "b": [2],
    }
    (frame,) = raw(of_sink(rows.schema, Bodies("arrow")), [rows])
    assert pa.ipc.open_stream(frame.column("body")[0].as_py()).read_all().num_rows == 3
    nowhere = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array([None], pa.string())], names=["id", "resource"]
    )
    with pytest.raises(SchemaError, match="resource of a row is null"):
        list(raw(shaped, [nowhere]))

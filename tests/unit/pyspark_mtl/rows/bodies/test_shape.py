from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from mtl.errors import SchemaError
from pyspark_mtl.options.settings import Bodies
from pyspark_mtl.rows.bodies.shape import of_sink
from tests.support.typed import shape

ID = ("id", pa.int64())


def test_all_columns_belong_to_the_body_by_default() -> None:
    found = shape([ID, ("resource", pa.string()), ("timestamp", pa.date32())])
    assert found.body == found.columns
    assert found.corrupt is None


def test_columns_of_metadata_and_corrupt_bodies_are_outside_the_body() -> None:
    found = shape(
        [("sequence", pa.int64()), ID, ("bad", pa.string()), ("resource", pa.string())],
        metadata=True,
        corrupt="bad",
    )
    assert found.body.names == ["id"]
    assert found.columns.names == ["sequence", "id", "bad", "resource"]
    assert found.corrupt == "bad"


def test_a_shape_can_be_pickled() -> None:
    found = shape([ID])
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("fields", "options", "words"),
    [
        ([pa.field("id", pa.int64(), nullable=False)], {}, "'id' is NOT NULL"),
        ([("a", pa.struct([pa.field("b", pa.int8(), nullable=False)]))], {}, "'a.b' is NOT NULL"),
        ([ID, ("_corrupt_record", pa.binary())], {}, "has to be of type string"),
        (
            [ID, ("resource", pa.int64())],
            {"metadata": True},
            "'resource' has to be string with includeMetadata",
        ),
        ([("resource", pa.string())], {"metadata": True}, "no column for the body"),
        ([ID, ID], {}, "'id' more than once"),
        ([("d", pa.duration("us"))], {}, "'d' is duration"),
        ([("n", pa.null())], {}, "'n' is null"),
        (
            [("m", pa.map_(pa.float64(), pa.int8()))],
            {},
            "map with keys of double; keys have to be text or whole numbers",
        ),
        (
            [("v", pa.struct([pa.field("metadata", pa.binary(), metadata={"variant": "true"})]))],
            {},
            "parse_json makes variants",
        ),
    ],
)
def test_a_schema_without_possible_body_is_an_error(
    fields: list[Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        shape(fields, **options)


def test_the_values_of_written_properties_may_be_not_nullable() -> None:
    """As those of a map of literals."""
    literal = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
    fields = pa.schema([ID, ("properties", literal), ("timestamp", pa.timestamp("us"))])
    assert of_sink(fields, Bodies("json", metadata=True)).body.names == ["id"]
    with pytest.raises(SchemaError, match=r"'properties\.value' is NOT NULL"):
        shape([ID, ("properties", literal)], metadata=True)


def test_text_bodies_have_one_column() -> None:
    assert shape([("anything", pa.string())], "text").body.names == ["anything"]
    for fields in ([ID], [("a", pa.string()), ("b", pa.string())]):
        with pytest.raises(SchemaError, match="one column of type string"):
            shape(fields, "text")


def test_arrow_bodies_have_no_properties_per_row() -> None:
    fields = pa.schema([ID, ("timestamp", pa.timestamp("us", "UTC"))])
    assert of_sink(fields, Bodies("json", metadata=True)).body.names == ["id"]
    assert of_sink(fields, Bodies("arrow")).body.names == ["id", "timestamp"]
    with pytest.raises(SchemaError, match="a content has many rows"):
        of_sink(fields, Bodies("arrow", metadata=True))

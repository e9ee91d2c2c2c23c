"""Divides the columns of a schema into fields of the body and columns of the content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types

from mtl.errors import SchemaError
from pyspark_mtl.options.settings import Bodies
from pyspark_mtl.rows.columns import check_names
from pyspark_mtl.rows.frames import ROWS_WITH_PROPERTIES

_KEYS = (types.is_string, types.is_int8, types.is_int16, types.is_int32, types.is_int64)
"""The types of map keys: the names of a JSON object are text, from which whole numbers can be parsed."""

LEAVES = (
    *_KEYS,
    types.is_boolean,
    types.is_float32,
    types.is_float64,
    types.is_decimal128,
    types.is_binary,
    types.is_date32,
    types.is_timestamp,
)


_ALIKE = {
    "timestamp": (pa.timestamp("us"),),
    "properties": (pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)),),
}
"""Other types of a content's columns. DDL makes a time without a zone of `timestamp` with a setting of the session: it
is in UTC. And the values of a map of literals are not nullable."""


@dataclass(frozen=True)
class Shape:
    """A divided schema: `columns` are all columns in their order, `body` those in the body.

    `corrupt` is the name of the column for bad bodies, or None if the schema has none.
    """

    options: Bodies
    columns: Any
    body: Any
    corrupt: str | None = None


def of_source(columns: Any, options: Bodies) -> Shape:
    """The shape of rows with `columns` (a pyarrow.Schema) that a reader makes. SchemaError for an invalid schema."""
    corrupt = options.corrupt if options.corrupt in columns.names else None
    if corrupt is not None and columns.field(corrupt).type != pa.string():
        raise SchemaError(f"the column {corrupt!r} is for bad bodies; it has to be of type string")
    shape = _divided(columns, options, corrupt)
    _check_nulls(columns)
    return shape


def of_sink(columns: Any, options: Bodies) -> Shape:
    """The shape of a DataFrame that is written. SchemaError for an invalid schema."""
    shape = _divided(columns, options, None)
    if options.format == "arrow":
        for name in ("properties", "timestamp"):
            if name in _metadata(columns, options):
                raise SchemaError(
                    f"with bodyFormat=arrow a content has many rows and only one {name!r} for all of them; "
                    "leave the column out"
                )
    return shape


def _divided(columns: Any, options: Bodies, corrupt: str | None) -> Shape:
    check_names(columns.names)
    others = {corrupt, *_metadata(columns, options)}
    body = pa.schema([field for field in columns if field.name not in others])
    if not len(body):
        raise SchemaError("the schema has no column for the body")
    for field in body:
        _check_type(field.name, field)
    if options.format == "text" and [field.type for field in body] != [pa.string()]:
        raise SchemaError(
            f"with bodyFormat=text the body is one column of type string; the schema has {_schema_text(body)}"
        )
    return Shape(options, columns, body, corrupt)


def _metadata(columns: Any, options: Bodies) -> list[str]:
    """The names of the content's columns. SchemaError if their types differ from those of raw rows."""
    if not options.metadata:
        return []
    names = [name for name in columns.names if name in ROWS_WITH_PROPERTIES.names and name != "body"]
    for name in names:
        given, wanted = columns.field(name).type, ROWS_WITH_PROPERTIES.field(name).type
        if given != wanted and given not in _ALIKE.get(name, ()):
            raise SchemaError(f"the column {name!r} has to be {wanted} with includeMetadata; it is {given}")
    return names


def _check_nulls(fields: Sequence[Any], inside: str = "") -> None:
    """SchemaError for a column that is not nullable, at any depth: a body may lack any field."""
    for field in fields:
        name = f"{inside}{field.name}"
        if not field.nullable:
            raise SchemaError(f"the column {name!r} is NOT NULL; columns of a body have to be nullable")
        if types.is_map(field.type):
            _check_nulls([field.type.item_field], f"{name}.")
        else:
            _check_nulls(children(field.type), f"{name}.")


def _check_type(name: str, field: Any) -> None:
    kind = field.type
    metadata = [child.metadata for child in children(kind) if child.metadata]
    if any(key in entries for entries in metadata for key in (b"variant", b"geometry")):
        raise SchemaError(
            f"the column {name!r} is a type that bodies cannot hold; parse_json makes variants of text"
        )
    if types.is_map(kind) and not any(is_key(kind.key_type) for is_key in _KEYS):
        raise SchemaError(
            f"the column {name!r} is a map with keys of {kind.key_type}; keys have to be text or whole numbers"
        )
    if not (types.is_nested(kind) or any(is_leaf(kind) for is_leaf in LEAVES)):
        raise SchemaError(f"the column {name!r} is {kind}, a type that bodies cannot hold")
    for child in children(kind):
        _check_type(f"{name}.{child.name}", child)


def children(kind: Any) -> list[Any]:
    """The fields of a nested type; a leaf has none."""
    return (
        [kind.field(index) for index in range(kind.num_fields)]
        if not types.is_map(kind)
        else [
            kind.key_field,
            kind.item_field,
        ]
    )


def _schema_text(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)

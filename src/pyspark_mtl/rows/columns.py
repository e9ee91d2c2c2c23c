"""The columns of a row: what a source has, and what a sink takes. Pure; a schema is pairs of name and Spark's type.

A row is a content. A sink takes the rows of a source as they are: `sequence` is the broker's to give and is left out,
`timestamp` travels on as a property.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mtl.errors import SchemaError


class Column(NamedTuple):
    """A column by name, Spark's simple name of its type, and whether it may be null."""

    name: str
    type: str
    nullable: bool = True


SOURCE = (
    Column("resource", "string"),
    Column("sequence", "bigint"),
    Column("timestamp", "timestamp"),
    Column("body", "binary"),
)

PROPERTIES = Column("properties", "map<string,string>")
"""Added by includeProperties."""

SINK = {
    "body": ("binary", "string"),
    "resource": ("string",),
    "properties": ("map<string,string>",),
    "timestamp": ("timestamp",),
    "sequence": ("bigint",),
}
"""What a sink knows, and the types it takes for it. Only `body` is required."""


def of_source(*, include_properties: bool) -> tuple[Column, ...]:
    """The columns of a source."""
    return (*SOURCE, PROPERTIES) if include_properties else SOURCE


def of_typed_source(body_format: str, *, metadata: bool) -> tuple[Column, ...]:
    """The columns of a source with typed bodies that was given no schema: only text needs none. Else SchemaError."""
    if body_format != "text":
        raise SchemaError(
            f"bodyFormat={body_format} needs a schema that says what a body holds: .schema('id bigint, name string')"
        )
    return (*(SOURCE[:-1] if metadata else ()), Column("body", "string"))


def ddl(columns: Sequence[Column]) -> str:
    """The columns as Spark's DDL, the way a schema is given."""
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def check_source(given: Sequence[Column], *, include_properties: bool) -> None:
    """A schema that a user gave for a source replaces ours unchecked, so it has to be the same. Else SchemaError."""
    expected = of_source(include_properties=include_properties)
    if tuple(given) == expected:
        return
    hint = ""
    if not include_properties and any(column.name == PROPERTIES.name for column in given):
        hint = "; the column properties comes with includeProperties=true"
    elif any(not column.nullable for column in given):
        hint = "; every column is nullable"
    raise SchemaError(
        f"the schema ({ddl(given)}) does not fit: rows of format mtl are ({ddl(expected)}){hint}. "
        "Leave the schema out, and shape the rows with select"
    )


def check_names(names: Sequence[str]) -> None:
    """Columns are found by their names, so each has one of its own. Else SchemaError."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"the schema names {', '.join(map(repr, twice))} more than once")


def check_sink(given: Sequence[Column], *, resource: str | None) -> None:
    """The columns of what is to be written. SchemaError for no body, an unknown column, one twice or another type."""
    names = [column.name for column in given]
    check_names(names)
    if "body" not in names:
        raise SchemaError(
            f"the DataFrame ({ddl(given)}) has no column 'body', which becomes the contents' body"
        )
    for column in given:
        types = SINK.get(column.name)
        if types is None:
            raise SchemaError(
                f"column {column.name!r} is none that a content has ({', '.join(SINK)}); "
                "leave it out, or make it part of the body"
            )
        if column.type not in types:
            raise SchemaError(f"column {column.name!r} is {column.type}; it has to be {' or '.join(types)}")
    check_target(given, resource=resource, metadata=True)


def check_target(given: Sequence[Column], *, resource: str | None, metadata: bool) -> None:
    """Every row has to go somewhere: by the option, or by a column that is the content's. Else SchemaError."""
    if resource is None and not (metadata and any(column.name == "resource" for column in given)):
        hint = "" if metadata else " with includeMetadata=true"
        raise SchemaError(f"where to write? Give the option resource, or a column 'resource'{hint}")

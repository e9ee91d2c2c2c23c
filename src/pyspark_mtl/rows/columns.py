"""The columns of sources and sinks, and checks of a user's schema. Pure; a schema is pairs of name and Spark type.

A row is a content. A sink accepts the rows of a source unchanged: it ignores `sequence`, which the broker assigns, and
writes `timestamp` as a property.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mtl.errors import SchemaError


class Column(NamedTuple):
    """A column: its name, Spark's simple name of its type, and whether it may be null."""

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
    "timestamp": ("timestamp", "timestamp_ntz"),
    "sequence": ("bigint",),
}
"""The columns that a sink accepts, with their types. Only `body` is required. A time without a zone is UTC."""


def of_source(*, include_properties: bool) -> tuple[Column, ...]:
    """The columns of a source."""
    return (*SOURCE, PROPERTIES) if include_properties else SOURCE


def of_typed_source(body_format: str, *, metadata: bool) -> tuple[Column, ...]:
    """The columns of a source with typed bodies and no user's schema. SchemaError unless the format is text."""
    if body_format != "text":
        raise SchemaError(
            f"bodyFormat={body_format} needs a schema of the body's fields: .schema('id bigint, name string')"
        )
    return (*(SOURCE[:-1] if metadata else ()), Column("body", "string"))


def text(columns: Sequence[Column]) -> str:
    """The columns as in Spark's DDL, for messages. DDL is not unambiguous: a setting of the session decides whether
    `timestamp` is a type with or without a zone.
    """
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def check_source(given: Sequence[Column], *, include_properties: bool) -> None:
    """SchemaError if a user's schema for a raw source differs from the source's own: Spark does not check that."""
    expected = of_source(include_properties=include_properties)
    if tuple(given) == expected:
        return
    hint = ""
    if not include_properties and any(column.name == PROPERTIES.name for column in given):
        hint = "; the column properties comes with includeProperties=true"
    elif any(not column.nullable for column in given):
        hint = "; every column is nullable"
    raise SchemaError(
        f"the schema ({text(given)}) does not fit: rows of format mtl are ({text(expected)}){hint}. "
        "Leave the schema out, and change the rows with select"
    )


def check_names(names: Sequence[str]) -> None:
    """SchemaError if two columns have the same name: columns are found by name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"the schema names {', '.join(map(repr, twice))} more than once")


def check_sink(given: Sequence[Column], *, resource: str | None) -> None:
    """SchemaError if a sink does not accept these columns: no body, an unknown or repeated name, another type."""
    names = [column.name for column in given]
    check_names(names)
    if "body" not in names:
        raise SchemaError(
            f"the DataFrame ({text(given)}) has no column 'body', which is the body of the contents"
        )
    for column in given:
        types = SINK.get(column.name)
        if types is None:
            raise SchemaError(
                f"column {column.name!r} is not a column of a content ({', '.join(SINK)}); "
                "leave it out, or make it part of the body"
            )
        if column.type not in types:
            raise SchemaError(f"column {column.name!r} is {column.type}; it has to be {' or '.join(types)}")
    check_target(given, resource=resource, metadata=True)


def check_target(given: Sequence[Column], *, resource: str | None, metadata: bool) -> None:
    """SchemaError unless each row has a target: the option resource, or a column `resource` of the content."""
    if resource is None and not (metadata and any(column.name == "resource" for column in given)):
        hint = "" if metadata else " with includeMetadata=true"
        raise SchemaError(f"no resource to write to: give the option resource, or a column 'resource'{hint}")

from __future__ import annotations

import pytest

from mtl.errors import SchemaError
from pyspark_mtl.rows.columns import (
    SINK,
    SOURCE,
    Column,
    check_sink,
    check_source,
    check_target,
    of_source,
    of_typed_source,
    text,
)

BODY = Column("body", "binary")


def test_columns_of_a_source() -> None:
    assert text(SOURCE) == "resource string, sequence bigint, timestamp timestamp, body binary"
    assert text(of_source(include_properties=True)).endswith("body binary, properties map<string,string>")


def test_the_schema_of_the_source_is_accepted() -> None:
    for include_properties in (False, True):
        check_source(
            list(of_source(include_properties=include_properties)), include_properties=include_properties
        )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((Column("value", "binary"),), "rows of format mtl are .resource string"),
        (SOURCE[::-1], "does not fit"),
        ((*SOURCE, Column("properties", "map<string,string>")), "comes with includeProperties=true"),
        ((*SOURCE[:3], Column("body", "string")), "body string"),
        ((*SOURCE[:3], Column("body", "binary", nullable=False)), "every column is nullable"),
    ],
)
def test_another_schema_is_an_error_that_shows_the_expected_one(
    given: tuple[Column, ...], words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        check_source(given, include_properties=False)


def test_a_sink_accepts_the_rows_of_a_source() -> None:
    check_sink(of_source(include_properties=True), resource=None)
    assert set(SINK) == {column.name for column in of_source(include_properties=True)}


def test_a_body_column_suffices_if_the_resource_is_an_option() -> None:
    check_sink([BODY], resource="orders")
    check_sink([Column("body", "string", nullable=False)], resource="orders")
    check_sink([BODY, Column("timestamp", "timestamp_ntz")], resource="orders")


@pytest.mark.parametrize(
    ("given", "resource", "words"),
    [
        ((Column("resource", "string"),), None, "has no column 'body'"),
        ((BODY,), None, "option resource, or a column 'resource'"),
        ((BODY, Column("value", "int")), "orders", "column 'value' is not a column of a content"),
        ((BODY, BODY), "orders", "names 'body' more than once"),
        ((Column("body", "int"),), "orders", "'body' is int; it has to be binary or string"),
        ((BODY, Column("timestamp", "date")), "orders", "'timestamp' is date"),
        ((BODY, Column("properties", "map<string,int>")), "orders", "has to be map<string,string>"),
    ],
)
def test_columns_that_a_sink_does_not_accept_are_errors(
    given: tuple[Column, ...], resource: str | None, words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        check_sink(given, resource=resource)


def test_only_text_bodies_have_a_default_schema() -> None:
    assert text(of_typed_source("text", metadata=False)) == "body string"
    assert text(of_typed_source("text", metadata=True)).endswith("timestamp timestamp, body string")
    with pytest.raises(SchemaError, match="bodyFormat=json needs a schema"):
        of_typed_source("json", metadata=False)


def test_a_body_column_named_resource_does_not_select_the_target() -> None:
    column = Column("resource", "string")
    check_target([column], resource=None, metadata=True)
    check_target([column], resource="orders", metadata=False)
    with pytest.raises(SchemaError, match=r"no resource to write to.*with includeMetadata=true"):
        check_target([column], resource=None, metadata=False)

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from mtl.errors import OptionError, SchemaError
from pyspark_mtl.datasource import DefaultSource, MtlDataSource
from pyspark_mtl.source.source import BatchReader
from pyspark_mtl.source.stream_limited import LimitedStreamReader
from pyspark_mtl.source.stream_unlimited import UnlimitedStreamReader

BODY = StructType([StructField("body", BinaryType())])


def source(**options: str) -> MtlDataSource:
    return MtlDataSource({name.lower(): value for name, value in options.items()})


ROWS = StructType([
    StructField("resource", StringType()),
    StructField("sequence", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("body", BinaryType()),
])  # fmt: skip


def test_the_data_source_is_found_by_name() -> None:
    assert DefaultSource is MtlDataSource
    assert DefaultSource.name() == "mtl"


def test_the_schema_depends_on_the_options() -> None:
    """As types: text would be DDL, in which a setting of the session decides what `timestamp` is."""
    assert source().schema() == ROWS
    properties = MapType(StringType(), StringType())
    assert source(includeProperties="true").schema() == StructType([
        *ROWS, StructField("properties", properties)
    ])  # fmt: skip
    assert source(bodyFormat="text", includeMetadata="true").schema() == StructType([
        *list(ROWS)[:3], StructField("body", StringType())
    ])  # fmt: skip


def test_an_unknown_option_is_an_error_right_away() -> None:
    with pytest.raises(OptionError, match="did you mean 'resources'"):
        source(resorces="a")


def test_the_data_source_creates_readers_and_writers() -> None:
    found = pickle.loads(pickle.dumps(source(resources="a")))
    assert isinstance(found.reader(ROWS), BatchReader)
    assert isinstance(found.streamReader(schema=ROWS), LimitedStreamReader)
    pickle.loads(pickle.dumps(source(resource="a").writer(BODY, overwrite=False)))
    pickle.loads(pickle.dumps(source(resource="a").streamWriter(BODY, overwrite=False)))


def test_an_error_of_a_streaming_read_is_raised_later() -> None:
    found = source()
    with pytest.raises(OptionError, match="neither is given"):
        found.reader(ROWS)
    reader = found.streamReader(ROWS)
    with pytest.raises(OptionError, match="neither is given"):
        reader.initialOffset()


def test_a_schema_that_does_not_fit_is_an_error() -> None:
    found = source(resources="a")
    with pytest.raises(SchemaError, match="does not fit"):
        found.reader(BODY)
    with pytest.raises(SchemaError, match="does not fit"):
        found.streamReader(BODY).initialOffset()


def test_a_frame_without_a_body_is_an_error() -> None:
    value = StructType([StructField("resource", StringType())])
    with pytest.raises(SchemaError, match="no column 'body'"):
        source(resource="a").writer(value, overwrite=False)
    with pytest.raises(SchemaError, match="no column 'body'"):
        source(resource="a").streamWriter(value, overwrite=False)


def test_an_overwrite_needs_the_option() -> None:
    with pytest.raises(OptionError, match=r"mode\('append'\)"):
        source(resource="a").writer(BODY, overwrite=True)
    with pytest.raises(OptionError, match=r"outputMode\('append'\)"):
        source(resource="a").streamWriter(BODY, overwrite=True)
    settings = source(resource="a", overwriteMode="truncate")
    pickle.loads(pickle.dumps(settings.writer(BODY, overwrite=True)))
    pickle.loads(pickle.dumps(settings.streamWriter(BODY, overwrite=True)))


def test_before_spark_4_2_a_streaming_read_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_mtl.datasource.HAS_LIMITS", False)
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    pickle.loads(pickle.dumps(source(resources="a").streamReader(ROWS)))
    reader = source(resources="a", maxOffsetsPerTrigger="5").streamReader(ROWS)
    assert isinstance(reader, UnlimitedStreamReader)
    with pytest.raises(
        OptionError, match=r"maxOffsetsPerTrigger needs Spark 4.2 or newer.* this is Spark 4.1.4"
    ):
        reader.latestOffset()


def test_typed_bodies_have_the_schema_given_by_the_user() -> None:
    value = StructType([StructField("id", LongType())])
    found = source(resources="a", bodyFormat="json")
    pickle.loads(pickle.dumps(found.reader(value)))
    pickle.loads(pickle.dumps(found.streamReader(value)))
    with pytest.raises(SchemaError, match="bodyFormat=json needs a schema"):
        found.schema()
    required = StructType([StructField("id", LongType(), nullable=False)])
    with pytest.raises(SchemaError, match="NOT NULL"):
        found.reader(required)
    with pytest.raises(SchemaError, match="NOT NULL"):
        found.streamReader(required).initialOffset()


def test_a_type_unknown_to_arrow_is_a_schema_error() -> None:
    interval = StructType([StructField("i", YearMonthIntervalType())])
    with pytest.raises(SchemaError, match="a type that bodies cannot hold"):
        source(resources="a", bodyFormat="json").streamReader(interval).initialOffset()


def test_typed_rows_need_no_body_column() -> None:
    value = StructType([StructField("id", LongType(), nullable=False), StructField("resource", StringType())])
    target = source(resource="a", bodyFormat="json")
    pickle.loads(pickle.dumps(target.writer(value, overwrite=False)))
    pickle.loads(pickle.dumps(target.streamWriter(value, overwrite=False)))
    with pytest.raises(SchemaError, match="no resource to write to"):
        source(bodyFormat="json").writer(value, overwrite=False)
    source(bodyFormat="json", includeMetadata="true").writer(value, overwrite=False)

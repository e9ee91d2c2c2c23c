"""Batch reads of MTL resources with a real Spark from a real broker. Streams: test_streams.py."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality

import mtl
import mtl.testing
from tests.support.contents import numbers, publish
from tests.support.queries import bodies, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_batch_read_is_the_contents_of_a_resource(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    before = datetime.now(UTC)
    publish(connection, resource, "one", "two", "")
    frame = read(spark, broker, resources=resource)
    expected = spark.createDataFrame(
        [(resource, 1, bytearray(b"one")), (resource, 2, bytearray(b"two")), (resource, 3, bytearray())],
        "resource string, sequence bigint, body binary",
    )
    assert_df_equality(frame.drop("timestamp"), expected)
    times = [row.timestamp for row in frame.selectExpr("unix_micros(timestamp) timestamp").collect()]
    assert all(before.timestamp() * 1e6 <= at <= time.time() * 1e6 for at in times)


def test_properties_are_a_column(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    publish(connection, resource, "with", kind="order", number=7, urgent=True)
    publish(connection, resource, "without")
    frame = read(spark, broker, resources=resource, includeProperties="true")
    expected = spark.createDataFrame(
        [(1, {"kind": "order", "number": "7", "urgent": "true"}), (2, {})],
        "sequence bigint, properties map<string,string>",
    )
    assert_df_equality(frame.select("sequence", "properties"), expected)


def test_start_and_end_of_a_batch_read(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    publish(connection, resource, *numbers(1, 20))
    middle = datetime.now(UTC).isoformat()
    publish(connection, resource, *numbers(21, 30))

    def found(**options: str) -> list[str]:
        return bodies(read(spark, broker, resources=resource, **options))

    assert found() == numbers(1, 30)
    assert found(startingOffsets=f'{{"{resource}": 11}}') == numbers(11, 30)
    assert found(endingOffsets=f'{{"{resource}": 11}}') == numbers(1, 10)
    assert found(startingTimestamp=middle) == numbers(21, 30)
    assert found(endingTimestamp=middle) == numbers(1, 20)


def test_a_batch_read_is_split_into_tasks(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    publish(connection, resource, *numbers(1, 30))
    frame = read(spark, broker, resources=resource, maxRecordsPerPartition="7")
    assert [row["count"] for row in frame.groupBy("resource").count().collect()] == [30]
    parts = frame.selectExpr("spark_partition_id() part", "sequence").groupBy("part").count().collect()
    assert sorted(row["count"] for row in parts) == [6, 6, 6, 6, 6]
    assert bodies(frame) == numbers(1, 30)


def test_several_resources_are_read_by_pattern(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection
) -> None:
    for name, body in (("pattern-a", "1"), ("pattern-b", "2"), ("other-c", "3")):
        connection.create_resource(name)
        publish(connection, name, body)
    assert bodies(read(spark, broker, resourcePattern="pattern-.*")) == ["1", "2"]
    assert bodies(read(spark, broker, resourcePattern="nothing-like-it")) == []


def test_a_temporary_view_is_read_in_sql(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    publish(connection, resource, "one")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW contents USING mtl "
        f"OPTIONS (endpoint '{broker.endpoint}', resources '{resource}')"
    )
    assert [row.body for row in spark.sql("SELECT CAST(body AS STRING) body FROM contents").collect()] == [
        "one"
    ]


def test_many_contents_are_read_completely(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    publish(connection, resource, *(f"{number:0100d}" for number in range(200_000)))
    frame = read(spark, broker, resources=resource, minPartitions="4")
    found = frame.selectExpr(
        "count(*)", "count(distinct sequence)", "max(sequence)", "sum(cast(cast(body as string) as bigint))"
    )
    assert tuple(found.collect()[0]) == (200_000, 200_000, 200_000, sum(range(200_000)))

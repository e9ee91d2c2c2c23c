"""Settings of a session that change DDL, Arrow or times, each with a write and reads of the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import TimestampType

import mtl
import mtl.testing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SETTINGS: dict[str, str] = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
}

NOON = "2026-01-31 12:00:00"
ROWS = (
    "SELECT id, cast(id AS decimal(10,2)) c, concat('v', id) v, cast('ab' AS binary) x, "
    f"timestamp_ntz'{NOON}' l, timestamp'{NOON}' timestamp, map('k', 'v') properties FROM range(3)"
)
BODY = "id bigint, c decimal(10,2), v string, x binary, l timestamp_ntz"


@pytest.fixture(params=SETTINGS, ids=lambda name: name.removeprefix("spark.sql."))
def setting(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a setting, which has the value of the table during a test."""
    before = spark.conf.get(request.param)
    spark.conf.set(request.param, SETTINGS[request.param])
    yield request.param
    spark.conf.set(request.param, before or "")


def options(frame: Any, broker: mtl.testing.RunningBroker, **more: Any) -> Any:
    return frame.format("mtl").options(endpoint=broker.endpoint, **more)


def test_rows_are_written_and_read_as_without_the_setting(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, setting: str
) -> None:
    name = setting.rpartition(".")[2]
    rows = spark.sql(ROWS).coalesce(1)
    write = options(rows.write, broker, resource=name, createResource=True, bodyFormat="json")
    write.options(includeMetadata=True).mode("append").save()
    raw = options(spark.read, broker, resources=name, includeProperties=True).load()
    assert raw.schema["timestamp"].dataType == TimestampType()
    first = raw.orderBy("sequence").collect()[0]
    # Noon of the session is five hours later in UTC, if its type has a zone.
    hour = 17 if setting == "spark.sql.session.timeZone" else 12
    assert first.properties == {"k": "v", "timestamp": f"2026-01-31T{hour}:00:00.000000Z"}
    assert bytes(first.body) == b'{"id":0,"c":0.00,"v":"v0","x":"YWI=","l":"2026-01-31T12:00:00"}'
    typed = options(spark.read, broker, resources=name, bodyFormat="json", includeMetadata=True)
    found = typed.schema(f"timestamp timestamp, {BODY}").load()
    assert sorted(row[1:] for row in found.collect()) == sorted(row[:5] for row in rows.collect())
    text = options(spark.read, broker, resources=name, bodyFormat="text", includeMetadata=True).load()
    with connection.reader(name, start="earliest", until=4) as reader:
        appended = [content.timestamp for content in reader]
    assert [row.t for row in text.selectExpr("unix_micros(timestamp) t").collect()] == appended


def test_an_empty_frame_creates_its_resource(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection
) -> None:
    rows = spark.sql("SELECT 'x' body").where("body = 'y'")
    options(rows.write, broker, resource="empty", createResource=True).mode("append").save()
    assert connection.describe(["empty"])["empty"].contents == 0

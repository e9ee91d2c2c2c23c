"""Typed bodies with a real Spark and a real broker: read, streamed and written, in every format and mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException

import mtl
import mtl.testing
from tests.support.contents import publish, visible
from tests.support.queries import forget_commit, run_now
from tests.support.texts import in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

GOOD = [b'{"id": 1, "name": "one"}', b'{"id": 2, "more": []}']
BAD = [b"no JSON", b'{"id": "text"}']
MIXED = [GOOD[0], BAD[0], GOOD[1], BAD[1]]

ROW = (
    "n bigint, i int, s smallint, b tinyint, f float, d double, c decimal(10,2), t string, o boolean, x binary, "
    "day date, at timestamp, local timestamp_ntz, l array<int>, r struct<a:int,b:string>, m map<string,double>"
)


def read(
    spark: SparkSession, broker: mtl.testing.RunningBroker, resource: str, schema: str, **options: str
) -> DataFrame:
    reader = spark.read.format("mtl").options(endpoint=broker.endpoint, resources=resource)
    return reader.options(**({"bodyFormat": "json"} | options)).schema(schema).load()


def stream(
    spark: SparkSession, broker: mtl.testing.RunningBroker, resource: str, schema: str, **options: str
) -> DataFrame:
    reader = spark.readStream.format("mtl").options(endpoint=broker.endpoint, resources=resource)
    reader = reader.options(**({"bodyFormat": "json", "startingOffsets": "earliest"} | options))
    return reader.schema(schema).load()


def save(frame: DataFrame, broker: mtl.testing.RunningBroker, **options: str) -> None:
    frame.write.format("mtl").mode("append").options(endpoint=broker.endpoint, **options).save()


def everything(spark: SparkSession) -> DataFrame:
    """A row with a value of every type, and a row of nulls."""
    return spark.sql(
        "SELECT 1L n, 2 i, 3S s, 4Y b, 1.5F f, -0.1D d, 12.50BD c, 'ä\n' t, true o, X'00FF' x, date'2026-01-31' day, "
        "timestamp'2026-01-31 12:00:00.000001' at, timestamp_ntz'2026-01-31 12:00:00' local, array(1, null) l, "
        "named_struct('a', 1, 'b', null) r, map('k', 1.5D, 'z', null) m "
        f"UNION ALL SELECT {', '.join(['null'] * 16)}"
    ).coalesce(1)


@pytest.mark.parametrize("body_format", ["json", "msgpack", "arrow"])
def test_every_type_is_read_as_written(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, body_format: str
) -> None:
    connection.create_resource(f"types-{body_format}")
    frame = spark.createDataFrame(everything(spark).collect(), ROW).coalesce(1)
    save(frame, broker, resource=f"types-{body_format}", bodyFormat=body_format)
    found = read(spark, broker, f"types-{body_format}", ROW, bodyFormat=body_format)
    assert_df_equality(found, frame)


@pytest.mark.parametrize("body_format", ["text", "json", "msgpack", "arrow"])
def test_a_stream_copies_typed_rows_once(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    body_format: str,
    tmp_path: Path,
) -> None:
    source, target = f"stream-{body_format}-in", f"stream-{body_format}-out"
    for name in (source, target):
        connection.create_resource(name)
    save(spark.range(50).selectExpr("cast(id as string) v"), broker, resource=source, bodyFormat=body_format)
    options = {"resource": target, "bodyFormat": body_format, "endpoint": broker.endpoint}
    for _ in range(2):
        run_now(
            stream(spark, broker, source, "v string", bodyFormat=body_format), tmp_path, sink="mtl", **options
        )
        forget_commit(tmp_path, 0)
    found = read(spark, broker, target, "v string", bodyFormat=body_format)
    assert sorted(int(row.v) for row in found.collect()) == list(range(50))


def test_metadata_and_properties_are_columns_in_addition_to_the_body(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    rows = [("one", resource, {"k": "v"}), ("two", resource, None)]
    frame = spark.createDataFrame(rows, "v string, resource string, properties map<string,string>").coalesce(
        1
    )
    save(frame, broker, bodyFormat="json", includeMetadata="true")
    schema = "resource string, v string, sequence bigint, timestamp timestamp, properties map<string,string>"
    found = read(spark, broker, resource, schema, includeMetadata="true")
    expected = [(resource, "one", 1, {"k": "v"}), (resource, "two", 2, {})]
    assert_df_equality(
        found.drop("timestamp"),
        spark.createDataFrame(
            expected, "resource string, v string, sequence bigint, properties map<string,string>"
        ),
    )
    assert found.where("timestamp > '2026-01-01'").count() == 2


def test_text_bodies_need_no_schema(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    publish(connection, resource, b"one", "zwölf".encode())
    reader = spark.read.format("mtl").options(endpoint=broker.endpoint, resources=resource, bodyFormat="text")
    assert_df_equality(reader.load(), spark.createDataFrame([("one",), ("zwölf",)], "body string"))


def test_modes_for_bad_bodies(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    publish(connection, resource, *MIXED)
    schema = "id bigint, _corrupt_record string"
    permissive = [(1, None), (None, BAD[0].decode()), (2, None), (None, BAD[1].decode())]
    assert_df_equality(read(spark, broker, resource, schema), spark.createDataFrame(permissive, schema))
    dropped = read(spark, broker, resource, "id bigint", mode="DROPMALFORMED")
    assert [row.id for row in dropped.collect()] == [1, 2]
    failing = read(spark, broker, resource, "id bigint", mode="FAILFAST")
    with pytest.raises(PySparkException, match=in_order("content 2", f"'{resource}'", "json")):
        failing.collect()


def test_bad_bodies_become_dead_letters_once_with_their_origin(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    """Spark repeats the batch twice, and a batch read of the same contents follows."""
    publish(connection, resource, *MIXED)
    options = {"mode": "DROPMALFORMED", "deadLetter": f"{resource}.bad"}
    for _ in range(3):
        run_now(stream(spark, broker, resource, "id bigint", **options), tmp_path)
        forget_commit(tmp_path, 0)
    assert read(spark, broker, resource, "id bigint", **options).count() == 2
    found = visible(connection, f"{resource}.bad")
    assert [bytes(letter.body) for letter in found] == BAD
    incarnation = connection.describe([resource])[resource].incarnation
    for letter, sequence in zip(found, (2, 4), strict=True):
        properties = dict(letter.properties)
        assert properties.pop("dead-letter-reason")
        assert properties == {
            "dead-letter-resource": resource,
            "dead-letter-incarnation": incarnation,
            "dead-letter-sequence": sequence,
        }


def test_a_missing_or_impossible_schema_is_an_error(
    spark: SparkSession, broker: mtl.testing.RunningBroker, resource: str
) -> None:
    reader = spark.read.format("mtl").options(endpoint=broker.endpoint, resources=resource, bodyFormat="json")
    with pytest.raises(PySparkException, match="bodyFormat=json needs a schema"):
        reader.load()
    with pytest.raises(PySparkException, match=in_order("type", "parse_json")):
        reader.schema("v variant").load().collect()

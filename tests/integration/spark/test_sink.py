"""Writing into MTL resources with a real Spark and a real broker: visible contents, exactly once."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql.datasource import WriterCommitMessage

import mtl
import mtl.testing
from mtl.wire.control import Retention
from pyspark_mtl import MtlDataSource
from pyspark_mtl.sink.sink import BatchWriter
from tests.support.contents import numbers, publish, texts
from tests.support.queries import batches, forget_commit, logged, run_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.spark

OUTAGE_S = 3.0
"""How long the broker is away while a query runs: less than the connector's retryDeadline, 30 s."""


@pytest.fixture
def source(connection: mtl.Connection, request: pytest.FixtureRequest) -> str:
    """A source resource for one test."""
    name = f"{request.node.name}-in"
    connection.create_resource(name)
    return name


@pytest.fixture
def target(connection: mtl.Connection, request: pytest.FixtureRequest) -> str:
    """A target resource for one test."""
    name = f"{request.node.name}-out"
    connection.create_resource(name)
    return name


def stream(spark: SparkSession, broker: mtl.testing.RunningBroker, source: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("mtl").option("endpoint", broker.endpoint).option("resources", source)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def copy(
    frame: DataFrame, broker: mtl.testing.RunningBroker, checkpoint: Path, **options: str
) -> StreamingQuery:
    return run_now(frame, checkpoint, sink="mtl", endpoint=broker.endpoint, **options)


def save(frame: DataFrame, broker: mtl.testing.RunningBroker, **options: str) -> None:
    frame.write.format("mtl").mode("append").option("endpoint", broker.endpoint).options(**options).save()


# --- streams ------------------------------------------------------------------------------------------------


def test_a_query_copies_every_content_once(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    publish(connection, source, *numbers(1, 100))
    frame = stream(spark, broker, source, maxOffsetsPerTrigger="40").select("body")
    first = copy(frame, broker, tmp_path, resource=target)
    publish(connection, source, *numbers(101, 110))
    copy(frame, broker, tmp_path, resource=target)
    assert batches(first) == [40, 40, 20]
    assert texts(connection, target) == numbers(1, 110)


def test_a_batch_repeated_by_spark_is_published_once(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    """Spark dies several times after the sink's commit and before its own."""
    publish(connection, source, *numbers(1, 20))
    frame = stream(spark, broker, source).select("body")
    query = copy(frame, broker, tmp_path, resource=target)
    for _ in range(2):
        forget_commit(tmp_path, 0)
        copy(frame, broker, tmp_path, resource=target)
    publish(connection, source, *numbers(21, 30))
    copy(frame, broker, tmp_path, resource=target)
    assert texts(connection, target) == numbers(1, 30)
    (application,) = connection.stages(str(query.id)).applications
    assert (application.version, application.replays) == (1, 2)
    assert connection.stages(str(query.id)).stages == []


@pytest.mark.parametrize("forgotten", [(1, 2), (2,)], ids=["two batches", "one batch"])
def test_a_rolled_back_checkpoint_is_an_error(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    tmp_path: Path,
    forgotten: tuple[int, ...],
) -> None:
    """If the commit were ignored, the contents of the repeated batches would be lost silently. The last batch is
    recognised by its digest: it includes contents that arrived later.
    """
    source, target = f"rolled-back-{len(forgotten)}-in", f"rolled-back-{len(forgotten)}-out"
    for name in (source, target):
        connection.create_resource(name)
    frame = stream(spark, broker, source, maxOffsetsPerTrigger="10").select("body")
    publish(connection, source, *numbers(1, 25))
    copy(frame, broker, tmp_path, resource=target)
    assert logged(tmp_path, "commits") == [0, 1, 2]
    for batch in forgotten:
        forget_commit(tmp_path, batch)
        for path in (tmp_path / "offsets").glob(f"*{batch}*"):
            path.unlink()
    publish(connection, source, *numbers(26, 30))
    for _ in range(2):
        with pytest.raises(PySparkException, match="the checkpoint was rolled back or copied"):
            copy(frame, broker, tmp_path, resource=target)
    assert texts(connection, target) == numbers(1, 25)


def test_another_query_cannot_use_the_name_of_an_application(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    frame = stream(spark, broker, source).select("body")
    publish(connection, source, *numbers(1, 10))
    copy(frame, broker, tmp_path / "one", resource=target, txnAppId="reused")
    with pytest.raises(PySparkException, match="the name is reused by another query"):
        copy(frame, broker, tmp_path / "two", resource=target, txnAppId="reused")
    assert texts(connection, target) == numbers(1, 10)


def test_rows_are_written_to_the_resource_of_their_column(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    tmp_path: Path,
) -> None:
    publish(connection, source, *numbers(1, 30))
    frame = stream(spark, broker, source).selectExpr(
        "body", "concat('routed-', cast(cast(body as string) as int) % 3) as resource"
    )
    copy(frame, broker, tmp_path, createResource="true")
    for rest in range(3):
        expected = [str(number) for number in range(1, 31) if number % 3 == rest]
        assert texts(connection, f"routed-{rest}") == expected


def test_empty_batches_and_partitions_leave_no_stages(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    publish(connection, source, *numbers(1, 10))
    frame = stream(spark, broker, source, maxRecordsPerPartition="2").select("body")
    query = copy(frame.where("body = X'33'"), broker, tmp_path, resource=target)
    publish(connection, source, "nothing that passes")
    copy(frame.where("body = X'33'"), broker, tmp_path, resource=target)
    assert texts(connection, target) == ["3"]
    found = connection.stages(str(query.id))
    assert [(application.version, application.resources) for application in found.applications] == [(1, {})]
    assert found.stages == []


def test_at_least_once_appends_without_stages(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    publish(connection, source, *numbers(1, 10))
    frame = stream(spark, broker, source).select("body")
    query = copy(frame, broker, tmp_path, resource=target, deliveryGuarantee="at-least-once")
    assert texts(connection, target) == numbers(1, 10)
    forget_commit(tmp_path, 0)
    copy(frame, broker, tmp_path, resource=target, deliveryGuarantee="at-least-once")
    assert texts(connection, target) == numbers(1, 10) * 2
    assert connection.stages(str(query.id)).applications == []


def test_closed_windows_of_an_aggregation_are_published(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    publish(connection, source, *[f"2026-01-0{day} 00:00:00" for day in (1, 1, 2, 3, 3, 3, 9)])
    frame = (
        stream(spark, broker, source)
        .selectExpr("cast(cast(body as string) as timestamp) as at")
        .withWatermark("at", "1 day")
        .groupBy("at")
        .count()
        .selectExpr("concat(date(at), ' ', count) as body")
    )
    copy(frame, broker, tmp_path, resource=target)
    assert sorted(texts(connection, target)) == ["2026-01-01 2", "2026-01-02 1", "2026-01-03 3"]


def test_foreach_batch_with_a_name_writes_once(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    publish(connection, source, *numbers(1, 10))

    def write(frame: DataFrame, batch: int) -> None:
        save(frame.select("body"), broker, resource=target, txnAppId="each", txnVersion=str(batch))

    for _ in range(2):
        writer = stream(spark, broker, source).writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        forget_commit(tmp_path, 0)
    assert texts(connection, target) == numbers(1, 10)


def test_two_writes_of_a_batch_are_each_published_once(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    """Two actions of one foreachBatch are two applications; both ignore a repetition of the batch."""
    other = f"{target}-other"
    publish(connection, source, *numbers(1, 10))

    def write(frame: DataFrame, batch: int) -> None:
        for resource, rows in ((target, "body % 2 = 0"), (other, "body % 2 = 1")):
            to = {
                "resource": resource,
                "txnAppId": resource,
                "txnVersion": str(batch),
                "createResource": "true",
            }
            save(frame.selectExpr("cast(body as string) body").where(rows), broker, **to)

    for _ in range(2):
        writer = stream(spark, broker, source).writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        forget_commit(tmp_path, 0)
    assert texts(connection, target) == ["2", "4", "6", "8", "10"]
    assert texts(connection, other) == ["1", "3", "5", "7", "9"]
    assert [connection.stages(name).applications[0].replays for name in (target, other)] == [1, 1]


def test_a_complete_result_replaces_the_former_one(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    """Output mode complete: after every batch the resource holds the whole result once, also after a repetition."""
    frame = stream(spark, broker, source).selectExpr("cast(body as string) word").groupBy("word").count()
    counts = frame.selectExpr("concat(word, ' ', count) body")

    def run() -> list[str]:
        writer = counts.writeStream.format("mtl").outputMode("complete").option("endpoint", broker.endpoint)
        writer = writer.options(resource=target, overwriteMode="truncate", checkpointLocation=str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(texts(connection, target))

    publish(connection, source, "a", "b", "a")
    assert run() == ["a 2", "b 1"]
    forget_commit(tmp_path, 0)
    assert run() == ["a 2", "b 1"]
    publish(connection, source, "b", "c")
    assert run() == ["a 2", "b 2", "c 1"]
    assert connection.describe([target])[target].earliest == 3


def test_a_query_writes_through_restarts_of_the_broker(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    frame = stream(spark, broker, source, maxOffsetsPerTrigger="1000").select("body")
    writer = frame.writeStream.format("mtl").option("endpoint", broker.endpoint).option("resource", target)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        for round_, away_s in enumerate((0, 0, OUTAGE_S)):
            publish(connection, source, *numbers(5000 * round_ + 1, 5000 * round_ + 5000))
            broker.kill()
            time.sleep(away_s)  # the broker stays silent for this time
            broker.start()
        query.processAllAvailable()
    finally:
        query.stop()
    assert query.exception() is None
    assert texts(connection, target) == numbers(1, 15_000)


# --- batches ------------------------------------------------------------------------------------------------


def test_a_dataframe_is_read_as_written(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, target: str
) -> None:
    frame = spark.sql(
        "SELECT cast('one' as binary) body, map('kind', 'order', 'n', '1') properties, "
        "timestamp'2026-01-31 12:00:00.123456' timestamp "
        "UNION ALL SELECT cast('' as binary), null, null"
    ).coalesce(1)
    save(frame, broker, resource=target)
    found = (
        spark.read.format("mtl").option("endpoint", broker.endpoint)
        .options(resources=target, includeProperties="true").load()
    )  # fmt: skip
    expected = spark.createDataFrame(
        [
            (1, bytearray(b"one"), {"kind": "order", "n": "1", "timestamp": "2026-01-31T12:00:00.123456Z"}),
            (2, bytearray(), {}),
        ],
        "sequence bigint, body binary, properties map<string,string>",
    )
    assert_df_equality(found.select("sequence", "body", "properties"), expected)
    times = found.selectExpr(
        "cast(properties['timestamp'] as timestamp) = timestamp'2026-01-31 12:00:00.123456' t"
    )
    assert [row.t for row in times.collect()] == [True, None]


def test_text_is_written_as_body(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, target: str
) -> None:
    save(spark.range(3).selectExpr("cast(id as string) body").coalesce(1), broker, resource=target)
    assert texts(connection, target) == ["0", "1", "2"]


def test_a_failed_write_is_invisible(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, target: str
) -> None:
    failing = spark.range(0, 1000, 1, 4).selectExpr(
        "if(id = 999, raise_error('the last row'), cast(id as string)) body"
    )
    with pytest.raises(PySparkException, match="the last row"):
        save(failing, broker, resource=target)
    assert texts(connection, target) == []


def test_a_repeated_write_is_published_once(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, target: str
) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) body")
    for version in ("0", "0", "1"):
        save(frame, broker, resource=target, txnAppId="loader", txnVersion=version)
    assert len(texts(connection, target)) == 20
    save(frame, broker, resource=target)
    save(frame, broker, resource=target)
    assert len(texts(connection, target)) == 40


def test_an_overwrite_replaces_all_contents_atomically(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, target: str
) -> None:
    frame = spark.range(6).selectExpr("cast(id as string) body")

    def overwrite(rows: str) -> list[str]:
        writer = frame.where(rows).write.format("mtl").mode("overwrite").option("endpoint", broker.endpoint)
        writer.options(resource=target, overwriteMode="truncate").save()
        return sorted(texts(connection, target))

    publish(connection, target, "before")
    assert overwrite("id < 3") == ["0", "1", "2"]
    assert overwrite("id > 3") == ["4", "5"]
    assert overwrite("id > 9") == []
    save(frame.where("id = 3"), broker, resource=target)
    assert texts(connection, target) == ["3"]


def test_a_resource_is_created_with_the_given_options(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection
) -> None:
    wanted = {
        "createResource": "true",
        "createDurability": "os",
        "createRetainAge": "7d",
        "createRetainFor": "etl",
    }
    save(spark.range(1).selectExpr("'x' body"), broker, resource="made", **wanted)
    made = connection.describe(["made"])["made"]
    assert (made.durability, made.retention) == ("os", Retention(age=7 * 86_400.0, groups=("etl",)))


def test_partitions_are_published_in_order(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, target: str
) -> None:
    save(spark.range(0, 40_000, 1, 4).selectExpr("cast(id as string) body"), broker, resource=target)
    assert texts(connection, target) == numbers(0, 39_999)


def test_a_write_to_several_resources_is_atomic(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    for name in ("both-a", "both-b"):
        connection.create_resource(name)
    rows: list[tuple[str, Any]] = [("both-a", "1"), ("both-b", "2"), ("both-a", "3"), ("both-c", "4")]
    frame = spark.createDataFrame(rows, "resource string, body string").coalesce(1)
    with pytest.raises(PySparkException, match="the resource 'both-c' to write to does not exist"):
        save(frame, broker)
    assert texts(connection, "both-a") == []
    save(frame.where("body < '4'"), broker)
    assert (texts(connection, "both-a"), texts(connection, "both-b")) == (["1", "3"], ["2"])


def test_a_worker_freezes_its_loaded_modules(
    spark: SparkSession, broker: mtl.testing.RunningBroker, target: str, tmp_path: Path
) -> None:
    class Watched(BatchWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            message = super().write(iterator)
            (tmp_path / "aside").write_text(str(gc.get_freeze_count()))
            return message

    class Watching(MtlDataSource):
        @classmethod
        def name(cls) -> str:
            return "watching"

        def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
            writer = super().writer(schema, overwrite)
            return Watched(writer._settings, writer._shape)

    spark.dataSource.register(Watching)
    frame = spark.range(4).selectExpr("cast(id as string) body").coalesce(1)
    options = {"endpoint": broker.endpoint, "resource": target}
    frame.write.format("watching").mode("append").options(**options).save()
    assert int((tmp_path / "aside").read_text()) > len(sys.modules)

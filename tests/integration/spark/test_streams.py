"""Streaming queries over MTL resources with a real Spark and a real broker."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import mtl
import mtl.testing
import pyspark_mtl
from mtl.wire.control import Retention
from pyspark_mtl.lag import lags
from tests.support.contents import numbers, publish
from tests.support.queries import (
    PATIENCE_S,
    batches,
    bodies,
    collect_now,
    forget_commit,
    logged,
    offset,
    run_now,
    stream,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def test_a_bounded_stream_ends_at_its_end(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    publish(connection, resource, *numbers(1, 10))
    middle = datetime.now(UTC).isoformat()
    backfill = stream(spark, broker, resources=resource, startingOffsets="earliest", endingTimestamp=middle)
    for _ in range(2):  # contents after the end are not read, nor in a later run
        publish(connection, resource, *numbers(11, 20))
        collect_now(backfill, tmp_path / "checkpoint", tmp_path / "output")
    assert bodies(spark.read.parquet(str(tmp_path / "output"))) == numbers(1, 10)
    assert logged(tmp_path / "checkpoint", "commits") == [0]


def test_a_listener_gets_the_lag_of_a_query(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    publish(connection, resource, *numbers(1, 10))
    listener = pyspark_mtl.LagListener()
    spark.streams.addListener(listener)
    try:
        frame = stream(
            spark, broker, resources=resource, startingOffsets="earliest", maxOffsetsPerTrigger="4"
        )
        query = run_now(frame, tmp_path)
        spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert listener.lag[str(query.id)][resource] == {"contents": 0, "bytes": 0, "seconds": 0.0}
    behind = [
        lags(progress.sources, progress.timestamp)[resource]
        for progress in query.recentProgress
        if progress.numInputRows
    ]
    assert [lag.contents for lag in behind] == [6, 2, 0]
    assert all((lag.bytes > 0) == (lag.seconds > 0) == (lag.contents > 0) for lag in behind)


def test_a_query_reads_every_content_once_over_its_runs(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    publish(connection, resource, *numbers(1, 30))
    source = stream(spark, broker, resources=resource, startingOffsets="earliest")
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    publish(connection, resource, *numbers(31, 50))
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    idle = collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(1, 50)
    assert batches(idle) == []
    assert logged(tmp_path / "checkpoint", "commits") == [0, 1]


def test_limits_apply_to_every_batch(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    publish(connection, resource, *numbers(1, 100))
    source = stream(spark, broker, resources=resource, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    query = run_now(source, tmp_path)
    assert batches(query) == [30, 30, 30, 10]


def test_a_limit_of_octets_applies_to_every_batch(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    for _ in range(6):
        publish(connection, resource, *["x" * 1000] * 100)
    source = stream(spark, broker, resources=resource, startingOffsets="earliest", maxBytesPerTrigger="250k")
    query = run_now(source, tmp_path)
    assert sum(batches(query)) == 600
    assert batches(query) == [200, 200, 200]


def test_latest_is_fixed_by_the_first_batch(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    publish(connection, resource, *numbers(1, 10))
    source = stream(spark, broker, resources=resource)
    assert batches(collect_now(source, tmp_path / "checkpoint", tmp_path / "out")) == []
    assert offset(tmp_path / "checkpoint", 0)["resources"][resource]["f"] == 11
    publish(connection, resource, *numbers(11, 15))
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(11, 15)


def test_an_unfinished_batch_is_read_again_unchanged(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    publish(connection, resource, *numbers(1, 10))
    source = stream(spark, broker, resources=resource, startingOffsets="earliest")
    run_now(source, tmp_path / "checkpoint")
    forget_commit(tmp_path / "checkpoint", 0)
    publish(connection, resource, *numbers(11, 15))
    again = run_now(source, tmp_path / "checkpoint")
    assert batches(again) == [10, 5]


def test_a_running_query_reads_new_contents_and_is_idle_in_between(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    checkpoint = tmp_path / "checkpoint"
    source = stream(spark, broker, resources=resource)
    query = source.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        for round_ in range(3):
            query.processAllAvailable()
            publish(connection, resource, *numbers(1, 10))
            query.processAllAvailable()
            assert sum(batches(query)) == 10 * (round_ + 1)
        done = logged(checkpoint, "commits")
        time.sleep(1.0)  # idle: nothing may happen, and that has no event to wait for
        assert logged(checkpoint, "offsets") == done
        began = time.monotonic()
    finally:
        query.stop()
    assert time.monotonic() - began < 10
    assert query.exception() is None


def test_progress_is_confirmed_to_the_group_and_usable_as_start(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    publish(connection, resource, *numbers(1, 30))
    options = {"resources": resource, "group": "billing", "maxOffsetsPerTrigger": "10"}
    run_now(stream(spark, broker, **options), tmp_path / "first")
    (cursor,) = connection.cursors(group="billing", resource=resource)
    assert (cursor.position, cursor.behind) == (31, 0)

    publish(connection, resource, *numbers(31, 35))
    collect_now(stream(spark, broker, **options), tmp_path / "second", tmp_path / "out")
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(31, 35)
    (cursor,) = connection.cursors(group="billing", resource=resource)
    assert (cursor.position, cursor.behind) == (36, 0)


def test_a_self_join_shares_its_group(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    publish(connection, resource, *numbers(1, 20))
    source = stream(spark, broker, resources=resource, group="joined")
    left = source.selectExpr("sequence", "body as left_body")
    joined = left.join(source.selectExpr("sequence", "body as right_body"), "sequence")
    collect_now(joined, tmp_path / "checkpoint", tmp_path / "out")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 20
    (cursor,) = connection.cursors(group="joined", resource=resource)
    assert cursor.position == 21


def test_a_resource_found_later_is_read_from_its_beginning(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    connection.create_resource("later-a")
    publish(connection, "later-a", "before")
    source = stream(spark, broker, resourcePattern="later-.*")
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    connection.create_resource("later-b")
    publish(connection, "later-b", "first", "second")
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == ["first", "second"]


def test_contents_removed_by_retention_end_the_query_or_are_skipped(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    name = "short-lived"
    connection.create_resource(name, retention=Retention(age=0.5))
    source = stream(spark, broker, resources=name, startingOffsets="earliest")
    with connection.reader(name, start=1, holder="this test"):  # pins unconfirmed contents
        publish(connection, name, *numbers(1, 10))
        collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    publish(connection, name, *numbers(11, 15))
    await_retention(connection, name, 16)
    with connection.reader(name, start=16, holder="this test"):
        publish(connection, name, *numbers(16, 20))
        with pytest.raises(PySparkException, match=r"contents 11 to 15 \(5 in all\) are gone"):
            collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
        forgiving = stream(spark, broker, resources=name, failOnDataLoss="false")
        collect_now(forgiving, tmp_path / "checkpoint", tmp_path / "out")
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(1, 10) + numbers(16, 20)


def test_contents_of_a_running_batch_are_pinned_against_retention(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    """The driver pins unconfirmed contents, because tasks may read them late."""
    name, out = "held", tmp_path / "out"
    connection.create_resource(name, retention=Retention(age=0.5))
    source = stream(spark, broker, resources=name, startingOffsets="earliest")
    writer = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(out))
    try:
        with connection.reader(name, start=1, holder="this test"):
            publish(connection, name, *numbers(1, 10))
            query.processAllAvailable()
        for round_ in range(1, 3):
            await_retention(connection, name, 10 * (round_ - 1) + 1)
            publish(connection, name, *numbers(10 * round_ + 1, 10 * round_ + 10))
            query.processAllAvailable()
            earliest = connection.describe([name])[name].earliest
            assert earliest <= 10 * round_ + 1, "the last batch is not confirmed before there is another"
    finally:
        query.stop()
    assert bodies(spark.read.parquet(str(out))) == numbers(1, 30)


def await_retention(connection: mtl.Connection, resource: str, earliest: int) -> None:
    """The broker applies retention every few seconds, without an event for clients."""
    deadline = time.monotonic() + 60
    while connection.describe([resource])[resource].earliest < earliest:
        assert time.monotonic() < deadline, "retention took nothing"
        time.sleep(0.1)


def await_rows(query: StreamingQuery, rows: int) -> None:
    """`processAllAvailable` is not usable: it returns while a source waits for its minimum."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(batches(query)) < rows:
        assert time.monotonic() < deadline, f"{batches(query)}, not {rows} rows"
        time.sleep(0.05)  # Spark reports the progress of a batch to listeners after its end


def test_a_batch_waits_for_its_minimum_up_to_the_delay(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "100", "maxTriggerDelay": "2s"}
    source = stream(spark, broker, resources=resource, **options)
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        publish(connection, resource, *numbers(1, 10))
        query.processAllAvailable()
        publish(connection, resource, *numbers(11, 12))
        await_rows(query, 12)
        publish(connection, resource, *numbers(13, 212))
        await_rows(query, 212)
    finally:
        query.stop()
    assert batches(query)[-1] == 200


def test_a_newer_driver_takes_over_the_group(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    source = stream(spark, broker, resources=resource, startingOffsets="earliest", group="contested")
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        publish(connection, resource, *numbers(1, 10))
        query.processAllAvailable()
        with connection.reader(resource, group="contested", holder="another driver"):
            publish(connection, resource, *numbers(11, 20))
            with pytest.raises(PySparkException, match="fenced"):
                query.awaitTermination(60)
    finally:
        query.stop()


def test_a_query_survives_a_restart_of_the_broker(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    source = stream(spark, broker, resources=resource, startingOffsets="earliest", group="survivor")
    query = (
        source.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "out"))
    )
    try:
        for round_ in range(2):
            publish(connection, resource, *numbers(10 * round_ + 1, 10 * round_ + 10))
            query.processAllAvailable()
            broker.kill()
            broker.start()
        publish(connection, resource, *numbers(21, 30))
        query.processAllAvailable()
    finally:
        query.stop()
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(1, 30)


def test_a_batch_survives_a_restart_of_the_broker(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    """Its tasks name the driver's holder, which the broker has to restore."""
    publish(connection, resource, *numbers(1, 800))
    options = {"startingOffsets": "earliest", "group": "restarted", "maxRecordsPerPartition": "20"}
    source = stream(spark, broker, resources=resource, **options)
    writer = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    tracker = spark.sparkContext.statusTracker()
    query = writer.start(str(tmp_path / "out"))
    try:
        deadline = time.monotonic() + 60
        while not any(
            stage.numCompletedTasks
            for number in tracker.getActiveStageIds()
            if (stage := tracker.getStageInfo(number)) is not None
        ):
            assert time.monotonic() < deadline, "no task ends"
            time.sleep(0.01)  # Spark reports ended tasks to Python only on request
        broker.kill()
        broker.start()
        query.processAllAvailable()
    finally:
        query.stop()
    assert query.exception() is None
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(1, 800)

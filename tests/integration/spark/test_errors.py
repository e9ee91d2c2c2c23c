"""Bad input gives an early error that names the mistake in terms of the query."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import mtl
import mtl.testing
from mtl.limits import MAX_CONTENT
from tests.support.contents import numbers, publish
from tests.support.queries import run_now
from tests.support.texts import in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NOBODY = "tcp://127.0.0.1:9"
"""The discard service, which nobody runs."""


def read(spark: SparkSession, endpoint: str, **options: str) -> DataFrame:
    return spark.read.format("mtl").option("endpoint", endpoint).options(**options).load()


def stream(spark: SparkSession, endpoint: str, **options: str) -> DataFrame:
    return spark.readStream.format("mtl").option("endpoint", endpoint).options(**options).load()


def save(frame: DataFrame, endpoint: str, **options: str) -> None:
    frame.write.format("mtl").mode("append").option("endpoint", endpoint).options(**options).save()


# --- options ------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_an_error_with_a_suggestion(spark: SparkSession) -> None:
    with pytest.raises(
        PySparkException, match="unknown option 'startingoffset'; did you mean 'startingOffsets'"
    ):
        read(spark, NOBODY, resources="a", startingOffset="earliest")
    with pytest.raises(PySparkException, match="did you mean 'resource'"):
        save(spark.range(1).selectExpr("'x' body"), NOBODY, resourse="a")


def test_a_value_that_does_not_fit_names_its_option(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="option failOnDataLoss: it is neither true nor false"):
        read(spark, NOBODY, resources="a", failOnDataLoss="no")


def test_no_resources_are_an_error_in_batches_and_streams(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=in_order("resources", "resourcePattern", "neither")):
        read(spark, NOBODY).collect()
    with pytest.raises(PySparkException, match=in_order("resources", "resourcePattern", "neither")):
        run_now(stream(spark, NOBODY), tmp_path)


def test_an_option_of_batch_reads_is_an_error_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="endingOffsets=latest has no meaning in a streaming read"):
        run_now(stream(spark, NOBODY, resources="a", endingOffsets="latest"), tmp_path)


# --- the broker ---------------------------------------------------------------------------------------------


def test_an_absent_broker_is_an_error_after_the_deadline(spark: SparkSession, tmp_path: Path) -> None:
    patience = {"requestTimeout": "500ms", "retryDeadline": "1s"}
    frame = spark.range(1).selectExpr("'x' body")
    words = f"no answer from {NOBODY}"
    for attempt in (
        lambda: read(spark, NOBODY, resources="a", **patience).collect(),
        lambda: run_now(stream(spark, NOBODY, resources="a", **patience), tmp_path),
        lambda: save(frame, NOBODY, resource="a", **patience),
    ):
        began = time.monotonic()
        with pytest.raises(PySparkException, match=words):
            attempt()
        assert time.monotonic() - began < 30


def test_a_lost_broker_ends_the_query_after_the_deadline(spark: SparkSession, tmp_path: Path) -> None:
    with mtl.testing.broker() as broker:
        with mtl.connect(broker.endpoint) as connection:
            connection.create_resource("left")
            publish(connection, "left", *numbers(1, 10))
        options = {
            "startingOffsets": "earliest",
            "group": "g",
            "requestTimeout": "500ms",
            "retryDeadline": "2s",
        }
        source = stream(spark, broker.endpoint, resources="left", **options)
        query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        query.processAllAvailable()
        broker.kill()
        began = time.monotonic()
        words = f"no answer from {broker.endpoint} within .*; check the endpoint.*longer deadline"
        with pytest.raises(PySparkException, match=words):
            query.awaitTermination(60)
        assert time.monotonic() - began < 30


def test_a_missing_resource_is_named(
    spark: SparkSession, broker: mtl.testing.RunningBroker, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="the resource 'nowhere' to read does not exist"):
        read(spark, broker.endpoint, resources="nowhere").collect()
    with pytest.raises(PySparkException, match="the resource 'nowhere' to read does not exist"):
        run_now(stream(spark, broker.endpoint, resources="nowhere"), tmp_path)
    with pytest.raises(PySparkException, match=r"'nowhere' to write to does not exist.*createResource=true"):
        save(spark.range(1).selectExpr("'x' body"), broker.endpoint, resource="nowhere")


# --- offsets ------------------------------------------------------------------------------------------------


def test_a_recreated_resource_ends_the_query(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    connection.create_resource("again")
    publish(connection, "again", *numbers(1, 10))
    run_now(stream(spark, broker.endpoint, resources="again", startingOffsets="earliest"), tmp_path)
    connection.delete_resource("again")
    with pytest.raises(PySparkException, match="resource 'again' was deleted"):
        run_now(stream(spark, broker.endpoint, resources="again"), tmp_path)
    connection.create_resource("again")
    publish(connection, "again", *numbers(1, 5))
    with pytest.raises(PySparkException, match="resource 'again' was deleted and created again"):
        run_now(stream(spark, broker.endpoint, resources="again"), tmp_path)
    forgiving = stream(spark, broker.endpoint, resources="again", failOnDataLoss="false")
    assert sum(progress.numInputRows for progress in run_now(forgiving, tmp_path).recentProgress) == 5


def test_a_changed_source_ends_the_query(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    """The sources of a union change places; then one reads another resource, first by mistake and then on purpose."""
    for name in ("x", "y", "z"):
        connection.create_resource(name)
        publish(connection, name, *numbers(1, 10))

    def run(*sources: str, **options: str) -> int:
        first, second = (
            stream(spark, broker.endpoint, resources=name, startingOffsets="earliest", **options)
            for name in sources
        )
        return sum(
            progress.numInputRows for progress in run_now(first.union(second), tmp_path).recentProgress
        )

    assert run("x", "y") == 20
    with pytest.raises(
        PySparkException, match=r"has read '[xy]' up to 10, and its options are resources=[xy]:"
    ):
        run("y", "x")
    with pytest.raises(PySparkException, match=in_order("'y'", 10, "resources=z", "formerPattern=y")):
        run("x", "z")
    assert run("x", "z", formerPattern="y") == 10


def test_a_start_outside_the_log_ends_the_query(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    connection.create_resource("short")
    publish(connection, "short", *numbers(1, 10))
    beyond = stream(spark, broker.endpoint, resources="short", startingOffsets='{"short": 90}')
    with pytest.raises(PySparkException, match=in_order("'short'", 11, 90)):
        run_now(beyond, tmp_path)
    with pytest.raises(PySparkException, match=in_order("'short'", 11, "11 to 89")):
        read(spark, broker.endpoint, resources="short", endingOffsets='{"short": 90}').collect()


def test_a_checkpoint_of_another_source_is_an_error(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    connection.create_resource("mine")
    run_now(stream(spark, broker.endpoint, resources="mine", startingOffsets="earliest"), tmp_path)
    log = tmp_path / "offsets" / "0"
    lines = log.read_text(encoding="utf-8").splitlines()
    (tmp_path / "offsets" / ".0.crc").unlink(missing_ok=True)
    log.write_text("\n".join([*lines[:2], '{"orders-0": 5}']), encoding="utf-8")
    with pytest.raises(PySparkException, match="holds an offset that is not of this source"):
        run_now(stream(spark, broker.endpoint, resources="mine"), tmp_path)


# --- schemas and rows ---------------------------------------------------------------------------------------


def test_a_wrong_schema_is_an_error_that_shows_the_expected_one(spark: SparkSession, tmp_path: Path) -> None:
    words = (
        r"the schema .value string. does not fit: rows of format mtl are .resource string, sequence bigint"
    )
    with pytest.raises(PySparkException, match=words):
        spark.read.format("mtl").option("resources", "a").schema("value string").load().collect()
    wrong = spark.readStream.format("mtl").option("resources", "a").schema("value string").load()
    with pytest.raises(PySparkException, match=words):
        run_now(wrong, tmp_path)


def test_a_frame_without_a_body_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="has no column 'body'"):
        save(spark.range(1), NOBODY, resource="a")


def test_rows_that_cannot_be_contents_are_errors(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection
) -> None:
    connection.create_resource("rows")
    for expressions, words in (
        (["cast(null as binary) body", "'rows' resource"], "the body of a row is null"),
        (["'x' body", "cast(null as string) resource"], "the resource of a row is null"),
        (["'x' body", "'rows' resource", "map('mtl-count', '1') properties"], "are the broker's"),
        (
            [f"repeat('x', {MAX_CONTENT + 1}) body", "'rows' resource"],
            f"{MAX_CONTENT + 1} octets is above the",
        ),
    ):
        with pytest.raises(PySparkException, match=words):
            save(spark.range(1).selectExpr(*expressions), broker.endpoint)
    assert connection.describe(["rows"])["rows"].contents == 0


def test_an_overwrite_needs_the_option(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("'x' body")
    with pytest.raises(PySparkException, match=r"resources are logs. Use .mode\('append'\)"):
        frame.write.format("mtl").mode("overwrite").option("resource", "a").save()

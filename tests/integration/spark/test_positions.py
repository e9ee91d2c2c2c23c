"""Start and end of reading, and positions confirmed to a group, with the option names of Kafka's source."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import mtl
import mtl.testing
from tests.support.contents import numbers, publish
from tests.support.queries import PATIENCE_S, bodies, collect_now, read, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def now() -> str:
    return datetime.now(UTC).isoformat()


def test_starting_times_per_resource(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, resource: str
) -> None:
    other = f"{resource}-other"
    connection.create_resource(other)
    moments = [now()]
    for first in (1, 11, 21):
        for name in (resource, other):
            publish(connection, name, *numbers(first, first + 9))
        moments.append(now())
    begin, end = {resource: moments[1], other: moments[2]}, {resource: moments[2], other: moments[3]}
    options = {
        "resources": f"{resource},{other}",
        "startingOffsetsByTimestamp": json.dumps(begin),
        "endingOffsetsByTimestamp": json.dumps(end),
    }
    assert bodies(read(spark, broker, **options)) == [*numbers(11, 20), *numbers(21, 30)]
    after_all = {**options, "startingOffsetsByTimestamp": json.dumps({**begin, other: moments[3]})}
    with pytest.raises(PySparkException, match=rf"{other}.*startingOffsetsByTimestampStrategy"):
        read(spark, broker, **after_all).collect()
    after_all["startingOffsetsByTimestampStrategy"] = "latest"
    assert bodies(read(spark, broker, **after_all)) == numbers(11, 20)


@pytest.mark.parametrize(("confirm_on", "idle"), [("commit", 11), ("start", 21)])
def test_a_query_that_runs_once_confirms_to_its_group_in_the_next_run(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    tmp_path: Path,
    confirm_on: str,
    idle: int,
) -> None:
    """With "commit" in its next batch, when Spark calls the source; with "start" in any case."""
    resource = f"once-{confirm_on}"
    connection.create_resource(resource)
    publish(connection, resource, *numbers(1, 10))
    options = {"startingOffsets": "earliest", "group": "once", "confirmOn": confirm_on}
    source = stream(spark, broker, resources=resource, **options)
    positions = []
    for last in (10, 20, 20):
        writer = source.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(once=True).start()
        assert query.awaitTermination(PATIENCE_S)
        assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(1, last)
        positions.append([cursor.position for cursor in connection.cursors(group="once", resource=resource)])
        if last == 10:
            publish(connection, resource, *numbers(11, 20))
    assert positions == [[1], [11], [idle]]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_deleted_resource_of_a_pattern_is_a_loss_or_skipped(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    tmp_path: Path,
    fail: str,
) -> None:
    kept, gone = f"found-{fail}-kept", f"found-{fail}-gone"
    for name in (kept, gone):
        connection.create_resource(name)
        publish(connection, name, *numbers(1, 5))
    options = {"resourcePattern": f"found-{fail}-.*", "startingOffsets": "earliest", "failOnDataLoss": fail}
    source = stream(spark, broker, **options)
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    connection.delete_resource(gone)
    publish(connection, kept, *numbers(6, 10))
    if fail == "true":
        with pytest.raises(PySparkException, match=f"{gone}"):
            collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    else:
        collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    found = spark.read.parquet(str(tmp_path / "out"))
    expected = numbers(1, 5) if fail == "true" else numbers(1, 10)
    assert bodies(found.where(f"resource = '{kept}'")) == expected
    assert bodies(found.where(f"resource = '{gone}'")) == numbers(1, 5)

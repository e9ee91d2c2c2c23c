"""Resources deleted, recreated or not created yet, with a real Spark: no loss stays unreported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import mtl
import mtl.testing
from tests.support.contents import numbers, publish
from tests.support.queries import PATIENCE_S, batches, bodies, collect_now, offset, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NOTHING = {"resources": {}, "version": 1}


def test_a_query_without_resources_reads_contents_written_during_its_downtime(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    source = stream(spark, broker, resourcePattern="void-.*", startingOffsets="latest")
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    assert offset(tmp_path / "checkpoint", 0) == NOTHING
    connection.create_resource("void-a")
    publish(connection, "void-a", *numbers(1, 5))
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(1, 5)


def test_a_query_after_deletions_reads_contents_written_during_its_downtime(
    spark: SparkSession, broker: mtl.testing.RunningBroker, connection: mtl.Connection, tmp_path: Path
) -> None:
    options = {"resourcePattern": "fleeting-.*", "startingOffsets": "latest", "failOnDataLoss": "false"}
    source = stream(spark, broker, **options)
    connection.create_resource("fleeting-a")
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    connection.delete_resource("fleeting-a")
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    assert offset(tmp_path / "checkpoint", 1) == NOTHING
    connection.create_resource("fleeting-a")
    publish(connection, "fleeting-a", *numbers(1, 5))
    collect_now(source, tmp_path / "checkpoint", tmp_path / "out")
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == numbers(1, 5)


@pytest.mark.parametrize("again", [False, True])
def test_a_resource_deleted_during_available_now_ends_the_run(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    tmp_path: Path,
    again: bool,
) -> None:
    name = f"doomed-{again}"
    connection.create_resource(name)
    publish(connection, name, *numbers(1, 15))

    def delete(_: DataFrame, batch: int) -> None:
        if batch == 0:
            connection.delete_resource(name)
            if again:
                connection.create_resource(name)
                publish(connection, name, "another")

    source = stream(spark, broker, resources=name, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    writer: Any = source.writeStream.foreachBatch(delete)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    with pytest.raises(
        PySparkException, match="deleted and created again" if again else "was deleted: its contents"
    ):
        query.awaitTermination(PATIENCE_S)
    assert batches(query) in ([], [5])

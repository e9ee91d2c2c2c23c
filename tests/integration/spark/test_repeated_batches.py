"""A batch that is repeated under its number: the same rows are accepted, other ones are an error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import mtl
import mtl.testing
from tests.support.contents import publish
from tests.support.queries import PATIENCE_S, forget_commit, logged, roll_back, run_now, stream
from tests.support.texts import in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CASES = [
    ("append", "raw"),
    ("append", "text"),
    ("append", "json"),
    ("update", "msgpack"),
    ("complete", "arrow"),
]
"""Each output mode and each format."""


def words(frame: DataFrame, mode: str, body_format: str) -> DataFrame:
    """In mode append the words themselves, else the number of each."""
    found = frame.selectExpr("cast(body as string) word")
    if mode != "append":
        found = found.groupBy("word").count()
    if body_format in {"raw", "text"}:
        return found.selectExpr(f"concat_ws(' ', {', '.join(found.columns)}) body")
    return found


def contents(connection: mtl.Connection, resource: str) -> list[bytes]:
    end = connection.describe([resource])[resource].next
    with connection.reader(resource, start="earliest", until=end) as reader:
        return [bytes(content.body) for content in reader]


@pytest.mark.parametrize(("mode", "body_format"), CASES)
def test_a_rolled_back_batch_with_as_many_other_rows_is_an_error(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    tmp_path: Path,
    mode: str,
    body_format: str,
) -> None:
    """The checkpoint has lost its last batch. Its repetition alone is accepted; after further contents have arrived it
    has other rows, and as many.
    """
    source, target = (f"{mode}-{body_format}-{end}" for end in ("in", "out"))
    for name in (source, target):
        connection.create_resource(name)
    options = {"endpoint": broker.endpoint, "resource": target, "bodyFormat": body_format}
    if mode == "complete":
        options["overwriteMode"] = "truncate"

    def save(frame: DataFrame, batch: int) -> None:
        """Spark has no output mode update for sinks in Python."""
        writer = frame.write.format("mtl").mode("append").options(**options)
        writer.options(txnAppId=target, txnVersion=batch).save()

    def copy(where: str = "true", **limits: str) -> list[bytes]:
        frame = stream(spark, broker, resources=source, startingOffsets="earliest", **limits)
        writer = words(frame.where(where), mode, body_format).writeStream.outputMode(mode)
        writer = writer.foreachBatch(save) if mode == "update" else writer.format("mtl").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writer.start().awaitTermination(PATIENCE_S)
        return contents(connection, target)

    publish(connection, source, "a", "b", "b", "a")
    published = copy(maxOffsetsPerTrigger="2")
    assert logged(tmp_path, "commits") == [0, 1]
    roll_back(tmp_path, 1)
    assert copy() == published, "the same rows"
    roll_back(tmp_path, 1)
    publish(connection, source, *(["c", "d"] if mode == "append" else ["a", "b"]))
    where = "sequence > 4" if mode == "append" else "true"  # with two rows, by a change of the query
    with pytest.raises(PySparkException, match=in_order("2 rows", "as many other rows")):
        copy(where)
    assert contents(connection, target) == published
    if mode == "complete":
        [application] = [found for found in connection.stages().applications if target in found.resources]
        connection.stage_forget(application.application)
        assert copy(where) != published, "the way out that the error names"


def test_a_query_that_gives_other_rows_is_repeated_with_a_check_of_counts(
    spark: SparkSession,
    broker: mtl.testing.RunningBroker,
    connection: mtl.Connection,
    resource: str,
    tmp_path: Path,
) -> None:
    """Spark has died after the sink's commit and before its own, and uuid() has another value in the repetition."""
    publish(connection, resource, "a", "b")
    frame = stream(spark, broker, resources=resource, startingOffsets="earliest").selectExpr("uuid() body")
    target = {"endpoint": broker.endpoint, "resource": f"{resource}-out", "createResource": "true"}
    run_now(frame, tmp_path, sink="mtl", **target)
    published = contents(connection, target["resource"])
    forget_commit(tmp_path, 0)
    with pytest.raises(PySparkException, match="replayCheck=counts compares only the number of rows"):
        run_now(frame, tmp_path, sink="mtl", **target)
    run_now(frame, tmp_path, sink="mtl", replayCheck="counts", **target)
    assert contents(connection, target["resource"]) == published

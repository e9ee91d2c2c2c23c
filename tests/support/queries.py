"""Queries of tests: start, run to the end, inspect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtl.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S = 120
"""A timeout that no query reaches; a hang becomes a failure."""


def read(spark: SparkSession, broker: RunningBroker, **options: str) -> DataFrame:
    """A batch read."""
    return spark.read.format("mtl").option("endpoint", broker.endpoint).options(**options).load()


def stream(spark: SparkSession, broker: RunningBroker, **options: str) -> DataFrame:
    """The source of a query."""
    return spark.readStream.format("mtl").option("endpoint", broker.endpoint).options(**options).load()


def bodies(frame: DataFrame) -> list[str]:
    """The bodies in a frame of contents, as text, in the order of their resources."""
    rows = frame.selectExpr("resource", "sequence", "cast(body as string) body").collect()
    return [row.body for row in sorted(rows, key=lambda row: (row.resource, row.sequence))]


def run_now(frame: DataFrame, checkpoint: Path, *, sink: str = "noop", **options: str) -> StreamingQuery:
    """Write all present contents in batches, and end. Raises the error of the query."""
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S), "the query did not end"
    return query


def collect_now(frame: DataFrame, checkpoint: Path, output: Path) -> StreamingQuery:
    """Write all present contents into Parquet files, whose sink is exactly-once."""
    return run_now(frame, checkpoint, sink="parquet", path=str(output))


def batches(query: StreamingQuery) -> list[int]:
    """The number of rows of each batch with rows."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def logged(checkpoint: Path, log: str) -> list[int]:
    """The batches in a log of the checkpoint: "offsets" or "commits"."""
    return sorted(int(path.name) for path in (checkpoint / log).iterdir() if path.name.isdigit())


def offset(checkpoint: Path, batch: int) -> dict[str, Any]:
    """The source's offset in Spark's log."""
    text = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2]
    found: dict[str, Any] = json.loads(text)
    return found


def roll_back(checkpoint: Path, batch: int) -> None:
    """Remove a batch from the checkpoint, as if the driver's machine had lost power, or a copy was restored."""
    for path in (checkpoint / "offsets").glob(f"*{batch}*"):
        path.unlink()
    forget_commit(checkpoint, batch)


def forget_commit(checkpoint: Path, batch: int) -> None:
    """Remove Spark's commit, as if Spark had died after the sink's commit: it will repeat the batch."""
    for path in (checkpoint / "commits").glob(f"*{batch}*"):
        path.unlink()

"""A Spark application that runs streaming queries on command, to be killed.

python -m tests.kills.app MASTER: standard input has one job per line, as JSON; standard output gets one line with the
result of each.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from tests.kills.holds import VARIABLE
from tests.kills.stepped import Stepped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SETTINGS: dict[str, bool | float | int | str | None] = {
    # No effect if Spark is one process. Otherwise a second attempt uses another host, as early as allowed.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.quantile": "0.1",
    "spark.sql.shuffle.partitions": "2",
    # Rows reach the sink's tasks in several frames, so that they can be stopped between two.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "25",
}

Job = dict[str, Any]
"""{kind, endpoint, checkpoint, read: options, write: options}."""


def source(spark: SparkSession, job: Job) -> DataFrame:
    return (
        spark.readStream.format("stepped").option("endpoint", job["endpoint"]).options(**job["read"]).load()
    )


def sink(frame: DataFrame, job: Job) -> DataStreamWriter:
    return frame.writeStream.format("stepped").option("endpoint", job["endpoint"]).options(**job["write"])


def copy(spark: SparkSession, job: Job) -> DataStreamWriter:
    """Copy every content into the resource named like its own with "-copy" appended."""
    contents = source(spark, job).where(job.get("where", "true"))
    return sink(contents.selectExpr("concat(resource, '-copy') as resource", "body"), job)


def join(spark: SparkSession, job: Job) -> DataStreamWriter:
    """The same, by a join of the stream with itself."""
    contents = source(spark, job)
    left = contents.selectExpr("resource as of", "sequence as number")
    both = left.join(contents, expr("of = resource and number = sequence"))
    return sink(both.selectExpr("concat(resource, '-copy') as resource", "body"), job)


def lines(spark: SparkSession, job: Job) -> DataStreamWriter:
    """Write every content as a line of a file in the checkpoint, in its task."""
    path = f"{job['checkpoint']}/lines"

    def write(row: Row) -> None:
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 pickled, and run by a worker
            file.write(f"{row.body.decode()}\n")

    return source(spark, job).writeStream.foreach(write).options(**job["write"])


def twice(spark: SparkSession, job: Job) -> DataStreamWriter:
    """The same, by foreachBatch with two writes: the batch is read twice, and each write is done once under a name."""

    def write(frame: DataFrame, batch: int) -> None:
        for copy_ in ("copy", "again"):
            frame.selectExpr(f"concat(resource, '-{copy_}') as resource", "body").write.format(
                "stepped"
            ).mode("append").option("endpoint", job["endpoint"]).options(
                txnAppId=f"{job['checkpoint']}-{copy_}", txnVersion=str(batch)
            ).save()

    return source(spark, job).writeStream.foreachBatch(write)


KINDS = {"copy": copy, "idle": copy, "join": join, "lines": lines, "trickle": copy, "twice": twice}

ENDLESS = {"lines", "trickle"}
"""With a trigger that does not end by itself, as asyncProgressTracking requires."""


def run(spark: SparkSession, job: Job) -> None:
    """Run a query over all present contents; `idle` ends only with an error. Raises the error of the query."""
    writer = KINDS[job["kind"]](spark, job).option("checkpointLocation", job["checkpoint"])
    if job["kind"] in ENDLESS:
        query = writer.start()
        query.processAllAvailable()
        query.stop()
    elif job["kind"] == "idle":
        writer.start().awaitTermination()
    else:
        writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # other output is not an answer
    builder = SparkSession.builder.master(sys.argv[1]).appName("kills").config(map=SETTINGS)
    for variable in (VARIABLE, "PYTHONPATH"):  # executors of a cluster do not have them from here
        builder = builder.config(f"spark.executorEnv.{variable}", os.environ[variable])
    spark = builder.getOrCreate()
    spark.dataSource.register(Stepped)
    for line in sys.stdin:
        try:
            run(spark, json.loads(line))
            error = None
        except Exception as failed:  # noqa: BLE001 whatever ends a query is what is asked for
            error = str(failed)
        print(json.dumps({"error": error}), file=answers, flush=True)


if __name__ == "__main__":
    main()

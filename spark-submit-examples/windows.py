"""Figures per sensor and time window, from JSON to JSON: every window once, after the watermark has passed its end.

    spark-submit windows.py --source readings --target readings.minutes --checkpoint /checkpoints/readings.minutes

reads   {"time": "2026-01-31T12:00:07Z", "sensor": "north", "value": 20.5}
writes  {"start": "2026-01-31T12:00:00Z", "sensor": "north", "readings": 12, "mean": 20.25, "highest": 21.0}

A body of another form is written to the resource SOURCE.bad, with its origin, and the query continues.
"""

from __future__ import annotations

from collections.abc import Sequence

import mtl_job
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

READING = "time timestamp, sensor string, value double"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = mtl_job.parser(__doc__)
    mtl_job.add_query(parser)
    parser.add_argument("--source", required=True, help="the resource of readings")
    parser.add_argument("--target", required=True, help="the resource of windows; made if it does not exist")
    parser.add_argument("--window", default="1 minute", help="(default: %(default)s)")
    parser.add_argument(
        "--late", default="10 seconds", help="how late a reading may come (default: %(default)s)"
    )
    parser.add_argument(
        "--partitions", type=int, default=4, help="of the state, for good (default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    broker = mtl_job.broker(arguments)

    spark = SparkSession.builder.appName("windows").getOrCreate()
    # Before the first start: the checkpoint keeps the number of the first run. Spark's default
    # of 200 makes 200 tasks of each batch, most of them without a row.
    spark.conf.set("spark.sql.shuffle.partitions", arguments.partitions)
    readings = (
        spark.readStream.format("mtl")
        .options(**broker)
        .option("resources", arguments.source)
        .option("startingOffsets", "earliest")
        .options(**mtl_job.limit(arguments))
        .option("bodyFormat", "json")
        .option("mode", "DROPMALFORMED")
        .option("deadLetter", f"{arguments.source}.bad")
        .schema(READING)
        .load()
    )
    windows = (
        readings.withWatermark("time", arguments.late)
        .groupBy(F.window("time", arguments.window), "sensor")
        .agg(F.count("*").alias("readings"), F.avg("value").alias("mean"), F.max("value").alias("highest"))
        .select(F.col("window.start").alias("start"), "sensor", "readings", "mean", "highest")
        .writeStream.format("mtl")
        .outputMode("append")  # a window is written once, when it is over
        .options(**broker)
        .option("resource", arguments.target)
        .option("createResource", "true")
        .option("bodyFormat", "json")
    )
    mtl_job.run(windows, arguments)


if __name__ == "__main__":
    main()

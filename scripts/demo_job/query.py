"""Figures of every day, carrier and airport of origin, from a stream of flights: an ordinary Spark application.

python query.py stream ENDPOINT --checkpoint DIR [--limit N]   from the resource flights into the resource daily
python query.py read ENDPOINT FILE                             the resource daily, as a Parquet file
"""

from __future__ import annotations

import argparse

import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 its usual name
from pyspark.sql.datasource import DataSource

FLIGHTS, DAILY = "flights", "daily"

FLIGHT = "time_hour timestamp, carrier string, origin string, dep_delay int, arr_delay int, distance int"
WINDOW = (
    "day string, carrier string, origin string, "
    "flights bigint, departed bigint, dep_delay bigint, longest bigint, arr_delay bigint, distance bigint"
)


def daily(feed: DataFrame) -> DataFrame:
    """The figures of every closed window; the contents of `feed` are flights as JSON."""
    flight = F.from_json(F.col("body").cast("string"), FLIGHT, {"mode": "FAILFAST"})
    flights = feed.select(flight.alias("flight")).select("flight.*")
    windows = (
        flights.withWatermark("time_hour", "1 hour")
        .groupBy(F.window("time_hour", "1 day"), "carrier", "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.sum("dep_delay").alias("dep_delay"),
            F.max("dep_delay").alias("longest"),
            F.sum("arr_delay").alias("arr_delay"),
            F.sum("distance").alias("distance"),
        )
    )
    return windows.withColumn("day", F.date_format("window.start", "yyyy-MM-dd")).drop("window")


def stream(spark: SparkSession, endpoint: str, checkpoint: str, limit: int) -> None:
    """Process all present contents of `flights`, at most `limit` in a micro-batch, into `daily`, exactly once."""
    feed = (
        spark.readStream.format("mtl")
        .option("endpoint", endpoint)
        .option("resources", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .load()
    )
    query = (
        daily(feed)
        .select(F.to_json(F.struct("*")).cast("binary").alias("body"))
        .writeStream.format("mtl")
        .option("endpoint", endpoint)
        .option("resource", DAILY)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def read(spark: SparkSession, endpoint: str, file: str) -> None:
    """All of `daily`, read as a batch."""
    contents = spark.read.format("mtl").option("endpoint", endpoint).option("resources", DAILY).load()
    window = F.from_json(F.col("body").cast("string"), WINDOW, {"mode": "FAILFAST"})
    windows = contents.select(window.alias("window")).select("window.*")
    pyarrow.parquet.write_table(windows.toArrow(), file)


def main(source: type[DataSource] | None = None) -> None:
    """Run the command line; `source` replaces the installed data source."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    streaming, reading = commands.add_parser("stream"), commands.add_parser("read")
    for command in (streaming, reading):
        command.add_argument("endpoint")
    streaming.add_argument("--checkpoint", required=True)
    streaming.add_argument("--limit", type=int, default=30_000, help="contents in a micro-batch, at most")
    reading.add_argument("file")
    arguments = parser.parse_args()

    # Windows are days in UTC, and `date_format` shows them in the session's time zone.
    builder = SparkSession.builder.appName(f"flights {arguments.command}")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    if source is not None:
        spark.dataSource.register(source)
    if arguments.command == "stream":
        stream(spark, arguments.endpoint, arguments.checkpoint, arguments.limit)
    else:
        read(spark, arguments.endpoint, arguments.file)
    spark.stop()


if __name__ == "__main__":
    main()

"""A Spark application of its own that copies one resource to another and ends: something for tests to kill.

python -m tests.support.copy_app ENDPOINT SOURCE TARGET CHECKPOINT
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main() -> None:
    """Copy what there is now, in batches of 1,000 contents."""
    endpoint, source, target, checkpoint = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("copy")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    reader = spark.readStream.format("mtl").option("endpoint", endpoint).option("resources", source)
    frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1000").load()
    writer = (
        frame.select("body").writeStream.format("mtl").option("endpoint", endpoint).option("resource", target)
    )
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()

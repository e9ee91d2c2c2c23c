r"""Exports a resource, or the contents of a span of time, to Parquet files; a repeated run replaces its files.

    spark-submit export_parquet.py --source orders --since 2026-01-31T00:00:00Z --until 2026-02-01T00:00:00Z \
        --files /lake/orders/day=2026-01-31
"""

from __future__ import annotations

from collections.abc import Sequence

import mtl_job
from pyspark.sql import SparkSession


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = mtl_job.parser(__doc__)
    parser.add_argument("--source", required=True, help="the resource")
    parser.add_argument("--files", required=True, help="the directory of the Parquet files")
    parser.add_argument(
        "--since", metavar="TIME", help="only contents from this time on (default: the oldest)"
    )
    parser.add_argument("--until", metavar="TIME", help="only contents before this time (default: now)")
    parser.add_argument(
        "--task-rows", type=int, default=1_000_000, help="contents in a task and a file, at most"
    )
    arguments = parser.parse_args(argv)

    spark = SparkSession.builder.appName("export").getOrCreate()
    reader = (
        spark.read.format("mtl")
        .options(**mtl_job.broker(arguments))
        .option("resources", arguments.source)
        .option("includeProperties", "true")
        .option("maxRecordsPerPartition", arguments.task_rows)
    )
    if arguments.since:
        reader = reader.option("startingTimestamp", arguments.since)
        # If nothing was added since then, an empty export is not an error.
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    if arguments.until:
        reader = reader.option("endingTimestamp", arguments.until)
    reader.load().write.mode("overwrite").parquet(arguments.files)
    # Read from the files: a second action on the frame above would read the broker again, with newer contents.
    print(f"{spark.read.parquet(arguments.files).count():,} rows in {arguments.files}")


if __name__ == "__main__":
    main()

"""Writes every line of the files in a directory into a resource, exactly once, also of files that appear later.

    spark-submit ingest_files.py --files /landing/orders --target orders --checkpoint /checkpoints/orders

A file has to be complete when it appears (write it elsewhere and rename it), as for every file source of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import mtl_job
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = mtl_job.parser(__doc__)
    mtl_job.add_query(parser)
    parser.add_argument("--files", required=True, help="the directory")
    parser.add_argument("--target", required=True, help="the resource; made if it does not exist")
    parser.add_argument("--files-per-batch", type=int, default=100, help="at most (default: %(default)s)")
    arguments = parser.parse_args(argv)

    spark = SparkSession.builder.appName("ingest").getOrCreate()
    lines = spark.readStream.option("maxFilesPerTrigger", arguments.files_per_batch).text(arguments.files)
    contents = (
        # A property names the source of a content without a change of its body.
        lines.select(
            F.col("value").alias("body"),
            F.create_map(F.lit("file"), F.col("_metadata.file_name")).alias("properties"),
        )
        .writeStream.format("mtl")
        .options(**mtl_job.broker(arguments))
        .option("resource", arguments.target)
        .option("createResource", "true")
    )
    mtl_job.run(contents, arguments)


if __name__ == "__main__":
    main()

"""Copies one resource to another, exactly once and in order, even if it is killed at any moment.

spark-submit copy_resource.py --source orders --target orders.copy --checkpoint /checkpoints/orders.copy
"""

from __future__ import annotations

from collections.abc import Sequence

import mtl_job
from pyspark.sql import SparkSession


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = mtl_job.parser(__doc__)
    mtl_job.add_query(parser)
    parser.add_argument("--source", required=True, help="the resource to read")
    parser.add_argument("--target", required=True, help="the resource to write; made if it does not exist")
    arguments = parser.parse_args(argv)
    broker = mtl_job.broker(arguments)

    spark = SparkSession.builder.appName("copy").getOrCreate()
    contents = (
        spark.readStream.format("mtl")
        .options(**broker)
        .option("resources", arguments.source)
        # The start of a new query; one with a checkpoint continues from there.
        .option("startingOffsets", "earliest")
        .option("includeProperties", "true")
        .options(**mtl_job.limit(arguments))
        .load()
    )
    # The column `resource` would send each row back to its source; the option below sends it to the target.
    copies = (
        contents.select("body", "properties")
        .writeStream.format("mtl")
        .options(**broker)
        .option("resource", arguments.target)
        .option("createResource", "true")
    )
    mtl_job.run(copies, arguments)


if __name__ == "__main__":
    main()

r"""Splits a resource in two by a property, with foreachBatch: two writes per batch, each exactly once.

    spark-submit split_batches.py --source orders --property country --value NZ \
        --matching orders.nz --others orders.abroad --application split-orders --checkpoint /checkpoints/split-orders

After a kill Spark may call the function of foreachBatch again with the same batch, after one of the two writes or after
both. The broker identifies a write by `txnAppId` and `txnVersion` and executes it once. So the two writes have two
names, and the number of the batch is the version. A new checkpoint counts batches from 0 again: give it a new
--application.

(To distribute rows to several resources the sink alone is enough, with a column `resource`: one write, one commit. This
example is for writes that differ in other ways, or that also go to another system.)
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial

import mtl_job
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def write(batch: DataFrame, version: int, target: str, application: str, broker: dict[str, str]) -> None:
    """Append to a resource, unless the broker already has this version of the application."""
    (
        batch.select("body", "properties")
        .write.format("mtl")
        .mode("append")
        .options(**broker)
        .option("resource", target)
        .option("createResource", "true")
        .option("txnAppId", f"{application}/{target}")
        .option("txnVersion", version)
        .save()
    )


def split(batch: DataFrame, version: int, arguments: Namespace, broker: dict[str, str]) -> None:
    """One batch."""
    batch.persist()  # else the second write reads the broker again
    # False, not null, where the property is missing.
    matches = F.coalesce(F.col("properties")[arguments.property] == arguments.value, F.lit(False))
    write(batch.where(matches), version, arguments.matching, arguments.application, broker)
    write(batch.where(~matches), version, arguments.others, arguments.application, broker)
    batch.unpersist()


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = mtl_job.parser(__doc__)
    mtl_job.add_query(parser)
    parser.add_argument("--source", required=True, help="the resource to read")
    parser.add_argument("--property", required=True, help="a property's name")
    parser.add_argument("--value", required=True, help="its value in contents that match")
    parser.add_argument("--matching", required=True, help="the resource for those; made if it does not exist")
    parser.add_argument(
        "--others", required=True, help="the resource for the others; made if it does not exist"
    )
    parser.add_argument(
        "--application", required=True, help="a name of this query, the same as long as its checkpoint"
    )
    arguments = parser.parse_args(argv)
    broker = mtl_job.broker(arguments)

    spark = SparkSession.builder.appName("split").getOrCreate()
    contents = (
        spark.readStream.format("mtl")
        .options(**broker)
        .option("resources", arguments.source)
        .option("startingOffsets", "earliest")
        .option("includeProperties", "true")
        .options(**mtl_job.limit(arguments))
        .load()
    )
    each = partial(split, arguments=arguments, broker=broker)
    mtl_job.run(contents.writeStream.foreachBatch(each), arguments)


if __name__ == "__main__":
    main()

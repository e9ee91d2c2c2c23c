r"""Writes the column `body` of Parquet files into a resource, all or nothing, and once even if it is repeated.

    spark-submit import_parquet.py --files /lake/orders/day=2026-01-31 --target orders \
        --application import-orders --version 20260131

The broker stores the last version of each application. The same version again has no effect, so a scheduler may repeat
a run whose result it does not know; a lower version is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import mtl_job
from pyspark.sql import SparkSession


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = mtl_job.parser(__doc__)
    parser.add_argument("--files", required=True, help="the directory of the Parquet files")
    parser.add_argument("--target", required=True, help="the resource; made if it does not exist")
    parser.add_argument("--application", required=True, help="a name for what writes here, such as the job's")
    parser.add_argument(
        "--version", required=True, type=int, help="of this run; higher than that of the run before"
    )
    arguments = parser.parse_args(argv)

    spark = SparkSession.builder.appName("import").getOrCreate()
    rows = spark.read.parquet(arguments.files)
    columns = [name for name in ("body", "properties", "timestamp") if name in rows.columns]
    (
        rows.select(*columns)
        .write.format("mtl")
        .mode("append")  # Spark's default, errorifexists, is not supported by Python sources
        .options(**mtl_job.broker(arguments))
        .option("resource", arguments.target)
        .option("createResource", "true")
        .option("txnAppId", arguments.application)
        .option("txnVersion", arguments.version)
        .save()
    )
    print(f"version {arguments.version} of {arguments.application} is in {arguments.target}")


if __name__ == "__main__":
    main()

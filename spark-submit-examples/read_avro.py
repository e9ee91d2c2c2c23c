r"""Decodes Avro bodies into Parquet, with Spark's own from_avro; bodies in the wire format of a schema registry, too.

    spark-submit --packages org.apache.spark:spark-avro_2.13:4.3.0 read_avro.py --source orders --schema order.avsc \
        --files /lake/orders --checkpoint /checkpoints/orders.parquet

format("mtl") does not decode Avro: read raw bodies, and decode the column with Spark. `--packages` has to name the
version of the running Spark. With --registry each body begins with five octets that are not Avro, as a schema
registry's clients write them: a zero, and the number of the writer's schema. They are removed; the schema given here
has to be the writer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mtl_job
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

HEADER = 5
"""Octets before the Avro of a body in a registry's wire format."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = mtl_job.parser(__doc__)
    mtl_job.add_query(parser)
    parser.add_argument("--source", required=True, help="the resource to read")
    parser.add_argument(
        "--schema", required=True, type=Path, help="the Avro schema's file, where the driver runs"
    )
    parser.add_argument(
        "--registry", action="store_true", help="bodies have the header of a schema registry's clients"
    )
    parser.add_argument("--files", required=True, help="the directory of the Parquet files")
    arguments = parser.parse_args(argv)

    spark = SparkSession.builder.appName("avro").getOrCreate()
    contents = (
        spark.readStream.format("mtl")
        .options(**mtl_job.broker(arguments))
        .option("resources", arguments.source)
        .option("startingOffsets", "earliest")
        .options(**mtl_job.limit(arguments))
        .load()
    )
    # substring counts from 1, and without a length goes to the end.
    body = F.expr(f"substring(body, {HEADER + 1})") if arguments.registry else F.col("body")
    # PERMISSIVE: a body of another schema becomes a null, and the query continues. FAILFAST ends it.
    decoded = from_avro(body, arguments.schema.read_text(encoding="utf-8"), {"mode": "PERMISSIVE"})
    rows = contents.select("sequence", "timestamp", decoded.alias("value")).select(
        "sequence", "timestamp", "value.*"
    )
    mtl_job.run(rows.writeStream.format("parquet").option("path", arguments.files), arguments)


if __name__ == "__main__":
    main()

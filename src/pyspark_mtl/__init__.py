"""Apache Spark connector: MTL resources as streaming and batch DataFrames, exactly once at both ends.

    spark.readStream.format("mtl").option("resources", "orders").load()

Spark finds the format of an installed package by itself; `spark.dataSource.register(MtlDataSource)` registers it by
hand. Importing this package needs neither Spark nor zmq nor a broker. The names that need Spark are loaded on first
use, and raise mtl.errors.SparkMissing when PySpark is missing or too old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_mtl.datasource import DefaultSource, MtlDataSource
    from pyspark_mtl.listener import LagListener

__version__ = "0.1.0"

__all__ = ["DefaultSource", "LagListener", "MtlDataSource", "__version__"]


def __getattr__(name: str) -> object:
    if name in {"DefaultSource", "LagListener", "MtlDataSource"}:
        from pyspark_mtl import datasource  # noqa: PLC0415 loads pyspark, or raises SparkMissing

        if name == "LagListener":
            from pyspark_mtl import listener  # noqa: PLC0415

            return listener.LagListener
        return getattr(datasource, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The places where Spark runs: each opens a session, and closes what it started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Place = Callable[[Path], "AbstractContextManager[SparkSession]"]
"""Opens a session whose files lie in a directory."""


@contextmanager
def _local(place: Path) -> Iterator[SparkSession]:
    """Driver and tasks in one JVM."""
    with _session("local[2]", place) as spark:
        yield spark


@contextmanager
def _local_cluster(place: Path) -> Iterator[SparkSession]:
    """Two executors, each a process with one core."""
    with _session("local-cluster[2,1,1024]", place) as spark:
        yield spark


@contextmanager
def _standalone(place: Path) -> Iterator[SparkSession]:
    """A master and a worker out of the pip package."""
    with standalone.cluster(place / "cluster") as master, _session(master, place) as spark:
        yield spark


@contextmanager
def _connect(place: Path) -> Iterator[SparkSession]:
    """A client of Spark Connect and its server."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 `--list` needs no Spark

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _session(master: str, place: Path) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession  # noqa: PLC0415 see above

    spark = (
        SparkSession.builder.master(master)
        .config("spark.executor.memory", "512m")
        .config("spark.local.dir", str(place))
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


PLACES: dict[str, Place] = {
    "local": _local,
    "local-cluster": _local_cluster,
    "standalone": _standalone,
    "connect": _connect,
}

"""Cases for every place where Spark runs. A case is a function of its `Ground`; it fails by an exception.

This module does not use pytest: with an older Spark the environment has only the dependencies of the connector.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mtl
from pyspark_mtl.datasource import HAS_LIMITS
from tests.support.contents import texts
from tests.support.queries import collect_now, forget_commit, logged, run_now
from tests.support.texts import in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Ground:
    """A session in one place, a broker, and a separate name and directory for each case."""

    spark: SparkSession
    connection: mtl.Connection
    endpoint: str
    name: str
    directory: Path

    def resource(self, role: str) -> str:
        """A new resource of this case."""
        name = f"{self.name}.{role}"
        self.connection.create_resource(name)
        return name

    def publish(self, resource: str, first: int, last: int) -> None:
        """Append the numbers [first, last]."""
        with self.connection.writer(resource, packed=True) as writer:
            for number in range(first, last + 1):
                writer.send(str(number).encode())

    def numbers(self, resource: str) -> list[int]:
        """All visible contents, in order."""
        return [int(text) for text in texts(self.connection, resource)]

    def stream(self, resource: str, **options: str) -> DataFrame:
        """A streaming read from the beginning."""
        reader = self.spark.readStream.format("mtl").option("endpoint", self.endpoint)
        return reader.options(resources=resource, startingOffsets="earliest", **options).load()

    def batch(self, resource: str, **options: str) -> DataFrame:
        """A batch read."""
        reader = self.spark.read.format("mtl").option("endpoint", self.endpoint)
        return reader.options(resources=resource, **options).load()


CASES: dict[str, Callable[[Ground], None]] = {}


def case(function: Callable[[Ground], None]) -> Callable[[Ground], None]:
    """Register a case under its name, as words."""
    CASES[function.__name__.replace("_", " ")] = function
    return function


def numbers(first: int, last: int) -> list[int]:
    """The numbers from `first` to `last`."""
    return list(range(first, last + 1))


@case
def read_a_batch(on: Ground) -> None:
    """Every content once, from two tasks, with its sequence."""
    source = on.resource("in")
    on.publish(source, 1, 100)
    rows = on.batch(source, minPartitions="2").collect()
    assert sorted(row.sequence for row in rows) == numbers(1, 100)
    assert all(int(row.body) == row.sequence and row.resource == source for row in rows)


@case
def write_a_batch(on: Ground) -> None:
    """All partitions, published as a whole."""
    target = on.resource("out")
    frame = on.spark.range(1, 101, 1, 2).selectExpr("cast(cast(id as string) as binary) as body")
    frame.write.format("mtl").mode("append").option("endpoint", on.endpoint).option("resource", target).save()
    assert sorted(on.numbers(target)) == numbers(1, 100)


@case
def read_a_stream(on: Ground) -> None:
    """Trigger.AvailableNow reads the present contents; restarted, the query continues from its checkpoint."""
    source, checkpoint, output = on.resource("in"), on.directory / "checkpoint", on.directory / "output"
    frame = on.stream(source).selectExpr("sequence", "cast(body as string) as body")
    for first, last in ((1, 60), (61, 100)):
        on.publish(source, first, last)
        collect_now(frame, checkpoint, output)
    collect_now(frame, checkpoint, output)  # nothing is new
    rows = on.spark.read.parquet(str(output)).collect()
    assert sorted(row.sequence for row in rows) == numbers(1, 100)
    assert all(int(row.body) == row.sequence for row in rows)


@case
def write_a_stream_once(on: Ground) -> None:
    """A batch whose commit is missing in Spark's log is repeated, and published once."""
    source, target, checkpoint = on.resource("in"), on.resource("out"), on.directory / "checkpoint"

    def copy() -> str:
        frame = on.stream(source).select("body")
        return str(run_now(frame, checkpoint, sink="mtl", endpoint=on.endpoint, resource=target).id)

    on.publish(source, 1, 60)
    copy()
    forget_commit(checkpoint, logged(checkpoint, "offsets")[-1])
    query = copy()
    on.publish(source, 61, 100)
    copy()
    assert on.numbers(target) == numbers(1, 100)
    (application,) = on.connection.stages(query).applications
    assert application.replays == 1
    assert on.connection.stages(query).stages == []


@case
def keep_to_limits_or_refuse_them(on: Ground) -> None:
    """`maxOffsetsPerTrigger` bounds every batch; a Spark without limits refuses the option by name."""
    source, checkpoint, output = on.resource("in"), on.directory / "checkpoint", on.directory / "output"
    on.publish(source, 1, 50)
    frame = on.stream(source, maxOffsetsPerTrigger="20")
    if HAS_LIMITS:
        collect_now(frame, checkpoint, output)
        assert logged(checkpoint, "commits") == [0, 1, 2]
    else:
        error = error_of(lambda: collect_now(frame, checkpoint, output))
        assert "option maxOffsetsPerTrigger needs Spark 4.2 or newer" in error, error


@case
def typed_bodies(on: Ground) -> None:
    """Columns written as JSON and read by their schema."""
    target = on.resource("out")
    frame = on.spark.range(1, 51, 1, 2).selectExpr("id", "concat('order ', id) as name", "id * 0.5D as price")
    writer = frame.write.format("mtl").mode("append").option("endpoint", on.endpoint)
    writer.options(resource=target, bodyFormat="json").save()
    reader = (
        on.spark.read.format("mtl")
        .option("endpoint", on.endpoint)
        .schema("id bigint, name string, price double")
    )
    rows = reader.options(resources=target, bodyFormat="json").load().collect()
    assert sorted(map(tuple, rows)) == sorted(map(tuple, frame.collect()))


@case
def wrong_options(on: Ground) -> None:
    """A misspelt option is an error that suggests the correct one; the error for a missing resource has advice."""
    misspelt = on.spark.read.format("mtl").option("resorces", "a")
    error = error_of(lambda: misspelt.load().collect())  # over Connect `load` sends no request
    assert "did you mean 'resources'" in error, error
    error = error_of(lambda: on.batch("none").collect())
    assert re.search(in_order("'none'", "does not exist"), error), error


def error_of(action: Callable[[], object]) -> str:
    """The error of Spark for an action that must fail."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 `--list` needs no Spark

    try:
        action()
    except PySparkException as error:
        return str(error)
    raise AssertionError("this should have been an error")

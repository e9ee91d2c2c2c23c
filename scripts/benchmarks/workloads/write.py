"""Writing a frame to one and to eight resources, compared with a writer that discards, and with Spark's Kafka sink.

Ours is exactly-once, and synced before it counts; Kafka's is at-least-once, with and without a flush before each of
the broker's acknowledgements.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, col, element_at, lit

from benchmarks import sparks
from benchmarks.bench import TASKS, Bench, Kafka
from benchmarks.measure import Peer, Row, Sample, Side, Subject, compare
from benchmarks.workloads.drain import SIZES, SMALL, UNIT, generated, generator

DISCARD = "Arrow writer that discards"
FILE = "Arrow writer into plain files, fdatasync at its end"
KAFKA = "Kafka sink"
OF_DISCARD = 0.7
OF_KAFKA = 1.5
MANY = 8
FLUSHED_SHARE = 10


def one_resource(bench: Bench) -> list[Row]:
    """All rows to one resource, or to a topic with a partition for each task."""
    return [row for octets in SIZES for row in _batch(bench, octets, 1)]


def eight_resources(bench: Bench) -> list[Row]:
    """The rows in turn to eight resources, or to eight topics."""
    return [row for octets in SIZES for row in _batch(bench, octets, MANY)]


def stream(bench: Bench) -> list[Row]:
    """A stream's one micro-batch to one resource."""
    return [row for octets in SIZES for row in _stream(bench, octets)]


def rows_of(bench: Bench, octets: int) -> int:
    """The number of written rows of a size; as in `drain.rows_of`."""
    if octets > 100:
        return bench.plan.amount(short=500_000, full=1_000_000, unit=UNIT)
    return bench.plan.amount(short=2_000_000, full=5_000_000, unit=UNIT)


def flushed_rows(rows: int) -> int:
    """Rows for a Kafka that flushes before every acknowledgement: fewer, since each takes much longer."""
    return max(UNIT, rows // FLUSHED_SHARE // UNIT * UNIT)


def _batch(bench: Bench, octets: int, places: int) -> list[Row]:
    rows = rows_of(bench, octets)
    where = "one resource" if places == 1 else f"{places} resources"
    subject = Subject(
        "write-one" if places == 1 else "write-eight", f"write to {where}, {octets} B", "rows/s"
    )

    def ours(names: list[str], size: int) -> None:
        frame = spread(generated(bench, size, octets), "resource", "body", names)
        frame.write.format("mtl").options(endpoint=bench.endpoint).mode("append").save()

    resources = [f"resource-{number}" for number in range(places)]

    def discard(size: int) -> None:
        frame = spread(generated(bench, size, octets), "resource", "body", resources)
        frame.write.format("bench_discard").mode("append").save()

    def file(directories: list[str], size: int) -> None:
        frame = spread(generated(bench, size, octets), "resource", "body", resources)
        frame.write.format("bench_file").options(directory=directories[0]).mode("append").save()

    def kafka(peer: Kafka, rows: int = rows) -> Side:
        def run(names: list[str], size: int) -> None:
            frame = spread(generated(bench, size, octets), "topic", "value", names)
            frame.write.format("kafka").options(**peer.options).save()

        return _Fresh(partial(topics, peer, places), run, rows)

    peers = [
        Peer(DISCARD, sparks.Job(partial(discard, rows), partial(discard, SMALL), rows), OF_DISCARD),
        Peer(FILE, _Fresh(partial(directory, bench), file, rows)),
        bench.kafka_peer(KAFKA, OF_KAFKA, kafka),
        bench.kafka_peer(KAFKA, OF_KAFKA, partial(kafka, rows=flushed_rows(rows)), flush=True),
    ]
    job = _Fresh(partial(bench.resources, places), ours, rows)
    return compare(subject, job, peers, bench.plan.rounds)


class _Fresh:
    """A job that writes to new places each time; creating and removing them is not timed."""

    def __init__(
        self,
        places: Callable[[], AbstractContextManager[list[str]]],
        run: Callable[[list[str], int], None],
        rows: int,
    ) -> None:
        self._places = places
        self._run = run
        self._rows = rows
        self._names: list[str] = []
        self._job = sparks.Job(lambda: run(self._names, rows), lambda: run(self._names, SMALL), rows)

    def __call__(self) -> Sample:
        with self._places() as self._names:
            return self._job()


def _stream(bench: Bench, octets: int) -> list[Row]:
    rows, spark = rows_of(bench, octets), bench.spark
    source = spark.readStream.format("bench_generator").options(**generator(rows, octets)).load()
    subject = Subject("write-stream", f"write a stream to one resource, {octets} B", "rows/s")

    def ours() -> Sample:
        with bench.resources() as names:
            options = {"endpoint": bench.endpoint, "resource": names[0]}
            return sparks.run_now(source.select("body"), bench.place, "mtl", **options)

    def kafka(peer: Kafka, rows: int = rows) -> Side:
        made_up = spark.readStream.format("bench_generator").options(**generator(rows, octets)).load()

        def run() -> Sample:
            with peer.topic() as name:
                frame = made_up.select(col("body").alias("value"))
                return sparks.run_now(frame, bench.place, "kafka", **peer.options, topic=name)

        return run

    def file() -> Sample:
        with directory(bench) as names:
            return sparks.run_now(source.select("body"), bench.place, "bench_file", directory=names[0])

    discard = partial(sparks.run_now, source.select("body"), bench.place, "bench_discard")
    peers = [
        Peer(DISCARD, discard, OF_DISCARD),
        Peer(FILE, file),
        bench.kafka_peer(KAFKA, OF_KAFKA, kafka),
        bench.kafka_peer(KAFKA, OF_KAFKA, partial(kafka, rows=flushed_rows(rows)), flush=True),
    ]
    return compare(subject, ours, peers, bench.plan.rounds)


@contextmanager
def directory(bench: Bench) -> Iterator[list[str]]:
    """A new directory on the measured disk, removed at the end of the block."""
    with tempfile.TemporaryDirectory(dir=bench.place) as name:
        yield [name]


@contextmanager
def topics(peer: Kafka, count: int) -> Iterator[list[str]]:
    """Topics that are removed at the end: one with a partition for each task, or several with one each."""
    with ExitStack() as stack:
        partitions = TASKS if count == 1 else 1
        yield [stack.enter_context(peer.topic(partitions)) for _ in range(count)]


def spread(frame: DataFrame, name: str, value: str, names: list[str]) -> DataFrame:
    """The frame's bodies as column `value`, and in column `name` one of `names` in turn."""
    return frame.select(_in_turn(names).alias(name), col("body").alias(value))


def _in_turn(names: list[str]) -> Column:
    if len(names) == 1:
        return lit(names[0])
    return element_at(array(*map(lit, names)), (col("sequence") % len(names)).cast("int") + 1)

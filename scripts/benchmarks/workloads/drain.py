"""Draining a backlog into noop, compared with a source that generates the same rows, one that maps plain Arrow files
with them, and Spark's Kafka source.

A backlog has as many resources as there are tasks, written by our own sink; Kafka's is a topic with as many
partitions, written by Kafka's sink. So both read with their default options, and each task reads one of them. All
sides read from memory: three backlogs of rows of 1 KiB would not fit at the same time (`memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame
from pyspark.sql.functions import array, col, element_at, lit, spark_partition_id

from benchmarks import memory, sparks
from benchmarks.bench import BATCH_ROWS, TASKS, Bench, Kafka
from benchmarks.measure import Peer, Row, Sample, Side, Subject, compare
from benchmarks.peers import write_files

GENERATOR = "in-memory Arrow generator"
FILES = "plain Arrow files, mapped"
KAFKA = "Kafka source"
OF_GENERATOR = {100: 0.85, 1024: 0.75}
OF_KAFKA = 2.0
SIZES = (100, 1024)
SMALL = TASKS
"""Rows of a job whose time is only its fixed cost."""

UNIT = TASKS * BATCH_ROWS

LOGS = "broker/resources/*/*"
ARROW = "arrow-*/*"
TOPICS = "kafka*/logs/*-[0-9]/*.log"
"""The drained files, below the bench's directory; topics that Kafka is about to delete have other names."""


def batch(bench: Bench) -> list[Row]:
    """By a batch read."""
    return [row for octets in SIZES for row in _batch(bench, octets)]


def stream(bench: Bench) -> list[Row]:
    """By an AvailableNow stream."""
    return [row for octets in SIZES for row in _stream(bench, octets)]


def _batch(bench: Bench, octets: int) -> list[Row]:
    rows = rows_of(bench, octets)
    subject = Subject("drain-batch", f"drain, batch, {octets} B", "rows/s")
    with ExitStack() as stack:

        def job(source: str, options_of: Callable[[int], dict[str, str]]) -> Side:
            def drain(options: dict[str, str]) -> None:
                sparks.drain(bench.spark.read.format(source).options(**options).load())

            return sparks.Job(partial(drain, options_of(rows)), partial(drain, options_of(SMALL)), rows)

        def ours(size: int) -> dict[str, str]:
            return mtl_source(bench, stack.enter_context(backlog(bench, size, octets)))

        def made_up(size: int) -> dict[str, str]:
            return generator(size, octets)

        def mapped(size: int) -> dict[str, str]:
            return stack.enter_context(arrow_files(bench, size, octets))

        def kafka(peer: Kafka) -> Side:
            def topics(size: int) -> dict[str, str]:
                return kafka_source(peer, stack.enter_context(topic(bench, peer, size, octets)))

            return in_memory(bench, TOPICS, job("kafka", topics))

        peers = [
            Peer(GENERATOR, job("bench_generator", made_up), OF_GENERATOR[octets]),
            Peer(FILES, in_memory(bench, ARROW, job("bench_generator", mapped))),
            bench.kafka_peer(KAFKA, OF_KAFKA, kafka),
        ]
        return compare(subject, in_memory(bench, LOGS, job("mtl", ours)), peers, bench.plan.rounds)


def _stream(bench: Bench, octets: int) -> list[Row]:
    rows = rows_of(bench, octets)
    subject = Subject("drain-stream", f"drain, AvailableNow, {octets} B", "rows/s")
    with ExitStack() as stack:

        def query(source: str, options: dict[str, str]) -> Side:
            frame = bench.spark.readStream.format(source).options(**options).load()
            return partial(sparks.run_now, frame, bench.place, "noop")

        def kafka(peer: Kafka) -> Side:
            name = stack.enter_context(topic(bench, peer, rows, octets))
            return in_memory(bench, TOPICS, query("kafka", kafka_source(peer, name)))

        ours = query("mtl", mtl_source(bench, stack.enter_context(backlog(bench, rows, octets))))
        mapped = query("bench_generator", stack.enter_context(arrow_files(bench, rows, octets)))
        peers = [
            Peer(GENERATOR, query("bench_generator", generator(rows, octets)), OF_GENERATOR[octets]),
            Peer(FILES, in_memory(bench, ARROW, mapped)),
            bench.kafka_peer(KAFKA, OF_KAFKA, kafka),
        ]
        return compare(subject, in_memory(bench, LOGS, ours), peers, bench.plan.rounds)


# --- what other workloads use, too --------------------------------------------------------------------------


def rows_of(bench: Bench, octets: int) -> int:
    """The number of drained rows of a size: enough that the start of a job or query, one to two seconds, does not hide
    the cost of moving them.
    """
    if octets > 100:
        return bench.plan.amount(short=4_000_000, full=8_000_000, unit=UNIT)
    return bench.plan.amount(short=10_000_000, full=20_000_000, unit=UNIT)


def in_memory(bench: Bench, pattern: str, side: Side) -> Side:
    """`side` after its files have been read into memory: a pattern below the bench's directory."""

    def run() -> Sample:
        memory.fetch(bench.place.glob(pattern))
        return side()

    return run


def generator(rows: int, octets: int) -> dict[str, str]:
    """The generator's options."""
    return {"rows": str(rows), "tasks": str(TASKS), "size": str(octets), "batchRows": str(BATCH_ROWS)}


@contextmanager
def arrow_files(bench: Bench, rows: int, octets: int) -> Iterator[dict[str, str]]:
    """The generator's options for rows from files, one for each task."""
    with TemporaryDirectory(prefix="arrow-", dir=bench.place) as directory:
        write_files(Path(directory), rows, TASKS, BATCH_ROWS, octets)
        yield {**generator(rows, octets), "directory": directory}


def generated(bench: Bench, rows: int, octets: int) -> DataFrame:
    """Generated rows as a batch."""
    return bench.spark.read.format("bench_generator").options(**generator(rows, octets)).load()


def mtl_source(bench: Bench, names: Sequence[str], endpoint: str = "") -> dict[str, str]:
    """Our source reads `names` from the start, with default options otherwise."""
    return {
        "endpoint": endpoint or bench.endpoint,
        "resources": ",".join(names),
        "startingOffsets": "earliest",
    }


def kafka_source(peer: Kafka, topic: str) -> dict[str, str]:
    """Kafka's source, with the same options."""
    return {**peer.options, "subscribe": topic, "startingOffsets": "earliest"}


@contextmanager
def backlog(bench: Bench, rows: int, octets: int, endpoint: str = "") -> Iterator[list[str]]:
    """Resources, one for each task, with `rows` contents in all, written by our sink."""
    endpoint = endpoint or bench.endpoint
    with bench.resources(TASKS, endpoint) as names:
        made_up = generated(bench, rows, octets)
        one_each = element_at(array(*map(lit, names)), spark_partition_id() + 1)
        frame = made_up.select(one_each.alias("resource"), "body")
        frame.write.format("mtl").options(endpoint=endpoint).mode("append").save()
        yield names


@contextmanager
def topic(bench: Bench, peer: Kafka, rows: int, octets: int) -> Iterator[str]:
    """A topic of one partition for each task, with the same rows, written by Kafka's sink."""
    with peer.topic() as name:
        frame = generated(bench, rows, octets).select(col("body").alias("value"))
        frame.write.format("kafka").options(**peer.options, topic=name).save()
        yield name

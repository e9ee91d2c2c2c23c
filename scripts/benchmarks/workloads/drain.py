"""Draining a backlog into noop, beside a source that makes the same rows up, and beside Spark's Kafka source.

A backlog is as many resources as there are tasks, written by our own sink; Kafka's is a topic with as many partitions,
written by its own. So both read with their default options, and each task reads one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.functions import array, col, element_at, lit, spark_partition_id

from benchmarks import sparks
from benchmarks.bench import BATCH_ROWS, TASKS, Bench, Kafka
from benchmarks.measure import Peer, Row, Side, Subject, compare

GENERATOR = "in-memory Arrow generator"
KAFKA = "Kafka source"
OF_GENERATOR = {100: 0.85, 1024: 0.75}
OF_KAFKA = 2.0
SIZES = (100, 1024)
SMALL = TASKS
"""Rows of a job whose cost is all fixed cost."""

UNIT = TASKS * BATCH_ROWS


def batch(bench: Bench) -> list[Row]:
    """By a batch read."""
    return [row for octets in SIZES for row in _batch(bench, octets)]


def stream(bench: Bench) -> list[Row]:
    """By an AvailableNow stream."""
    return [row for octets in SIZES for row in _stream(bench, octets)]


def _batch(bench: Bench, octets: int) -> list[Row]:
    rows, spark = rows_of(bench, octets), bench.spark
    subject = Subject("drain-batch", f"drain, batch, {octets} B", "rows/s")
    with ExitStack() as stack:
        large, small = (stack.enter_context(backlog(bench, size, octets)) for size in (rows, SMALL))

        def ours(names: Sequence[str]) -> None:
            sparks.drain(spark.read.format("mtl").options(**mtl_source(bench, names)).load())

        def generator(size: int) -> None:
            sparks.drain(generated(bench, size, octets))

        def kafka(peer: Kafka) -> Side:
            large, small = (stack.enter_context(topic(bench, peer, size, octets)) for size in (rows, SMALL))

            def run(name: str) -> None:
                sparks.drain(spark.read.format("kafka").options(**kafka_source(peer, name)).load())

            return sparks.Job(partial(run, large), partial(run, small), rows)

        job = sparks.Job(partial(ours, large), partial(ours, small), rows)
        made_up = sparks.Job(partial(generator, rows), partial(generator, SMALL), rows)
        peers = [
            Peer(GENERATOR, made_up, OF_GENERATOR[octets]),
            bench.kafka_peer(KAFKA, OF_KAFKA, kafka),
        ]
        return compare(subject, job, peers, bench.plan.rounds)


def _stream(bench: Bench, octets: int) -> list[Row]:
    rows, spark = rows_of(bench, octets), bench.spark
    subject = Subject("drain-stream", f"drain, AvailableNow, {octets} B", "rows/s")
    with ExitStack() as stack:
        names = stack.enter_context(backlog(bench, rows, octets))
        ours = spark.readStream.format("mtl").options(**mtl_source(bench, names)).load()
        made_up = spark.readStream.format("bench_generator").options(**generator(rows, octets)).load()

        def kafka(peer: Kafka) -> Side:
            name = stack.enter_context(topic(bench, peer, rows, octets))
            frame = spark.readStream.format("kafka").options(**kafka_source(peer, name)).load()
            return partial(sparks.run_now, frame, bench.place, "noop")

        peers = [
            Peer(GENERATOR, partial(sparks.run_now, made_up, bench.place, "noop"), OF_GENERATOR[octets]),
            bench.kafka_peer(KAFKA, OF_KAFKA, kafka),
        ]
        return compare(subject, partial(sparks.run_now, ours, bench.place, "noop"), peers, bench.plan.rounds)


# --- what other workloads use, too --------------------------------------------------------------------------


def rows_of(bench: Bench, octets: int) -> int:
    """How many rows of a size are drained: so many that the start of a job or query, one to two seconds, does not hide
    what moving them costs.
    """
    if octets > 100:
        return bench.plan.amount(short=4_000_000, full=8_000_000, unit=UNIT)
    return bench.plan.amount(short=10_000_000, full=20_000_000, unit=UNIT)


def generator(rows: int, octets: int) -> dict[str, str]:
    """The generator's options."""
    return {"rows": str(rows), "tasks": str(TASKS), "size": str(octets), "batchRows": str(BATCH_ROWS)}


def generated(bench: Bench, rows: int, octets: int) -> DataFrame:
    """Made-up rows as a batch."""
    return bench.spark.read.format("bench_generator").options(**generator(rows, octets)).load()


def mtl_source(bench: Bench, names: Sequence[str], endpoint: str = "") -> dict[str, str]:
    """Ours reads `names` from the start, and else as it does by default."""
    return {
        "endpoint": endpoint or bench.endpoint,
        "resources": ",".join(names),
        "startingOffsets": "earliest",
    }


def kafka_source(peer: Kafka, topic: str) -> dict[str, str]:
    """Kafka's, the same."""
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

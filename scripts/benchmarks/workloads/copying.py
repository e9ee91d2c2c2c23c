"""Copying in a stream: from resource to resource, exactly once, compared with Kafka's topic to topic, at-least-once."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from benchmarks import sparks
from benchmarks.bench import Bench, Kafka
from benchmarks.measure import Row, Sample, Side, Subject, compare
from benchmarks.workloads.drain import SIZES, backlog, kafka_source, mtl_source, topic
from benchmarks.workloads.write import flushed_rows, rows_of

KAFKA = "Kafka topic to topic"
OF_KAFKA = 1.5


def copy(bench: Bench) -> list[Row]:
    """By an AvailableNow stream."""
    return [row for octets in SIZES for row in _copy(bench, octets)]


def _copy(bench: Bench, octets: int) -> list[Row]:
    rows, spark = rows_of(bench, octets), bench.spark
    subject = Subject("copy", f"copy in a stream, {octets} B", "rows/s")
    with ExitStack() as stack:
        names = stack.enter_context(backlog(bench, rows, octets))
        source = spark.readStream.format("mtl").options(**mtl_source(bench, names)).load().select("body")

        def ours() -> Sample:
            with bench.resources() as targets:
                options = {"endpoint": bench.endpoint, "resource": targets[0]}
                return sparks.run_now(source, bench.place, "mtl", **options)

        def kafka(peer: Kafka, rows: int = rows) -> Side:
            name = stack.enter_context(topic(bench, peer, rows, octets))
            frame = spark.readStream.format("kafka").options(**kafka_source(peer, name)).load()
            return partial(_to_topic, bench, peer, frame.select(col("value")))

        peers = [
            bench.kafka_peer(KAFKA, OF_KAFKA, kafka),
            bench.kafka_peer(KAFKA, OF_KAFKA, partial(kafka, rows=flushed_rows(rows)), flush=True),
        ]
        return compare(subject, ours, peers, bench.plan.rounds)


def _to_topic(bench: Bench, peer: Kafka, frame: DataFrame) -> Sample:
    with peer.topic() as name:
        return sparks.run_now(frame, bench.place, "kafka", **peer.options, topic=name)

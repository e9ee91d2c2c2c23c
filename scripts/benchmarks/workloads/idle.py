"""The cost of a query before its first batch, and while it is idle, compared with Kafka's source and with a Python
source that does nothing: the cost of Spark's Python API by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame

from benchmarks import accounting, sparks
from benchmarks.bench import Bench, Kafka
from benchmarks.measure import Peer, Row, Sample, Side, Subject, compare, seconds
from benchmarks.workloads.drain import KAFKA, backlog, generator, kafka_source, mtl_source, topic
from benchmarks.workloads.latency import TICK

NO_MORE = 1.0
ROWS = 1_000
OCTETS = 100
SETTLE_S = 3.0
NOTE = "every Python source waits for a process that loads pyspark, from an archive without bytecode: {:.1f} s alone"
MOST_ROUNDS = 3
"""Rounds of measurements that consist of waiting."""


def start(bench: Bench) -> list[Row]:
    """Seconds from `start()` to the end of the first batch, in a session that has run queries before."""
    subject = Subject("start", "first batch after start()", "s", "less")
    options = generator(ROWS, OCTETS)
    no_op = bench.spark.readStream.format("bench_tick").options(**options).load()
    api = Peer(TICK, partial(_first_batch, bench, no_op))  # the cost of the Python API by itself
    note = NOTE.format(_loading())
    return _beside_kafka(bench, subject, partial(_first_side, bench), [api], bench.plan.rounds, note)


def idle(bench: Bench) -> list[Row]:
    """Processor time of Spark and the broker, above that without a query, with the default trigger: each source
    decides how long a trigger waits for news.
    """
    subject = Subject("idle", "idle query, processor time per minute", "CPU s/min", "less")
    return _beside_kafka(bench, subject, partial(_idle_side, bench), [], min(MOST_ROUNDS, bench.plan.rounds))


def _beside_kafka(
    bench: Bench,
    subject: Subject,
    side: Callable[[DataFrame, int], Side],
    others: Sequence[Peer],
    rounds: int,
    note: str = "",
) -> list[Row]:
    with ExitStack() as stack:
        names = stack.enter_context(backlog(bench, ROWS, OCTETS))
        ours = bench.spark.readStream.format("mtl").options(**mtl_source(bench, names)).load()

        def kafka(peer: Kafka) -> Side:
            name = stack.enter_context(topic(bench, peer, ROWS, OCTETS))
            frame = bench.spark.readStream.format("kafka").options(**kafka_source(peer, name)).load()
            return side(frame, peer.node.pid)

        peer = bench.kafka_peer(KAFKA, NO_MORE, kafka)
        return compare(subject, side(ours, bench.broker.pid), [peer, *others], rounds, note=note)


def _first_side(bench: Bench, frame: DataFrame, _broker: int) -> Side:
    return partial(_first_batch, bench, frame)


def _first_batch(bench: Bench, frame: DataFrame) -> Sample:
    """By the clock in the query's own progress: the start of the first trigger, and its duration."""
    with sparks.checkpoint(bench.place) as directory:
        began = time.time()
        query = frame.writeStream.format("noop").option("checkpointLocation", directory).start()
        try:
            progress = sparks.first_progress(query)
        finally:
            query.stop()
    trigger = datetime.fromisoformat(progress["timestamp"]).timestamp()
    own = progress["durationMs"]["triggerExecution"] / 1000
    return Sample(trigger + own - began, facts={"trigger s": own})


def _loading() -> float:
    """Seconds that Spark's process for a source needs to load its modules, as the JVM starts it, before any source."""
    archives = (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, archives))}
    command = [sys.executable, "-c", "import pyspark.sql.streaming.python_streaming_source_runner"]
    return seconds(lambda: subprocess.run(command, env=environment, check=True))


def _idle_side(bench: Bench, frame: DataFrame, broker: int) -> Side:
    span = bench.plan.time(short=10, full=30)

    def side() -> Sample:
        time.sleep(SETTLE_S)
        without = _used(bench, broker, span)
        with sparks.settled(frame.writeStream.format("noop"), bench.place, SETTLE_S):
            used = _used(bench, broker, span)
        spark, own = (max(0.0, round(total - alone, 2)) for total, alone in zip(used, without, strict=True))
        return Sample(spark + own, facts={"of it the broker": own, "broker without query": without[1]})

    return side


def _used(bench: Bench, broker: int, span: float) -> tuple[float, float]:
    """Processor seconds per minute of Spark (driver, JVM, workers), and of the broker."""

    def now() -> tuple[float, float]:
        return accounting.cpu(bench.spark_processes()), accounting.cpu([broker])

    before = now()
    time.sleep(span)
    after = now()
    return ((after[0] - before[0]) * 60 / span, (after[1] - before[1]) * 60 / span)

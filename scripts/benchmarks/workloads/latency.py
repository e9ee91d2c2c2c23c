"""The time from publishing to the row in a running query: 100 contents a second, one by one, default trigger, noop
sink.

The body is the time of publishing. The executor's clock is read in the expression that processes the row, so that the
time is the row's and not its batch's. The cost of the Python Data Source API by itself is the trigger of a source that
has a row ready in every trigger and does nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import collect_list, expr
from pyspark.sql.streaming.query import StreamingQuery

import mtl
from benchmarks import sparks
from benchmarks.bench import Bench, Kafka
from benchmarks.kafka.topics import Producer
from benchmarks.measure import Peer, Row, Sample, Side, Subject, interleave, percentile, row
from benchmarks.workloads.drain import generator, kafka_source, mtl_source

PER_S = 100
OF_TICK = 1.1
TICK = "no-op Python source"
KAFKA = "Kafka"
SETTLE_S = 4.0
"""At the start of a query workers start and code is compiled; another workload measures that."""
SHARES = {"p50": 0.5, "p99": 0.99}
NOTE = "the Python Data Source API alone takes {:.0f} ms a trigger, which no Python source goes below"

Publish = Callable[[str], object]


def latency(bench: Bench) -> list[Row]:
    """Latency compared with Kafka's, and the trigger's length compared with Kafka's and the no-op source's."""
    with ExitStack() as stack:
        names = stack.enter_context(bench.resources())
        frame = bench.spark.readStream.format("mtl").options(**mtl_source(bench, names)).load()
        publishing = partial(_to_mtl, bench.endpoint, names[0])
        ours = partial(_measured, bench, _taken(frame, "body"), publishing)

        def kafka(peer: Kafka) -> Side:
            topic = stack.enter_context(peer.topic(1))
            frame = bench.spark.readStream.format("kafka").options(**kafka_source(peer, topic)).load()
            return partial(_measured, bench, _taken(frame, "value"), partial(_to_kafka, bench, peer, topic))

        peers = [
            Peer(TICK, partial(_ticking, bench, publishing), OF_TICK),
            bench.kafka_peer(KAFKA, None, kafka),
        ]
        sides: dict[str, Side] = {
            "ours": ours,
            **{peer.name: peer.side for peer in peers if peer.side is not None},
        }
        rounds = 2 if bench.plan.short else 3
        samples = interleave(sides, min(rounds, bench.plan.rounds), warm_up=False)
    return _rows(samples, peers)


def _rows(samples: dict[str, list[Sample]], peers: list[Peer]) -> list[Row]:
    tick = samples[TICK][0].value
    rows = []
    for peer in peers:
        subject = Subject("latency", "trigger at 100 contents/s, default trigger", "ms", "less")
        rows.append(row(subject, peer, samples["ours"], samples.get(peer.name), NOTE.format(tick)))
    for name in SHARES:
        subject = Subject("latency", f"publish to row at 100 contents/s, {name}", "ms", "less")
        theirs = samples.get(peers[-1].name)
        ours = [_of(sample, name) for sample in samples["ours"]]
        rows.append(row(subject, peers[-1], ours, theirs and [_of(sample, name) for sample in theirs]))
    return rows


def _of(sample: Sample, name: str) -> Sample:
    return Sample(sample.facts[name], facts={"contents": sample.facts["contents"]})


def _taken(frame: DataFrame, column: str) -> DataFrame:
    """Each row's age in milliseconds, collected into the progress of its batch."""
    clock = "java_method('java.lang.System', 'currentTimeMillis')"
    age = expr(f"cast({clock} as bigint) - cast(cast({column} as string) as bigint) as age")
    return frame.select(age).observe("ages", collect_list("age").alias("of_batch"))


def _measured(
    bench: Bench, frame: DataFrame, publishing: Callable[[], AbstractContextManager[Publish]]
) -> Sample:
    """A query that runs while contents are published: the median trigger in ms, and the ages' percentiles."""
    span = bench.plan.time(short=12, full=45)
    with publishing() as publish, _running(bench, frame) as query, _publisher(publish):
        batches = _batches(query, span)
    ages = [age for batch in batches for age in batch["observedMetrics"]["ages"]["of_batch"]]
    facts = {name: float(percentile(ages, share)) for name, share in SHARES.items()}
    return Sample(_trigger(batches), facts={**facts, "contents": len(ages)})


def _ticking(bench: Bench, publishing: Callable[[], AbstractContextManager[Publish]]) -> Sample:
    """The median trigger in ms of the no-op source, in the same query: both sides have the same observed columns, and
    as much is published at the same time, so that both have the same share of the machine.
    """
    source = bench.spark.readStream.format("bench_tick").options(**{**generator(20, 13), "tasks": "1"}).load()
    now = expr("cast(cast(unix_millis(current_timestamp()) as string) as binary)")
    frame = _taken(source.withColumn("body", now), "body")
    with publishing() as publish, _running(bench, frame) as query, _publisher(publish):
        return Sample(_trigger(_batches(query, bench.plan.time(short=8, full=30))))


def _trigger(batches: list[dict[str, Any]]) -> float:
    return percentile([float(batch["durationMs"]["triggerExecution"]) for batch in batches], 0.5)


def _batches(query: StreamingQuery, span: float) -> list[dict[str, Any]]:
    """The batches that ended within `span` seconds, after the query has settled."""
    first = sparks.first_progress(query)
    time.sleep(SETTLE_S)
    progress = query.lastProgress
    after = int(first["batchId"] if progress is None else progress["batchId"])
    time.sleep(span)
    batches = [batch for batch in sparks.data_batches(query) if batch["batchId"] > after]
    if not batches:
        raise sparks.QueryFailed(f"no batch ended within {span:.0f} s")
    return batches


@contextmanager
def _running(bench: Bench, frame: DataFrame) -> Iterator[StreamingQuery]:
    with sparks.checkpoint(bench.place) as directory:
        query = frame.writeStream.format("noop").option("checkpointLocation", directory).start()
        try:
            yield query
            failure = query.exception()
            if failure is not None:
                raise failure
        finally:
            query.stop()


@contextmanager
def _publisher(publish: Publish) -> Iterator[None]:
    """A thread that publishes the time, a hundred times a second."""
    done = threading.Event()

    def run() -> None:
        due = time.monotonic()
        while not done.wait(max(0.0, due - time.monotonic())):
            publish(str(time.time_ns() // 1_000_000))
            due += 1 / PER_S

    thread = threading.Thread(target=run, name="publisher", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _to_mtl(endpoint: str, resource: str) -> Iterator[Publish]:
    with mtl.connect(endpoint) as connection, connection.writer(resource) as writer:
        yield lambda text: writer.send(text.encode())


@contextmanager
def _to_kafka(bench: Bench, peer: Kafka, topic: str) -> Iterator[Publish]:
    with Producer(bench.spark, peer.endpoint) as producer:
        yield partial(producer.send, topic)

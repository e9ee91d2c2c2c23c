"""The cost of a trigger without new contents, compared with a Python source that does nothing.

A query that may time out (state with a processing-time timeout) has a micro-batch in every trigger, also without rows.
Its duration is measured, and its processor time is counted for the threads that work for this query alone. Any other
query has no micro-batch then: the source is only asked for its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks import accounting, sparks
from benchmarks.bench import Bench
from benchmarks.measure import NotMeasured, Peer, Row, Sample, Subject, interleave, row
from benchmarks.workloads.drain import backlog, generator, mtl_source
from benchmarks.workloads.latency import OF_TICK, TICK

if TYPE_CHECKING:
    from pandas import DataFrame as Pandas

ROWS = 1_000
OCTETS = 100
SETTLE_S = 3.0
EVERY_MS = 1000
"""The interval of triggers, longer than the batches, so that both sides have the same number of them."""

STREAM, SOURCE = "stream executio", "python_streaming_source_runner"
"""The stream's thread, whose name the system truncates, and the process that Spark asks for a source's offsets."""

EXACT = "of the stream's thread, the source's process and the broker"
ASKED = (
    f"{EXACT}; a source that watches over something costs more than one that does not, and this is how much"
)


def empty(bench: Bench) -> list[Row]:
    """Micro-batches without rows, by the clock and in processor time; and triggers without a micro-batch."""
    unit, peer = "CPU ms", Peer(TICK, None, OF_TICK)
    clock = Subject("empty", "micro-batch with nothing new", "ms", "less")
    try:
        alone = _broker_alone(bench)
    except NotMeasured as reason:
        return [row(clock, replace(peer, missing=str(reason)), [], None)]
    with backlog(bench, ROWS, OCTETS) as names:
        ours = bench.spark.readStream.format("mtl").options(**mtl_source(bench, names)).load()
        no_op = bench.spark.readStream.format("bench_generator").options(**generator(ROWS, OCTETS)).load()
        sides = {"ours": ours, TICK: no_op}
        batches, triggers = (
            interleave(
                {name: partial(_measured, bench, writer(frame), alone) for name, frame in sides.items()},
                bench.plan.rounds,
            )
            for writer in (_with_timeout, _plain)
        )
    took = {name: [Sample(sample.facts["ms"]) for sample in samples] for name, samples in batches.items()}
    used = Subject("empty", "micro-batch with nothing new, processor time", unit, "less")
    asked = Subject("empty", "trigger without a micro-batch, processor time", unit, "less")
    return [
        row(clock, peer, took["ours"], took[TICK]),
        row(used, peer, batches["ours"], batches[TICK], EXACT),
        row(asked, Peer(TICK, None), triggers["ours"], triggers[TICK], ASKED),
    ]


def _plain(frame: DataFrame) -> DataStreamWriter:
    return frame.writeStream.format("noop")


def _with_timeout(frame: DataFrame) -> DataStreamWriter:
    kept = frame.groupBy("resource").applyInPandasWithState(
        _keep, "resource string", "rows long", "append", GroupStateTimeout.ProcessingTimeTimeout
    )
    return kept.writeStream.format("noop").outputMode("append")


def _keep(_key: Any, frames: Iterator[Pandas], state: GroupState) -> Iterator[Pandas]:
    """State that never times out within a measurement."""
    state.update((sum(len(frame) for frame in frames),))
    state.setTimeoutDuration(3_600_000)
    yield from ()


def _measured(bench: Bench, writer: DataStreamWriter, alone: float) -> Sample:
    """Processor time of a trigger in ms, in parts; and the duration of its micro-batch, if it had one."""
    span = bench.plan.time(short=15, full=45)
    paced = writer.trigger(processingTime=f"{EVERY_MS} milliseconds")
    with sparks.settled(paced, bench.place, SETTLE_S) as query:
        before, last_batch = _used(bench), _last(query)
        time.sleep(span)
        used = {name: (now - before[name]) / span * EVERY_MS for name, now in _used(bench).items()}
        took = [
            float(batch["durationMs"]["triggerExecution"])
            for batch in query.recentProgress
            if batch["batchId"] > last_batch
        ]
    used["broker"] = max(0.0, used["broker"] - alone)
    facts = {f"{name} ms": value for name, value in used.items()}
    return Sample(sum(used.values()), facts={**facts, "ms": sum(took) / len(took) if took else 0.0})


def _last(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _used(bench: Bench) -> dict[str, float]:
    """Seconds of processor time so far."""
    spark = bench.spark_processes()
    sources = [pid for pid in spark if SOURCE in accounting.command(pid)]
    return {
        "Spark": accounting.exact(spark, STREAM),
        "source": accounting.exact(sources),
        "broker": accounting.exact([bench.broker.pid]),
    }


def _broker_alone(bench: Bench) -> float:
    """Milliseconds that the broker uses in the time of a trigger without a request."""
    time.sleep(SETTLE_S)
    before = accounting.exact([bench.broker.pid])
    time.sleep(span := bench.plan.time(short=15, full=45))
    return (accounting.exact([bench.broker.pid]) - before) / span * EVERY_MS

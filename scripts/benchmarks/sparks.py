"""Timed Spark jobs: by the wall clock, and without the fixed cost of start and end."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks import memory
from benchmarks.measure import START_SHARE, Sample, seconds
from benchmarks.peers import DiscardSink, FileSink, GeneratorSource, TickSource

PATIENCE_S = 1800
"""A timeout that no query reaches; a hang becomes an error."""

FIRST_S = 120.0
"""A timeout that no first batch reaches."""

LOOK_S = 0.02
"""The interval between two looks at a query's progress."""

STARTS = 3
"""The number of measurements of a job's fixed cost."""


class QueryFailed(RuntimeError):
    """A streaming query did not end, or ended with an error."""


def session(place: Path, tasks: int, jars: Sequence[Path]) -> SparkSession:
    """A local Spark with `tasks` slots, whose files are in `place`."""
    builder = (
        SparkSession.builder.master(f"local[{tasks}]")
        .appName("bench")
        .config("spark.driver.memory", "2g")
        .config("spark.local.dir", str(place))
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(tasks))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    spark = builder.getOrCreate()
    for source in (GeneratorSource, DiscardSink, FileSink, TickSource):
        spark.dataSource.register(source)
    return spark


class Job:
    """A batch job of `rows` rows. `small` is the same job with almost no rows: its time is the fixed cost.

    A call times both, one directly after the other, since the fixed cost becomes less while the JVM compiles; `inner`
    of a sample is the rate without it.
    """

    def __init__(self, run: Callable[[], None], small: Callable[[], None], rows: int) -> None:
        self._run = run
        self._small = small
        self._rows = rows

    def __call__(self) -> Sample:
        """Rows per second."""
        start = statistics.median(seconds(self._small) for _ in range(STARTS))
        memory.settle()
        took = seconds(self._run)
        net = max(took - start, 1e-3)
        return Sample(
            self._rows / took,
            self._rows / net,
            {"seconds": took, START_SHARE: min(1.0, start / took)},
        )


def drain(frame: DataFrame) -> None:
    """Read everything into the noop sink."""
    frame.write.format("noop").mode("overwrite").save()


def run_now(frame: DataFrame, place: Path, sink: str, **options: str) -> Sample:
    """An AvailableNow stream, from its start to its end; rows per second. `inner` is by its batches' own durations."""
    with checkpoint(place) as directory:
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", directory)
        rows, own = 0, 0.0

        def run() -> None:
            nonlocal rows, own
            query = writer.trigger(availableNow=True).start()
            if not query.awaitTermination(PATIENCE_S):
                query.stop()
                raise QueryFailed(f"the query did not end within {PATIENCE_S} s")
            done = data_batches(query)
            rows = sum(progress["numInputRows"] for progress in done)
            own = sum(progress["durationMs"]["triggerExecution"] for progress in done) / 1000

        memory.settle()
        took = seconds(run)
    if not rows:
        raise QueryFailed("the query read no rows")
    return Sample(
        rows / took, rows / own, {"seconds": took, START_SHARE: max(0.0, 1 - own / took), "rows": rows}
    )


def data_batches(query: StreamingQuery) -> list[dict[str, Any]]:
    """The progress of every batch that had rows."""
    return [dict(progress) for progress in query.recentProgress if progress["numInputRows"]]


@contextmanager
def checkpoint(place: Path) -> Iterator[str]:
    """A directory for a query's checkpoint, on the disk that is measured."""
    directory = tempfile.mkdtemp(prefix="checkpoint-", dir=place)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def settled(writer: DataStreamWriter, place: Path, seconds: float) -> Iterator[StreamingQuery]:
    """A query whose first batch is done, and that has run for `seconds` since: workers have started and code is
    compiled.
    """
    with checkpoint(place) as directory:
        query = writer.option("checkpointLocation", directory).start()
        try:
            first_progress(query)
            time.sleep(seconds)
            yield query
        finally:
            query.stop()


def first_progress(query: StreamingQuery) -> dict[str, Any]:
    """The progress of the first batch with rows, as soon as it is done."""
    deadline = time.monotonic() + FIRST_S
    while time.monotonic() < deadline:
        done = data_batches(query) if query.lastProgress is not None else []
        if done:
            return done[0]
        failure = query.exception()
        if failure is not None:
            raise failure
        time.sleep(LOOK_S)
    raise QueryFailed(f"the query had no batch within {FIRST_S:.0f} s")

"""What is measured: Spark reading a backlog and writing a frame, beside the API's own cost."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import mtl
from benchmarks.measure import Row, interleave
from mtl.wire.packs import SCHEMA

TASKS = 2
"""Tasks of every job: the machine's cores."""

GENERATOR = "in-memory Arrow generator"
DISCARD = "Arrow writer that discards"


@dataclass(frozen=True)
class Size:
    """A size of bodies, how many rows are moved with it, and how many of them are in a pack and an Arrow batch."""

    octets: int
    rows: int
    batch_rows: int

    @property
    def name(self) -> str:
        """As the table shows it."""
        return f"{self.octets} B"


@dataclass(frozen=True)
class Bench:
    """What every workload works with."""

    spark: SparkSession
    endpoint: str
    rounds: int

    def fill(self, size: Size) -> str:
        """A resource with a backlog of `size.rows` contents; its name."""
        resource = f"backlog-{size.octets}"
        with mtl.connect(self.endpoint) as connection:
            if connection.create_resource(resource, exist_ok=True).contents:
                return resource
            with connection.writer(resource, packed=True) as writer:
                body = pa.array([bytes(size.octets)] * size.batch_rows, pa.binary())
                pack = pa.record_batch([pa.nulls(size.batch_rows, pa.binary()), body], schema=SCHEMA)
                for _ in range(size.rows // size.batch_rows):
                    writer.send_pack(pack)
        return resource

    def mtl_options(self) -> dict[str, str]:
        """Of every read and write of ours."""
        return {"endpoint": self.endpoint}

    def generated(self, size: Size) -> dict[str, str]:
        """The generator's options for the same rows."""
        return {
            "rows": str(size.rows),
            "tasks": str(TASKS),
            "size": str(size.octets),
            "batchRows": str(size.batch_rows),
        }

    def frame(self, size: Size) -> DataFrame:
        """The rows that sinks are given: made up, so that both sinks wait for the same thing."""
        return self.spark.read.format("bench_generator").options(**self.generated(size)).load().select("body")


def read_batch(bench: Bench, size: Size) -> Row:
    """Drain a backlog into noop by a batch read."""
    resource = bench.fill(size)
    read = bench.spark.read

    def ours() -> None:
        options = {**bench.mtl_options(), "resources": resource, "minPartitions": str(TASKS)}
        _noop(read.format("mtl").options(**options).load())

    def peer() -> None:
        _noop(bench.spark.read.format("bench_generator").options(**bench.generated(size)).load())

    return interleave(f"batch read, {size.name}", GENERATOR, 0.6, size.rows, ours, peer, bench.rounds)


def read_stream(bench: Bench, size: Size) -> Row:
    """Drain a backlog into noop by an AvailableNow stream."""
    resource = bench.fill(size)

    def ours() -> None:
        options = {
            **bench.mtl_options(),
            "resources": resource,
            "minPartitions": str(TASKS),
            "startingOffsets": "earliest",
        }
        _stream_noop(bench.spark.readStream.format("mtl").options(**options).load())

    def peer() -> None:
        _stream_noop(bench.spark.readStream.format("bench_generator").options(**bench.generated(size)).load())

    return interleave(f"stream read, {size.name}", GENERATOR, 0.6, size.rows, ours, peer, bench.rounds)


def write_batch(bench: Bench, size: Size) -> Row:
    """Write a frame into a resource, all or nothing, every content synced before it counts."""
    frame = bench.frame(size)

    def ours() -> None:
        options = {**bench.mtl_options(), "resource": _fresh(bench)}
        frame.write.format("mtl").options(**options).mode("append").save()

    def peer() -> None:
        frame.write.format("bench_discard").mode("append").save()

    return interleave(f"batch write, {size.name}", DISCARD, 0.6, size.rows, ours, peer, bench.rounds)


def write_stream(bench: Bench, size: Size) -> Row:
    """Write a stream's one micro-batch into a resource, exactly once."""
    stream = bench.spark.readStream.format("bench_generator").options(**bench.generated(size)).load()
    frame = stream.select("body")

    def ours() -> None:
        _run(frame, "mtl", {**bench.mtl_options(), "resource": _fresh(bench)})

    def peer() -> None:
        _run(frame, "bench_discard", {})

    return interleave(f"stream write, {size.name}", DISCARD, 0.6, size.rows, ours, peer, bench.rounds)


WORKLOADS: dict[str, Callable[[Bench, Size], Row]] = {
    "read-batch": read_batch,
    "read-stream": read_stream,
    "write-batch": write_batch,
    "write-stream": write_stream,
}


def _fresh(bench: Bench) -> str:
    """A resource of its own for each write; the one before it is removed, so that the disk does not fill up."""
    resource = f"sink-{uuid.uuid4().hex}"
    with mtl.connect(bench.endpoint) as connection:
        for name in connection.describe():
            if name.startswith("sink-"):
                connection.delete_resource(name)
        connection.create_resource(resource)
    return resource


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _stream_noop(frame: DataFrame) -> None:
    _run(frame, "noop", {})


def _run(frame: DataFrame, sink: str, options: dict[str, str]) -> None:
    for checkpoint in _checkpoint():
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        failure = query.exception()
        if failure is not None:
            raise failure


def _checkpoint() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="mtl-bench-"))
    try:
        yield str(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)

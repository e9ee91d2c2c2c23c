"""The workloads, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.measure import Row
from benchmarks.workloads import (
    confirm,
    copying,
    doors,
    drain,
    empty,
    grow,
    idle,
    latency,
    packed,
    plain,
    write,
)

WORKLOADS: dict[str, Callable[[Bench], list[Row]]] = {
    "drain-batch": drain.batch,
    "drain-stream": drain.stream,
    "write-one": write.one_resource,
    "write-eight": write.eight_resources,
    "write-stream": write.stream,
    "copy": copying.copy,
    "latency": latency.latency,
    "plain": plain.plain,
    "packed-ingest": packed.ingest,
    "packed-delivery": packed.delivery,
    "confirm": confirm.confirm,
    "doors": doors.doors,
    "start": idle.start,
    "idle": idle.idle,
    "empty": empty.empty,
    "grow-log": grow.log,
    "grow-resources": grow.resources,
    "grow-connections": grow.connections,
    "grow-backlog": grow.backlog_of_spark,
    "grow-pattern": grow.pattern_of_spark,
}

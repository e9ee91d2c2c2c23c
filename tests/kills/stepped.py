"""`format("stepped")`: the connector itself, whose every step of a trigger can be held (holds.py).

It runs in all Python processes of Spark. Methods called by Spark are overridden; calls of the connector to the client
are wrapped in the client, because a step such as "the lease is granted" is between the two.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from mtl.client.connection import Connection
from mtl.client.writer import Writer
from pyspark_mtl.datasource import MtlDataSource
from pyspark_mtl.sink.sink import BatchWriter, StreamWriter
from pyspark_mtl.source.source import TaskPartition
from pyspark_mtl.source.stream_limited import LimitedStreamReader
from tests.kills.holds import hold


class Stepped(MtlDataSource):
    """The format, under another name so that both are available."""

    @classmethod
    def name(cls) -> str:
        return "stepped"

    def streamReader(self, schema: StructType) -> LimitedStreamReader:  # noqa: N802 Spark's name, here and below
        found = super().streamReader(schema)
        return SteppedReader(found._settings_or_error, found._shape)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        found = super().streamWriter(schema, overwrite)
        return SteppedWriter(found._settings, found._shape)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        found = super().writer(schema, overwrite)
        return SteppedBatchWriter(found._settings, found._shape)


class SteppedReader(LimitedStreamReader):
    _triggers = 0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        hold(f"trigger-{self._triggers}")
        self._triggers += 1
        end = super().latestOffset(start, limit)
        if end != start:
            hold("planned")
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        if start != end:
            hold("logged")
        return super().partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        hold("confirming")
        super().commit(end)
        hold("confirmed")

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Holds before the first row, and after half of the rows, are passed to Spark."""
        assert isinstance(partition, TaskPartition)
        passed, wanted = 0, sum(task.contents.count for task in partition.tasks)
        for batch in super().read(partition):
            if not passed:
                hold("reading")
            yield batch
            passed += batch.num_rows
            if 0 < passed < wanted <= 2 * passed:
                hold("half-read")


class SteppedWriter(StreamWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        hold("done")


class SteppedBatchWriter(BatchWriter):
    """Its name alone makes Spark load this module where a batch is committed."""


def _step(owner: type, method: str, *, before: str | None = None, after: str | None = None) -> None:
    original = getattr(owner, method)

    @functools.wraps(original)
    def held(*arguments: Any, **named: Any) -> Any:
        if before is not None:
            hold(before)
        result = original(*arguments, **named)
        if after is not None:
            hold(after)
        return result

    setattr(owner, method, held)


def _step_of_tasks(method: str, *, before: str, after: str) -> None:
    """Wraps the request for a task's lease: the driver's own leases are not packed."""
    original = getattr(Connection, method)

    @functools.wraps(original)
    def held(*arguments: Any, **named: Any) -> Any:
        if not named.get("packed"):
            return original(*arguments, **named)
        hold(before)
        result = original(*arguments, **named)
        hold(after)
        return result

    setattr(Connection, method, held)


_step_of_tasks("reader", before="leasing", after="leased")
_step(Writer, "send_pack", before="staging")
_step(Writer, "seal", before="sent", after="sealed")
_step(Writer, "flush", after="flushed")
_step(Connection, "watch", before="watching")
_step(Connection, "stage_commit", before="committing", after="committed")

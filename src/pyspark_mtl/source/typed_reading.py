"""Reads the contents of a task with typed bodies as rows of the schema, and writes bad bodies as dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mtl.client.settings import Settings
from pyspark_mtl.rows.bodies.shape import Shape
from pyspark_mtl.rows.typed import TypedRows
from pyspark_mtl.source.dead_letters import DeadLetterWriter
from pyspark_mtl.source.reading import Task, packs


def read(connect: Settings, task: Task, shape: Shape, *, fail_on_data_loss: bool) -> Iterator[Any]:
    """The rows of a task, as record batches. The dead letters of a batch are durable before the batch is yielded.

    Raises BadBody with mode FAILFAST, and DataLoss as `reading.packs` does.
    """
    rows = TypedRows(shape)
    with DeadLetterWriter(connect, task.contents, shape) as letters:
        for pack in packs(connect, task, fail_on_data_loss=fail_on_data_loss):
            for batch, bad in rows(pack.batch, pack.resource, pack.first, pack.timestamp_us):
                letters.write(bad)
                yield batch

"""Reads the contents of a task, a part of one resource, on an executor, and turns them into rows.

A task is only public values: it has no lease, token or connection. On the executor it opens a reader lease of its own,
with a group as a member of the driver's holding.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtl.client.settings import Settings
from mtl.errors import DataLoss, Refused
from mtl.wire.control import INCARNATION, UNKNOWN_RESOURCE
from pyspark_mtl.connections import connection
from pyspark_mtl.source.offsets import OffsetRange

if TYPE_CHECKING:
    from mtl.client.contents import Pack
    from mtl.client.reader import Reader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """Contents to read, and the driver's holding (`holding_epoch` of `group`; both None without a durable group)."""

    contents: OffsetRange
    group: str | None = None
    holding_epoch: int | None = None


def read(
    connect: Settings, task: Task, *, include_properties: bool, fail_on_data_loss: bool
) -> Iterator[Any]:
    """The rows of a task, as record batches. DataLoss if contents are lost; without `fail_on_data_loss` they are
    skipped.
    """
    from pyspark_mtl.rows.frames import rows  # noqa: PLC0415 pyarrow.compute is slow to load; the driver needs none

    for pack in packs(connect, task, fail_on_data_loss=fail_on_data_loss):
        yield rows(
            pack.batch, pack.resource, pack.first, pack.timestamp_us, include_properties=include_properties
        )


def packs(connect: Settings, task: Task, *, fail_on_data_loss: bool) -> Iterator[Pack]:
    """The contents of a task, each exactly once: the sequence numbers of the deliveries are checked.

    DataLoss if contents are lost; without `fail_on_data_loss` they are logged and skipped.
    """
    first, until = task.contents.first, task.contents.until
    while first < until:
        try:
            for pack in _packs(connect, task, first, until):
                yield pack
                first = pack.first + pack.count
        except DataLoss as loss:
            if fail_on_data_loss:
                raise
            log.warning("skipped, since failOnDataLoss is false: %s", loss)
            if loss.first > first and loss.end >= until:
                until = loss.first  # only the end is lost
            else:  # without an extent the resource does not exist any more, and the rest of the range is lost
                first = min(loss.end, until) if loss.end > first else until


def _packs(connect: Settings, task: Task, first: int, until: int) -> Iterator[Pack]:
    """Packs of contents [first, until) from one lease, without gaps. DataLoss with the missing contents."""
    wanted = task.contents
    try:
        with _reader(connect, task, first, until) as reader:
            for pack in reader.batches():
                if pack.first != first:
                    raise DataLoss(wanted.resource, first, pack.first)
                first = pack.first + pack.count
                yield pack
    except Refused as refused:
        # The resource was deleted, or created again, before or after the lease was granted.
        if refused.reason not in {INCARNATION, UNKNOWN_RESOURCE}:
            raise
        raise DataLoss(wanted.resource, first, until) from refused
    if first < until:
        raise DataLoss(wanted.resource, first, until)


def _reader(connect: Settings, task: Task, first: int, until: int) -> Reader:
    wanted = task.contents
    return connection(connect).reader(
        wanted.resource,
        start=first,
        until=until,
        group=task.group,
        holding_epoch=task.holding_epoch,
        packed=True,
        incarnation=wanted.incarnation,
        log_epoch=wanted.epoch_of(first),
        until_epoch=wanted.epoch_of(until),
    )

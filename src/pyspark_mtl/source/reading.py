"""What a task reads: a part of one resource, and how an executor turns it into rows.

A task depends on nothing but its own values, all of them public: it holds no lease, token or connection. On the
executor it has a reader lease of its own, a member of the driver's holding where there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtl.errors import DataLoss, Refused
from mtl.wire.control import INCARNATION, UNKNOWN_RESOURCE
from pyspark_mtl.connections import connection
from pyspark_mtl.options.settings import Connect
from pyspark_mtl.source.offsets import Range

if TYPE_CHECKING:
    from mtl.client import Pack, Reader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """Contents to read, and the driver's hold on them (`epoch` of `group`, None without a durable group)."""

    contents: Range
    group: str | None = None
    epoch: int | None = None


def read(connect: Connect, task: Task, *, include_properties: bool, fail_on_data_loss: bool) -> Iterator[Any]:
    """The rows of a task, as record batches. DataLoss when contents are gone, unless that is to be skipped."""
    from pyspark_mtl.rows.frames import rows  # noqa: PLC0415 pyarrow.compute is slow to load, and the driver does without

    for pack in packs(connect, task, fail_on_data_loss=fail_on_data_loss):
        yield rows(
            pack.batch, pack.resource, pack.first, pack.timestamp_us, include_properties=include_properties
        )


def packs(connect: Connect, task: Task, *, fail_on_data_loss: bool) -> Iterator[Pack]:
    """The contents of a task. Every one of the range is yielded once: what the reader delivers is counted against it.

    DataLoss when contents are gone, unless that is to be skipped.
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
                until = loss.first  # only the end is gone
            else:  # without an extent the resource itself is gone, and with it all that was left
                first = min(loss.end, until) if loss.end > first else until


def _packs(connect: Connect, task: Task, first: int, until: int) -> Iterator[Pack]:
    """What a lease delivers of contents [first, until), each pack where the one before it ended. DataLoss says what is
    missing.
    """
    wanted = task.contents
    try:
        with _reader(connect, task, first, until) as reader:
            for pack in reader.batches():
                if pack.first != first:
                    raise DataLoss(wanted.resource, first, pack.first)
                first = pack.first + pack.count
                yield pack
    except Refused as refused:
        # Deleted, or made again: before the lease was granted, or later.
        if refused.reason not in {INCARNATION, UNKNOWN_RESOURCE}:
            raise
        raise DataLoss(wanted.resource, first, until) from refused
    if first < until:
        raise DataLoss(wanted.resource, first, until)


def _reader(connect: Connect, task: Task, first: int, until: int) -> Reader:
    wanted = task.contents
    return connection(connect).reader(
        wanted.resource,
        start=first,
        until=until,
        group=task.group,
        epoch=task.epoch,
        packed=True,
        incarnation=wanted.incarnation,
        log_epoch=wanted.epoch_of(first),
        until_epoch=wanted.epoch_of(until),
    )

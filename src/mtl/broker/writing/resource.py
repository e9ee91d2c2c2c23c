"""One resource in use: its record, its readable contents, and positions in its log."""

from __future__ import annotations

import logging

from mtl import limits
from mtl.broker.queues import limits as queue_limits
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.unread import Unread
from mtl.errors import DataLoss, Refused, StorageError
from mtl.storage.api import LogView
from mtl.storage.records import ResourceRecord
from mtl.wire import control
from mtl.wire.history import History

log = logging.getLogger("mtl.broker")

ResourceKey = tuple[str, str]
"""(virtual host, name)."""

DEAD_SUFFIX = ".dead"
"""Suffix of the default dead-letter resource's name."""

DEAD_LETTERS = "dead-letters"
"""The default dead-letter resource when that name would be too long."""


class Resource:
    """One resource in use: its record and its `intake`.

    While it is `deleting` it is not found any more, though its record may still exist.
    """

    def __init__(self, record: ResourceRecord, intake: Intake) -> None:
        self.record = record
        self.intake = intake
        self.unread = Unread()
        self.deleting = False

    @property
    def name(self) -> str:
        """Its name within the virtual host."""
        return self.record.name

    @property
    def key(self) -> ResourceKey:
        """Its virtual host and its name."""
        return self.record.vhost, self.record.name

    @property
    def log(self) -> LogView | None:
        """The view of the log; None while it cannot be read."""
        return self.intake.reader

    @property
    def end(self) -> int:
        """The end (exclusive) of the synced contents, which are visible (PROTOCOL.md 5.2). Raises as `readable`."""
        return self.readable().next

    @property
    def earliest(self) -> int:
        """The first content that retention has kept. Raises as `readable`."""
        return self.readable().earliest

    # --- epochs (PROTOCOL.md 5.1.1) ---

    @property
    def history(self) -> History:
        """The epochs of the log's contents, and the epoch for the contents of this run. Raises as `readable`."""
        log = self.readable()
        epochs = log.history
        if log.epoch is not None and not (epochs and epochs[-1].id == log.epoch):
            return History((*epochs, (log.next, log.epoch)), log.next)
        return History(epochs, log.next)

    def epoch_of(self, position: int) -> str | None:
        """The epoch of the content before `position`; None if there is no such content, or its epoch is unknown."""
        return self.log.epoch_of(position - 1) if self.log is not None and position > 1 else None

    def diverges_at(self, position: int, epoch: str | None) -> int | None:
        """The sequence at which this log begins to differ from the log that had `position` after a content of
        `epoch`; None if they do not differ.
        """
        return None if self.log is None else self.history.diverges_at(position, epoch)

    @property
    def stopped(self) -> bool:
        """Whether it accepts no contents: its log did not open, or has to be opened again."""
        return self.log is None or self.intake.stopped is not None

    def readable(self) -> LogView:
        """The log. Raises `Refused` 503 with the reason while it is not open."""
        if self.log is None:
            raise Refused(503, control.STORAGE, f"resource {self.name!r} is stopped: {self.intake.stopped}")
        return self.log

    def add_unread(self, first: int, end: int, error: StorageError) -> None:
        """Record that contents [first, end) cannot be read, or do not verify."""
        if self.unread.add(first, end, error):
            log.error("resource %r cannot be read from %d: %s", self.name, first, error)

    @property
    def trouble(self) -> str | None:
        """The error of the intake, or of contents that cannot be read; None without an error."""
        return self.intake.trouble or (None if self.unread.why is None else str(self.unread.why))

    def writable(self) -> None:
        """Raises `Refused` 503 with the reason while no contents are accepted."""
        if self.stopped:
            raise Refused(503, control.STORAGE, f"resource {self.name!r} is stopped: {self.intake.stopped}")

    def check(self, incarnation: str | None) -> None:
        """Raises `Refused` 409 when the caller means another incarnation of this name."""
        if incarnation is not None and incarnation != self.record.incarnation:
            log = self.log
            positions = {} if log is None else {"earliest": log.earliest, "next": log.next}
            raise Refused(
                409,
                control.INCARNATION,
                f"resource {self.name!r} was deleted and created again: it is "
                f"{self.record.incarnation} now, not {incarnation}",
                resource=self.name,
                incarnation=self.record.incarnation,
                **positions,
            )

    def resolve(self, start: int | str, epoch: str | None = None) -> int:
        """Resolve a start to a sequence; `epoch` is that of the content before it. Raises `DataLoss` for contents that
        are removed, never existed or belong to another copy of the log, `Refused` 400 below 1.
        """
        if start == "earliest":
            return self.earliest
        if start == "latest":
            return self.end
        sequence = int(start)
        if sequence < 1:
            raise Refused(400, control.BAD_ARGUMENTS, "sequences begin at 1")
        self.check_place(sequence, epoch)
        if sequence < self.earliest:
            raise DataLoss(self.name, sequence, self.earliest)
        return sequence

    def check_place(self, position: int, epoch: str | None) -> None:
        """Raises `DataLoss` unless the log has, or had before retention, all contents before `position`, the last of
        which is of `epoch`.
        """
        diverges_at = self.diverges_at(position, epoch)
        if diverges_at is not None:
            raise _diverged(self.name, diverges_at, position, epoch)

    def check_epoch(self, epoch: str) -> None:
        """Raises `DataLoss` when the log has no contents of this epoch, of which the caller has seen some."""
        history = self.history
        if not history.has_epoch(epoch):
            diverges_at = history.diverges_at(self.end, epoch)
            end = self.end if diverges_at is None else diverges_at
            raise _diverged(self.name, end, end, epoch)

    @property
    def dead_letter(self) -> str:
        """The resource for the dead letters of its queues."""
        return self.record.dead_letter or dead_letters_of(self.name)

    @property
    def max_deliveries(self) -> int:
        """The number of deliveries after which a content of its queues becomes a dead letter."""
        return self.record.max_deliveries or queue_limits.QUEUE_DELIVERIES

    def describe(self, oldest_time: int | None, *, history: bool = False) -> control.Description:
        """The description for Resource.Describe, with all epochs of the log if `history` was asked for. `oldest_time`
        is the append time of the earliest content in µs, None if it is not known.
        """
        log = self.log
        return control.Description(
            resource=self.name,
            incarnation=self.record.incarnation,
            known_earliest=log.earliest if log else None,
            known_next=log.next if log else None,
            log_epoch=self.epoch_of(log.next) if log else None,
            history=self.history.entries if history and log else None,
            bytes=log.bytes if log else None,
            contents=log.contents if log else None,
            oldest_time=oldest_time,
            newest_time=log.last_time if log and log.contents else None,
            durability=self.record.durability,
            retention=self.record.retention,
            state="stopped" if self.stopped else "serving",
            trouble=self.trouble,
            dead_letter=self.record.dead_letter,
            max_deliveries=self.record.max_deliveries,
        )


def _diverged(name: str, diverges_at: int, position: int, epoch: str | None) -> DataLoss:
    """The error for a log that is not the one that the caller read or wrote: another copy, or one that lost its end."""
    where = f", as they were in the epoch {epoch}," if epoch is not None else ""
    return DataLoss(
        name,
        diverges_at,
        position,
        f"resource {name!r}: the contents before {position}{where} are the log's only up to {diverges_at}; the rest is "
        "lost. The broker's data was replaced by another copy, or a crash lost unsynced contents; or the position "
        "belongs to another resource",
        resume=None if epoch is None else diverges_at,
    )


def dead_letters_of(name: str) -> str:
    """The default resource for the dead letters of a resource of this name."""
    default = f"{name}{DEAD_SUFFIX}"
    fits = len(default.encode()) <= limits.MAX_SHORT_STRING
    return default if fits else DEAD_LETTERS

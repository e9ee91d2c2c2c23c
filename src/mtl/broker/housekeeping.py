"""Periodic work: retention with the rolling that it needs, and the expiry of unused writer names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from mtl.broker.outbox import Outbox
from mtl.broker.queues.queues import Queues
from mtl.broker.reading.cursors import Cursors
from mtl.broker.reading.readers import Readers
from mtl.broker.reading.reads import Reads
from mtl.broker.stages.commits import Commits
from mtl.broker.steps import run
from mtl.broker.writing.clock import CorrectedClock
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.resource import Resource, ResourceKey
from mtl.broker.writing.resources import Resources
from mtl.broker.writing.writer_names import WriterNames
from mtl.errors import StorageError
from mtl.log.retention import Hold, RetentionPolicy, plan
from mtl.storage.api import ForgetWriters, NewestTime, Roll, Trim
from mtl.storage.records import CursorRecord

log = logging.getLogger("mtl.broker")


class Housekeeping:
    """Retention: first the metadata, then the readers' view, then the files."""

    def __init__(
        self,
        outbox: Outbox,
        resources: Resources,
        cursors: Cursors,
        readers: Readers,
        queues: Queues,
        commits: Commits,
        writer_names: WriterNames,
        clock: CorrectedClock,
        reads: Reads,
    ) -> None:
        self._outbox = outbox
        self._reads = reads
        self._clock = clock
        self._resources = resources
        self._cursors = cursors
        self._readers = readers
        self._queues = queues
        self._commits = commits
        self._writer_names = writer_names

    def run(self) -> None:
        """Roll the segments that are due by age; trim resources by their retention policies."""
        cursors = self._cursors_by_resource()
        for resource in self._resources:
            self._enforce_bounds(resource, cursors.get(resource.key, ()))

    def _enforce_bounds(self, resource: Resource, cursors: Sequence[CursorRecord]) -> None:
        intake = resource.intake
        if resource.stopped or intake.busy or intake.held or self._commits.concerns(resource):
            return
        now_us = self._outbox.now.wall_us
        if resource.log is not None and resource.log.roll_due(self._clock.stamp, now_us):
            self._roll(resource)
        elif resource.record.retention is not None:
            self._trim(resource, cursors)

    def _cursors_by_resource(self) -> dict[ResourceKey, list[CursorRecord]]:
        """Index all cursors once: with many resources and many cursors a search for each resource would take
        minutes.
        """
        by_resource: dict[ResourceKey, list[CursorRecord]] = {}
        for cursor in self._cursors.all():
            by_resource.setdefault((cursor.vhost, cursor.resource), []).append(cursor)
        return by_resource

    def expire_names(self) -> None:
        """Forget the writer names that were unused for long, in the logs too."""
        run(self._expire_names())

    async def _expire_names(self) -> None:
        ids = await self._writer_names.expire()
        for resource in self._resources if ids else ():
            known = tuple(x for x in ids if resource.intake.numbers.has_writer(x))
            if known:
                run(self._forget(resource.intake, known))

    async def _forget(self, intake: Intake, writers: tuple[int, ...]) -> None:
        await intake.hold()
        for writer in writers:
            intake.numbers.forget(writer)
        if intake.reader is not None and intake.stopped is None:
            # After a failure the log keeps numbers that are never needed again.
            intake.change(lambda number: ForgetWriters(number, intake.key, writers))
        intake.release()

    def _roll(self, resource: Resource) -> None:
        intake, wall_us = resource.intake, self._outbox.now.wall_us
        # After a failure the next run tries again.
        intake.change(lambda number: Roll(number, intake.key, wall_us))

    def _trim(self, resource: Resource, cursors: Sequence[CursorRecord]) -> None:
        reader, retention = resource.log, resource.record.retention
        if reader is None or retention is None:
            return
        policy = RetentionPolicy(
            bytes=retention.bytes,
            age_s=retention.age,
            contents=retention.contents,
            groups=tuple(retention.groups),
            hard_bytes=retention.hard_bytes,
        )
        planned = plan(
            reader.segments(),
            total_bytes=reader.bytes,
            next_sequence=reader.next,
            policy=policy,
            holds=self._holds(resource, cursors),
            too_old=self._clock.stamp,
        )
        if planned.unknown is not None:
            run(self._plan_again(resource, planned.unknown))
            return
        if planned.earliest <= reader.earliest:
            return
        for loss in planned.losses:
            kind = "group" if loss.group else "reader"
            log.warning(
                "resource %r: the hard limit removes contents %d to %d (%d in all), which %s %s has not confirmed",
                resource.name,
                loss.first,
                loss.end - 1,
                loss.end - loss.first,
                kind,
                loss.name,
            )
        run(self._remove(resource, planned.earliest))

    async def _remove(self, resource: Resource, earliest: int) -> None:
        """Remove the contents below `earliest`. The log is held: only one action of a log is with the disk at a
        time.
        """
        intake = resource.intake
        await intake.hold()
        with suppress(StorageError):  # the next run tries again
            await self._resources.trimmed(resource, earliest)
            intake.trim(earliest)
            # A failure leaves files below `earliest`; the next opening removes them.
            intake.change(lambda number: Trim(number, intake.key, earliest))
        intake.release()

    async def _plan_again(self, resource: Resource, unknown: int) -> None:
        """Read the age of a segment, and plan again, with the cursors of then."""
        try:
            await self._reads.ask(resource, NewestTime(unknown))
        except StorageError as error:
            log.error("resource %r, retention: %s", resource.name, error)
            return
        if not resource.deleting:
            self._enforce_bounds(resource, self._cursors_by_resource().get(resource.key, ()))

    def _holds(self, resource: Resource, cursors: Sequence[CursorRecord]) -> list[Hold]:
        """The holds on a resource: cursors and queues of groups that retention waits for, and readers that pin."""
        groups = [
            Hold(r.group, self._confirmed(resource, r), True)
            for r in cursors
            if r.incarnation == resource.record.incarnation
        ]
        pins = [
            Hold(lease.terms.token, lease.pinned, False)
            for lease in self._readers.of(resource)
            if lease.pinned is not None
        ]
        queues = [Hold(q.name, q.low, True) for q in self._queues.of(resource).values()]
        unreadable = [
            Hold(group, resource.earliest, True)
            for group in (resource.record.retention.groups if resource.record.retention else ())
            if self._cursors.is_unreadable(resource.record.vhost, group, resource.name)
            or self._queues.is_unreadable(resource, group)
        ]
        return groups + queues + pins + unreadable

    def _confirmed(self, resource: Resource, cursor: CursorRecord) -> int:
        """The end (exclusive) of the contents of this log that a group has confirmed. It is below the group's cursor
        where the log is another copy than the one that the cursor belongs to.
        """
        position = self._cursors.durable(cursor)
        diverges_at = resource.diverges_at(position, cursor.log_epoch)
        return position if diverges_at is None else diverges_at

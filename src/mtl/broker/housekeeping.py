"""Periodic work: retention with the rolling that it needs, and the expiry of unused writer names."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mtl.broker.outbox import Outbox, Result
from mtl.broker.queues.queues import Queues
from mtl.broker.reading.cursors import Cursors
from mtl.broker.reading.readers import Readers
from mtl.broker.reading.reads import Reads
from mtl.broker.stages.committing import Committing
from mtl.broker.writing.ages import Ages
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.names import Names
from mtl.broker.writing.resource import Resource, ResourceKey
from mtl.broker.writing.resources import Resources
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
        committing: Committing,
        names: Names,
        ages: Ages,
        reads: Reads,
    ) -> None:
        self._outbox = outbox
        self._reads = reads
        self._ages = ages
        self._resources = resources
        self._cursors = cursors
        self._readers = readers
        self._queues = queues
        self._committing = committing
        self._names = names

    def run(self) -> None:
        """Roll the segments that are due by age; trim resources by their retention policies."""
        cursors = self._cursors_by_resource()
        for resource in self._resources:
            self._enforce_bounds(resource, cursors.get(resource.key, ()))

    def _enforce_bounds(self, resource: Resource, cursors: Sequence[CursorRecord]) -> None:
        intake = resource.intake
        if resource.stopped or intake.busy or intake.held or self._committing.concerns(resource):
            return
        now_us = self._outbox.now.wall_us
        if resource.log is not None and resource.log.roll_due(self._ages.stamp, now_us):
            self._roll(resource)
        elif resource.record.retention is not None:
            self._trim(resource, cursors)

    def _cursors_by_resource(self) -> dict[ResourceKey, list[CursorRecord]]:
        """Index all cursors once: with many resources and many cursors a search for each resource would take
        minutes.
        """
        found: dict[ResourceKey, list[CursorRecord]] = {}
        for cursor in self._cursors.all():
            found.setdefault((cursor.vhost, cursor.resource), []).append(cursor)
        return found

    def expire_names(self) -> None:
        """Forget the writer names that were unused for long, in the logs too."""
        self._names.expire(self._forget_writers)

    def _forget_writers(self, ids: list[int]) -> None:
        for resource in self._resources:
            known = tuple(x for x in ids if resource.intake.numbers.has_writer(x))
            if known:
                self._forget(resource.intake, known)

    def _forget(self, intake: Intake, writers: tuple[int, ...]) -> None:
        def held() -> None:
            for writer in writers:
                intake.numbers.forget(writer)
            if intake.reader is not None and intake.stopped is None:
                # After a failure the log keeps numbers that are never needed again.
                intake.change(lambda number: ForgetWriters(number, intake.key, writers), lambda _: None)
            intake.release()

        intake.hold(held)

    def _roll(self, resource: Resource) -> None:
        intake, wall_us = resource.intake, self._outbox.now.wall_us
        # After a failure the next run tries again.
        intake.change(lambda number: Roll(number, intake.key, wall_us), lambda _: None)

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
            too_old=self._ages.stamp,
        )
        if planned.unknown is not None:
            self._reads.ask(resource, NewestTime(planned.unknown), lambda found: self._found(resource, found))
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
        intake = resource.intake

        def saved(durable: bool) -> None:
            if durable:
                intake.trim(planned.earliest)
                # A failure leaves files below `earliest`; the next opening removes them.
                intake.change(lambda number: Trim(number, intake.key, planned.earliest), lambda _: None)
            intake.release()

        # The log is held meanwhile: only one action of a log is with the disk at a time.
        intake.hold(lambda: self._resources.trimmed(resource, planned.earliest, saved))

    def _found(self, resource: Resource, newest_time: Result) -> None:
        """The age of a segment was read: plan again, with the cursors of now."""
        if isinstance(newest_time, StorageError):
            log.error("resource %r, retention: %s", resource.name, newest_time)
        elif not resource.deleting:
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
        parting = resource.parting(position, cursor.log_epoch)
        return position if parting is None else parting

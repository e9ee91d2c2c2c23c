"""What happens by the clock and not by a command: retention and the rolling that it needs."""

from __future__ import annotations

import logging

from mtl.broker import actions as a
from mtl.broker.committing import Committing
from mtl.broker.cursors import Cursors
from mtl.broker.outbox import Outbox, Result
from mtl.broker.resources import Resource, Resources
from mtl.errors import StorageError
from mtl.log import Trimmed
from mtl.log.retention import Hold, RetentionPolicy, plan

log = logging.getLogger("mtl.broker")


class Housekeeping:
    """Retention: metadata first, then the readers' view, then the files (storage-and-loop.md)."""

    def __init__(
        self, outbox: Outbox, resources: Resources, cursors: Cursors, committing: Committing
    ) -> None:
        self._outbox = outbox
        self._resources = resources
        self._cursors = cursors
        self._committing = committing

    def run(self) -> None:
        """Roll what is due by age, trim what is due by its policy."""
        for resource in self._resources:
            if (
                resource.log is None
                or resource.intake.busy
                or resource.intake.held
                or self._committing.concerns(resource)
            ):
                continue
            if resource.log.roll_due(self._outbox.now.wall_us):
                self._roll(resource)
            elif resource.record.retention is not None:
                self._trim(resource)

    def _roll(self, resource: Resource) -> None:
        intake = resource.intake

        def rolled(change: Result) -> None:
            if not isinstance(change, StorageError):
                intake.apply(change)

        intake.submit(lambda number: a.Roll(number, intake.key, self._outbox.now.wall_us), rolled)

    def _trim(self, resource: Resource) -> None:
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
            holds=self._holds(resource),
            now_us=self._outbox.now.wall_us,
        )
        if planned.earliest <= reader.earliest:
            return
        for loss in planned.losses:
            kind = "group" if loss.group else "reader"
            log.warning(
                "resource %r: the hard limit takes contents %d to %d (%d in all) from %s %s",
                resource.name,
                loss.first,
                loss.end - 1,
                loss.end - loss.first,
                kind,
                loss.name,
            )
        intake = resource.intake

        def unlinked(_: Result) -> None:
            """A failure leaves files below `earliest`; the next opening removes them."""

        def saved(durable: bool) -> None:
            if durable:
                intake.apply(Trimmed(planned.earliest))
                intake.submit(lambda number: a.Trim(number, intake.key, planned.earliest), unlinked)
            intake.release()

        # Held meanwhile: one thing of a log at a time is with the disk.
        intake.hold(lambda: self._resources.trimmed(resource, planned.earliest, saved))

    def _holds(self, resource: Resource) -> list[Hold]:
        """Who needs contents of this resource: opened cursors of the groups it waits for, and readers that pin."""
        groups = [
            Hold(r.group, self._cursors.durable(r), True)
            for r in self._cursors.all()
            if r.vhost == resource.record.vhost
            and r.resource == resource.name
            and r.incarnation == resource.record.incarnation
        ]
        pins = [
            Hold(token, lease.pinned, False)
            for token, lease in resource.readers.items()
            if lease.pinned is not None
        ]
        return groups + pins

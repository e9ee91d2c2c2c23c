"""One Stage.Commit in progress: from the hold on its resources until its contents are visible in all of them.

PROTOCOL.md 5.5. This is the only operation of the broker that takes several steps. They are the methods of `Commit`, in
order. `committing` has all commits, and their checks.

    hold ──► point ──► publish ⇄ stuck ──► applied ──► finished
       └─────────┴──► refused: nothing changed
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox, Result
from mtl.broker.stages.stages import Stage
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resource import Resource
from mtl.errors import LogStopped, Refused, StorageError
from mtl.storage.api import Change, Publish, Roll, Trim
from mtl.storage.records import (
    AnyRecord,
    ApplicationRecord,
    PublishEntry,
    PublishRecord,
    ResourceRecord,
)
from mtl.wire import control as w

log = logging.getLogger("mtl.broker")

Answer = Callable[[w.Committed | Refused], None]


class Applications(Protocol):
    """The last commits of applications, as a commit uses them: `committing.Committing`."""

    def last(self, commit: Commit) -> ApplicationRecord | None:
        """The commit of the same application before this one."""

    def remember(self, record: ApplicationRecord) -> None:
        """Remember an application's last commit."""

    def finished(self, commit: Commit, no: Refused | None) -> None:
        """A commit has ended: its contents are visible, or (with the refusal) nothing was changed."""


class Commit:
    """One commit; the numbers are its steps, the first of which, the checks, is the caller's.

    `owner` is the user whose quotas count the application, `truncate` are the names of the resources whose former
    contents it replaces; `joined` are stages that a repeated request named. A commit is `stuck` when the disk fails
    after the commit point: the waiting requests are refused, its resources accept nothing, and publishing is tried
    again. A resource that cannot be published to can then be deleted: it is `released` until it is deleted, and the
    others continue without it.
    """

    def __init__(
        self,
        outbox: Outbox,
        opening: LogOpening,
        applications: Applications,
        vhost: str,
        request: w.StageCommit,
        owner: str,
        stages: list[Stage],
        targets: list[Resource],
    ) -> None:
        self._outbox = outbox
        self._opening = opening
        self._applications = applications
        self.vhost = vhost
        self.application = request.application
        self.version = request.version
        self.query = request.query or ""
        self.digest = request.digest
        self.owner = owner
        self.truncate = frozenset(request.truncate)
        self.stages = stages
        self.targets = targets
        self.answers: list[Answer] = []
        self.joined: list[Stage] = []
        self.stuck: StorageError | None = None
        self.delay: Refused | None = None
        """The refusal of requests while the commit is stuck; None otherwise."""
        self.released: Resource | None = None
        self._unready: StorageError | None = None
        self._unheld = len(targets)
        self._record: PublishRecord | None = None
        self._changes: dict[str, list[Change]] = {}
        """The changes that are in place and not visible yet, by resource."""
        self._marking = False

    # --- up to the commit point -----------------------------------------------------------------------------

    def hold(self) -> None:
        """2. Hold the resources: no further appends, and none with the disk. Then sync all contents before the
        commit, because a redo has to find its position. Contents to be replaced end with a segment, so that their
        files can be removed.
        """
        if not self.targets:
            self._point()
        for resource in self.targets:
            resource.intake.hold(lambda resource=resource: self._roll(resource))  # type: ignore[misc]

    def _roll(self, resource: Resource) -> None:
        as_it_is = resource.record.durability == "sync" and resource.name not in self.truncate
        if as_it_is or resource.stopped:
            self._settled()
            return
        intake, now = resource.intake, self._outbox.now.wall_us

        def rolled(failed: StorageError | None) -> None:
            self._unready = self._unready or failed
            self._settled()

        intake.change(lambda number: Roll(number, intake.key, now), rolled)

    def _settled(self) -> None:
        self._unheld -= 1
        if not self._unheld:
            self._point()

    def _point(self) -> None:
        """3. The commit point: one transaction records the version and the places of its contents."""
        stopped = (r.intake.stopped for r in self.targets)
        unready = self._unready or next((error for error in stopped if error is not None), None)
        if unready is not None:  # an earlier action on the disk has failed
            self._refuse(str(unready))
            return
        entries = [self._entry(r) for r in self.targets]
        now = self._outbox.now.wall_us
        published = {e.resource: (e.base, e.contents) for e in entries}
        last = self._applications.last(self)
        application = ApplicationRecord(
            self.vhost,
            self.application,
            self.version,
            self.query,
            published,
            now,
            last.replays if last is not None else 0,
            self.digest,
            self.owner,
        )
        stages = [s.record.stage for s in self.stages]
        publish = PublishRecord(self.vhost, self.application, self.version, stages, entries, now)
        before: tuple[AnyRecord, ...] = (last,) if last is not None else ()

        def saved(result: Result) -> None:
            if isinstance(result, StorageError):
                self._refuse(str(result))
                return
            self._applications.remember(application)
            self._record = publish
            self._publish()

        def unsure(error: StorageError) -> None:
            self._refuse_waiting(f"it is not known yet whether version {self.version} is committed: {error}")

        self._outbox.save_surely((application, publish), (), before, saved, unsure)

    def _entry(self, resource: Resource) -> PublishEntry:
        logs = [s.log_key(resource.name) for s in self.stages if s.contents.get(resource.name)]
        contents = sum(s.contents.get(resource.name, 0) for s in self.stages)
        truncate = resource.name in self.truncate
        return PublishEntry(
            resource.name, resource.record.incarnation, resource.end, contents, logs, truncate
        )

    def _refuse(self, reason: str) -> None:
        """Refuse the commit: nothing changed."""
        for stage in self.stages:
            stage.committing = False
        self._finish(Refused(503, w.STORAGE, reason))

    # --- from the commit point on ---------------------------------------------------------------------------

    def redo(self, record: PublishRecord) -> None:
        """Repeat steps 4 and 5 when the logs are open, after a crash between 3 and 5. Nothing is served yet."""
        self._record = record
        for resource in self.targets:
            resource.intake.hold(lambda: None)
        self._opening.opened(self._intakes, self._publish)

    @property
    def _intakes(self) -> list[Intake]:
        return [
            *(resource.intake for resource in self.targets),
            *(intake for stage in self.stages for intake in stage.intakes.values()),
        ]

    def _publish(self) -> None:
        """4. Publish the contents in each resource; repeated until it succeeds, because the commit is recorded."""
        unopened = [x for x in self._intakes if self._opening.expects(x)]
        shut = unopened or [r.intake for r in self.targets if r.log is None]
        if shut:
            self._stick(shut[0].stopped or StorageError(f"{shut[0].key} is not open"))
            if unopened:
                self._opening.opened(unopened, self._publish, patient=True)
            return
        self._apply_if_complete()
        for resource in self.targets:
            self._place(resource)

    def _place(self, resource: Resource) -> None:
        """Publish to this resource again, unless this is done or in progress, or the resource has left the
        commit.
        """
        assert self._record is not None
        entry = next((e for e in self._record.entries if e.resource == resource.name), None)
        if (
            entry is None
            or resource.name in self._changes
            or resource.intake.busy
            or resource is self.released
        ):
            return
        base, logs, contents, now_us = entry.base, tuple(entry.logs), entry.contents, self._record.now_us

        def placed(result: Result) -> None:
            if isinstance(result, StorageError):
                self._stick(result)
                if not isinstance(result, LogStopped):
                    self._outbox.later(broker_limits.SAVE_RETRY_S, lambda: self._place(resource))
                return
            self._changes[resource.name] = result
            self._apply_if_complete()

        intake = resource.intake
        intake.submit(lambda number: Publish(number, intake.key, base, logs, contents, now_us), placed)

    def _apply_if_complete(self) -> None:
        if self.released is None and not self._marking and all(r.name in self._changes for r in self.targets):
            self._applied()

    def _applied(self) -> None:
        """5. Record that it is applied, then move the visible ends of all resources in one step, answer, release.

        The record comes first: a redo removes contents at or above its base, so none may be confirmed there before. The
        same transaction removes replaced contents for good; their files are removed when no reader sees them.
        """
        assert self._record is not None
        self._marking = True
        entries = {e.resource: e for e in self._record.entries}
        replacing = [r for r in self.targets if entries[r.name].truncate]
        begins = {r.name: msgspec.structs.replace(r.record, earliest=entries[r.name].base) for r in replacing}

        def marked(result: Result) -> None:
            if isinstance(result, StorageError):
                self._stick(result)
                self._outbox.later(broker_limits.SAVE_RETRY_S, self._applied)
                return
            for resource in self.targets:
                resource.intake.apply(self._changes[resource.name])
            for resource in replacing:
                self._replace(resource, begins[resource.name])
            self._finish(None)

        gone: list[AnyRecord] = [self._record, *(s.record for s in self.stages)]
        self._outbox.save(tuple(begins.values()), gone, marked)

    def _replace(self, resource: Resource, record: ResourceRecord) -> None:
        """Remove the contents before the commit; readers see it as retention."""
        first, resource.record = resource.earliest, record
        resource.intake.trim(record.earliest)
        log.info(
            "resource %r: version %d of application %r replaced contents %d to %d",
            resource.name,
            self.version,
            self.application,
            first,
            record.earliest - 1,
        )
        intake = resource.intake
        # A failure leaves files below `earliest`; the next opening removes them.
        intake.change(lambda number: Trim(number, intake.key, record.earliest), lambda _: None)

    def _finish(self, no: Refused | None) -> None:
        for resource in self.targets:
            if self.delay is not None:
                resource.intake.resume()
            resource.intake.release()
        self._applications.finished(self, no)

    # --- stuck ----------------------------------------------------------------------------------------------

    def _stick(self, error: StorageError) -> None:
        if self.stuck is None:
            log.error(
                "version %d of application %r is committed and cannot be published: %s; %s wait for it",
                self.version,
                self.application,
                error,
                ", ".join(r.name for r in self.targets),
            )
        self.stuck = error
        self._refuse_waiting(f"version {self.version} is committed, but not visible yet: {error}")

    def _refuse_waiting(self, why: str) -> None:
        """Refuse the waiting requests, whose clients ask again. Until it succeeds its resources accept nothing."""
        if self.delay is None:
            waiting = StorageError(f"a commit of application {self.application!r} delays it: {why}")
            for resource in self.targets:
                if resource.log is None or not resource.stopped:
                    resource.intake.stop(waiting)
        self.delay = Refused(503, w.STORAGE, f"application {self.application!r}: {why}")
        answers, self.answers = self.answers, []
        for answer in answers:
            answer(self.delay)

    # --- deletion of a resource -----------------------------------------------------------------------------

    @property
    def can_release(self) -> bool:
        """Whether a resource may leave now: one at a time, and not while the end of the commit is being recorded."""
        return self.stuck is not None and self.released is None and not self._marking

    def release_resource(self, resource: Resource) -> None:
        """`resource` is to be deleted: release it, and do not change it any more."""
        self.released = resource
        resource.intake.release()

    @property
    def without_released(self) -> tuple[PublishRecord, PublishRecord]:
        """The record before and after the deletion of `released`, which a redo must not expect."""
        assert self._record is not None
        assert self.released is not None
        name = self.released.name
        left = [e for e in self._record.entries if e.resource != name]
        return self._record, msgspec.structs.replace(self._record, entries=left)

    def resource_deleted(self, resource: Resource) -> None:
        """The resource was deleted; continue with the others."""
        _, self._record = self.without_released
        self.released = None
        self.targets.remove(resource)
        self._changes.pop(resource.name, None)
        self._publish()

    def resource_kept(self, resource: Resource) -> None:
        """The resource was not deleted; continue with all."""

        def held() -> None:
            self.released = None
            self._publish()

        resource.intake.hold(held)

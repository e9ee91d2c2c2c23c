"""One Stage.Commit after its checks: staged contents become visible in all their resources at once. PROTOCOL.md 5.5.

`Commit.carry_out` has the steps, and the file has them in their order:

    1. checks       the caller's (`commits`)
    2. hold         the resources accept nothing, and their contents are synced
    3. record       the commit point: the version is committed, in one transaction
    4. publish      the contents are in each resource, and not visible yet; repeated until they are
    5. apply        the visible ends of all resources move in one step

A commit is `stuck` when the disk fails after the commit point: the waiting requests are refused, its resources accept
nothing, and publishing is tried again. A resource that cannot be published to can then be deleted: it is `released`
until its deletion is durable, and the others continue without it.
"""

from __future__ import annotations

import logging

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox
from mtl.broker.stages.applications import ApplicationKey, Applications
from mtl.broker.stages.stages import Stage
from mtl.broker.steps import Outcome, either, gather
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resource import Resource
from mtl.errors import LogStopped, Refused, StorageError
from mtl.storage.api import Changes, Publish, Roll, Trim
from mtl.storage.records import (
    AnyRecord,
    ApplicationRecord,
    PublishEntry,
    PublishRecord,
    ResourceRecord,
)
from mtl.wire import control

log = logging.getLogger("mtl.broker")


class Commit:
    """One commit; see the module.

    `answered` ends with the answer, or before with the `delay`, while the commit is stuck or its outcome is unknown.
    `owner` is the user whose quotas count the application, `truncate` are the names of the resources whose former
    contents it replaces; `joined` are stages that a repeated request named.
    """

    def __init__(
        self,
        outbox: Outbox,
        opening: LogOpening,
        applications: Applications,
        key: ApplicationKey,
        request: control.StageCommit,
        owner: str,
        stages: list[Stage],
        targets: list[Resource],
    ) -> None:
        self._outbox = outbox
        self._opening = opening
        self._applications = applications
        self.key = key
        self.version = request.version
        self.query = request.query or ""
        self.digest = request.digest
        self.owner = owner
        self.truncate = frozenset(request.truncate)
        self.stages = stages
        self.targets = targets
        self.joined: list[Stage] = []
        self.answered: Outcome[control.Committed] = Outcome()
        self.delay: Refused | None = None
        """The refusal of requests while the commit is stuck; None otherwise."""
        self.stuck: StorageError | None = None
        self.released: Resource | None = None
        self._decided: Outcome[None] = Outcome()
        """Ends when the deletion of the released resource is durable or has failed."""
        self._publish: PublishRecord
        self._changes: dict[str, Changes] = {}
        """The changes that are in place and not visible yet, by resource."""
        self._applying = False

    async def carry_out(self) -> None:
        """Steps 2 to 5. Raises `StorageError` up to the commit point, and then nothing has changed."""
        await gather([self._settle(resource) for resource in self.targets])
        self._publish = await self._record()
        await self._make_visible()

    async def redo(self, record: PublishRecord) -> None:
        """Repeat steps 4 and 5, after a crash between 3 and 5. Nothing is served yet."""
        self._publish = record
        await gather([resource.intake.hold() for resource in self.targets])
        await self._opening.opened([x for resource in self.targets for x in self._logs(resource)])
        await self._make_visible()

    async def _make_visible(self) -> None:
        await gather([self._place(resource) for resource in self.targets])
        while self.released is not None:
            await self._decided
        await self._apply()

    # --- 2. hold --------------------------------------------------------------------------------------------

    async def _settle(self, resource: Resource) -> None:
        """Hold a resource: no further appends, and none with the disk. Then sync all contents before the commit,
        because a redo has to find its position. Contents to be replaced end with a segment, so that their files can be
        removed.
        """
        intake = resource.intake
        await intake.hold()
        as_it_is = resource.record.durability == "sync" and resource.name not in self.truncate
        if not as_it_is and not resource.stopped:
            now = self._outbox.now.wall_us
            await intake.change(lambda number: Roll(number, intake.key, now))

    # --- 3. record ------------------------------------------------------------------------------------------

    async def _record(self) -> PublishRecord:
        """The commit point: one transaction records the version and the places of its contents."""
        for resource in self.targets:
            if resource.intake.stopped is not None:  # an earlier action on the disk has failed
                raise resource.intake.stopped
        (vhost, application), now = self.key, self._outbox.now.wall_us
        entries = [self._entry(r) for r in self.targets]
        last = self._applications.find(self.key)
        record = ApplicationRecord(
            vhost,
            application,
            self.version,
            self.query,
            {e.resource: (e.base, e.contents) for e in entries},
            now,
            last.replays if last is not None else 0,
            self.digest,
            self.owner,
        )
        stages = [s.record.stage for s in self.stages]
        publish = PublishRecord(vhost, application, self.version, stages, entries, now)
        before = (last,) if last is not None else ()
        await self._outbox.save_surely((record, publish), (), before, self._unsure)
        self._applications.remember(record)
        return publish

    def _entry(self, resource: Resource) -> PublishEntry:
        logs = [s.log_key(resource.name) for s in self.stages if s.contents.get(resource.name)]
        contents = sum(s.contents.get(resource.name, 0) for s in self.stages)
        truncate = resource.name in self.truncate
        return PublishEntry(
            resource.name, resource.record.incarnation, resource.end, contents, logs, truncate
        )

    def _unsure(self, error: StorageError) -> None:
        self._refuse_waiting(f"it is not known yet whether version {self.version} is committed: {error}")

    # --- 4. publish -----------------------------------------------------------------------------------------

    async def _place(self, resource: Resource) -> None:
        """Publish to a resource, again until it succeeds, because the commit is recorded, or until it is deleted."""
        while True:
            while resource is self.released:
                await self._decided
            if resource not in self.targets:
                return
            unopened = [x for x in self._logs(resource) if self._opening.expects(x)]
            try:
                if unopened or resource.log is None:
                    shut = unopened[0] if unopened else resource.intake
                    raise shut.stopped or StorageError(f"{shut.key} is not open")
                self._changes[resource.name] = await self._submit(resource)
                return
            except StorageError as error:
                self._stick(error)
                beyond_repair = isinstance(error, LogStopped) or resource.log is None
            if unopened:
                await self._opening.opened(unopened, patient=True)
            elif beyond_repair:
                await self._decided  # this resource, or another one, was deleted or not
            else:
                await either(self._decided, self._outbox.pause(broker_limits.SAVE_RETRY_S))

    def _logs(self, resource: Resource) -> list[Intake]:
        staged = (stage.intakes.get(resource.name) for stage in self.stages)
        return [resource.intake, *(intake for intake in staged if intake is not None)]

    def _submit(self, resource: Resource) -> Outcome[Changes]:
        entry = next(e for e in self._publish.entries if e.resource == resource.name)
        key, base, logs, contents = resource.intake.key, entry.base, tuple(entry.logs), entry.contents
        now_us = self._publish.now_us
        return resource.intake.submit(lambda number: Publish(number, key, base, logs, contents, now_us))

    # --- 5. apply -------------------------------------------------------------------------------------------

    async def _apply(self) -> None:
        """Record that it is applied, then move the visible ends of all resources in one step.

        The record comes first: a redo removes contents at or above its base, so none may be confirmed there before. The
        same transaction removes replaced contents for good; their files are removed when no reader sees them.
        """
        self._applying = True
        bases = {e.resource: e.base for e in self._publish.entries if e.truncate}
        begins = {
            r: msgspec.structs.replace(r.record, earliest=bases[r.name])
            for r in self.targets
            if r.name in bases
        }
        gone: list[AnyRecord] = [self._publish, *(s.record for s in self.stages)]
        while True:
            try:
                await self._outbox.save(tuple(begins.values()), gone)
                break
            except StorageError as error:
                self._stick(error)
            await self._outbox.pause(broker_limits.SAVE_RETRY_S)
        for resource in self.targets:
            resource.intake.apply(self._changes[resource.name])
        for resource, record in begins.items():
            self._replace(resource, record)

    def _replace(self, resource: Resource, record: ResourceRecord) -> None:
        """Remove the contents before the commit; readers see it as retention."""
        first, resource.record = resource.earliest, record
        resource.intake.trim(record.earliest)
        log.info(
            "resource %r: version %d of application %r replaced contents %d to %d",
            resource.name,
            self.version,
            self.key[1],
            first,
            record.earliest - 1,
        )
        intake = resource.intake
        # A failure leaves files below `earliest`; the next opening removes them.
        intake.change(lambda number: Trim(number, intake.key, record.earliest))

    def release(self) -> None:
        """The commit has ended, with or without an effect: its resources accept contents again."""
        for resource in self.targets:
            if self.delay is not None:
                resource.intake.resume()
            resource.intake.release()

    # --- stuck ----------------------------------------------------------------------------------------------

    def _stick(self, error: StorageError) -> None:
        if self.stuck is None:
            log.error(
                "version %d of application %r is committed and cannot be published: %s; %s wait for it",
                self.version,
                self.key[1],
                error,
                ", ".join(r.name for r in self.targets),
            )
        self.stuck = error
        self._refuse_waiting(f"version {self.version} is committed, but not visible yet: {error}")

    def _refuse_waiting(self, why: str) -> None:
        """Refuse the waiting requests, whose clients ask again. Until it succeeds its resources accept nothing."""
        if self.delay is None:
            waiting = StorageError(f"a commit of application {self.key[1]!r} delays it: {why}")
            for resource in self.targets:
                if resource.log is None or not resource.stopped:
                    resource.intake.stop(waiting)
        self.delay = Refused(503, control.STORAGE, f"application {self.key[1]!r}: {why}")
        if not self.answered.is_known:
            self.answered.fail(self.delay)

    # --- deletion of a resource -----------------------------------------------------------------------------

    @property
    def can_release(self) -> bool:
        """Whether a resource may leave now: one at a time, and not while the end of the commit is being recorded."""
        return self.stuck is not None and self.released is None and not self._applying

    def release_resource(self, resource: Resource) -> None:
        """`resource` is to be deleted: release it, and do not change it any more."""
        self.released = resource
        resource.intake.release()

    @property
    def without_released(self) -> tuple[PublishRecord, PublishRecord]:
        """The record before and after the deletion of `released`, which a redo must not expect."""
        assert self.released is not None
        name = self.released.name
        left = [e for e in self._publish.entries if e.resource != name]
        return self._publish, msgspec.structs.replace(self._publish, entries=left)

    def resource_deleted(self, resource: Resource) -> None:
        """The resource was deleted; continue with the others."""
        _, self._publish = self.without_released
        self.targets.remove(resource)
        self._changes.pop(resource.name, None)
        self._decide()

    def resource_kept(self, resource: Resource) -> None:
        """The resource was not deleted; continue with all."""
        resource.intake.hold().when_known(self._decide)

    def _decide(self) -> None:
        self.released = None
        decided, self._decided = self._decided, Outcome()
        decided.set(None)

"""Stages: durable contents that are invisible until Stage.Commit (`commit`). A stage has one log per resource.

A stage, sealed or not, survives a restart of the broker. A stage that is not committed is discarded when its
application commits a later version; without such a commit it expires.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.access.caller import Caller
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Deletion, Outbox, remove
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.sorted_keys import Page, SortedKeys
from mtl.broker.steps import Outcome, gather, run
from mtl.broker.writing.clock import CorrectedClock
from mtl.broker.writing.intake import Intake
from mtl.broker.writing.intakes import Intakes
from mtl.broker.writing.opening import LogOpening, Unopened
from mtl.broker.writing.resource import Resource
from mtl.errors import Damaged, Refused, StorageError
from mtl.storage.api import CreateLog, DropLogs, LogKey, LogOptions
from mtl.storage.keys import staged_log_key, staged_log_keys
from mtl.storage.records import StageRecord, encode_owner
from mtl.storage.unreadable import Unreadable
from mtl.wire import control

log = logging.getLogger("mtl.broker")


StageKey = tuple[str, str, str, str, str]
"""(virtual host, application, version in 20 digits, time of creation in 20 digits, public id)."""


Visible = Callable[[Sequence[tuple[str, Collection[str]]]], list[bool]]
"""For each application, with the names of resources, whether a client may know of it. The result may be shorter than
the list, because the comparisons for one page are bounded; it has at least one member.
"""


class Stage:
    """One stage: its record, and an intake per resource that it has contents for.

    `lease` is the token of the lease that fills it, `closed_by` that of the one that sealed it; `alive` is when it was
    last being filled, in monotonic seconds. It is `committing` from the first step of a Stage.Commit to its last, and
    `deleting` while its record is being deleted.
    """

    def __init__(self, record: StageRecord, now: float) -> None:
        self.record = record
        self.intakes: dict[str, Intake] = {}
        self.lease: str | None = None
        self.closed_by: str | None = None
        self.alive = now
        self.committing = False
        self.deleting = False

    @property
    def idle(self) -> bool:
        """Whether all accepted contents are durable."""
        return all(x.idle for x in self.intakes.values())

    @property
    def contents(self) -> dict[str, int]:
        """Durable contents per resource."""
        return {
            n: x.reader.next - 1
            for n, x in self.intakes.items()
            if x.reader is not None and x.reader.next > 1
        }

    @property
    def octets(self) -> int:
        """Octets on disk."""
        return sum(x.reader.bytes for x in self.intakes.values() if x.reader is not None)

    @property
    def damage(self) -> StorageError | None:
        """The error of a log that cannot be used, or None. A stage with damage cannot be committed."""
        return next((x.stopped for x in self.intakes.values() if x.stopped is not None), None)

    @property
    def trouble(self) -> str | None:
        """The error of a log that accepts or stores nothing, or None."""
        return next((x.trouble for x in self.intakes.values() if x.trouble is not None), None)

    def log_key(self, resource: str) -> LogKey:
        """The log of the staged contents for `resource`."""
        return staged_log_key(self.record, resource)

    @property
    def log_keys(self) -> tuple[LogKey, ...]:
        """The keys of all logs that it may have."""
        return staged_log_keys(self.record)

    @property
    def key(self) -> StageKey:
        """The key by which it is listed."""
        return _key_of(self.record)

    @property
    def sealed(self) -> control.StageSealed:
        """The stage, as the reply to Lease.Close has it."""
        return control.StageSealed(stage=self.record.stage, contents=self.contents, bytes=self.octets)


class Stages:
    """Every stage by its public id."""

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        intakes: Intakes,
        opening: LogOpening,
        options: LogOptions,
        clock: CorrectedClock,
        leases: Leases,
        unreadable: Unreadable,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._intakes = intakes
        self._opening = opening
        self._options = options
        self._clock = clock
        self._leases = leases
        self._unreadable = unreadable
        self._quotas = quotas
        self._pool = Pool(quotas, Quota.STAGES)
        self._stages: dict[str, Stage] = {}
        self._keys: SortedKeys[StageKey] = SortedKeys()
        self._closed_by: dict[str, Stage] = {}

    # --- finding and making ---------------------------------------------------------------------------------

    def restore(self, record: StageRecord) -> None:
        """Restore a stage from its record. Its logs are opened later, as far as they were created; an error of one of
        them is its `damage`.
        """
        stage = self._add(record)
        self._pool.add(record.owner)
        for resource in record.incarnations:
            self._expect(stage, resource)

    def _add(self, record: StageRecord) -> Stage:
        self._keys.add(_key_of(record))
        stage = self._stages[record.stage] = Stage(record, self._outbox.now.mono)
        return stage

    def _expect(self, stage: Stage, resource: str) -> None:
        intake = stage.intakes[resource] = self._intakes.create(
            stage.log_key(resource), None, {}, stage.record.owner
        )

        def opened() -> None:
            sealed = stage.record.contents.get(resource, 0) if stage.record.sealed_us else None
            contents = 0 if intake.reader is None else intake.reader.contents
            if sealed is not None and contents < sealed:
                intake.stop(_shorter(intake.key, contents, sealed))
            elif intake.reader is None:  # the log was never created: its first content creates it
                del stage.intakes[resource]

        self._opening.expect(
            Unopened(
                intake,
                self._options,
                is_wanted=lambda: not stage.deleting and stage.record.stage in self._stages,
                opened=opened,
            )
        )

    def find(self, vhost: str, stage: str) -> Stage | None:
        """A stage by its public id."""
        known = self._stages.get(stage)
        return known if known is not None and known.record.vhost == vhost and not known.deleting else None

    def check_readable(self, stage: str) -> None:
        """Raises `Refused` 503 for a stage whose record cannot be read."""
        if stage not in self._stages:
            self._unreadable.check(StageRecord, stage, f"stage {stage}")

    async def open(
        self, vhost: str, principal: str, spec: control.StageSpec, resources: list[Resource]
    ) -> Stage:
        """Create a stage, durably, for these resources, or find the one that is continued. Raises `Refused`."""
        if spec.id is not None:
            return self._reopened(vhost, spec, spec.id)
        self._pool.check(principal)
        owner = self._quotas.owner(principal)
        self._pool.add(owner)
        record = StageRecord(
            vhost,
            self._random(16).hex(),
            spec.application,
            spec.version,
            {r.name: r.record.incarnation for r in resources},
            self._outbox.now.wall_us,
            owner=owner,
        )
        try:
            await self._outbox.save((record,))
        except StorageError:
            self._pool.remove(owner)
            raise
        return self._add(record)

    def _reopened(self, vhost: str, spec: control.StageSpec, name: str) -> Stage:
        stage = self.find(vhost, name)
        if stage is None:
            self.check_readable(name)
            raise unknown_stage(name)
        if stage.record.sealed_us or stage.committing:
            raise Refused(409, control.CLOSED, f"stage {name} is sealed and accepts no further contents")
        if (stage.record.application, stage.record.version) != (spec.application, spec.version):
            raise stage_of_another(stage, spec.application, spec.version)
        if stage.damage is not None:
            raise damaged(stage)
        return stage

    def intake(self, stage: Stage, resource: str) -> Intake | None:
        """The intake of a stage for `resource`; its log is created with the first content, and again if that failed."""
        closed = stage.committing or stage.deleting or stage.record.sealed_us
        if closed or resource not in stage.record.incarnations:
            return None
        intake = stage.intakes.get(resource)
        if intake is not None:
            return intake
        made = stage.intakes[resource] = self._intakes.create(
            stage.log_key(resource), None, {}, stage.record.owner
        )
        run(self._create_log(stage, resource, made))
        return made

    async def _create_log(self, stage: Stage, resource: str, intake: Intake) -> None:
        owner, share = encode_owner(stage.record), stage.record.owner
        try:
            intake.reader = await intake.submit(
                lambda number: CreateLog(number, intake.key, self._options, owner, share)
            )
        except StorageError as error:
            del stage.intakes[resource]
            intake.stop(error)

    # --- the end --------------------------------------------------------------------------------------------

    async def seal(self, stage: Stage, lease: str) -> control.StageSealed:
        """Seal a stage, durably: it accepts no further contents, and outlives its lease. Raises `Refused`."""
        if not stage.idle:
            raise Refused(
                409, control.UNSEALED, f"stage {stage.record.stage} has contents that are not durable yet"
            )
        if stage.damage is not None:
            raise damaged(stage)
        sealed = stage.sealed
        record = msgspec.structs.replace(
            stage.record, sealed_us=self._outbox.now.wall_us, contents=sealed.contents
        )
        await self._outbox.save((record,))
        stage.record = record
        stage.closed_by = lease
        self._closed_by[lease] = stage
        return sealed

    def sealed_by(self, lease: str) -> control.StageSealed | None:
        """The stage that was sealed with this lease, for a client that asks again because the answer was lost."""
        stage = self._closed_by.get(lease)
        return stage.sealed if stage is not None else None

    def touch(self, stage: str) -> None:
        """Record that the lease of an open stage is alive."""
        open_stage = self._stages.get(stage)
        if open_stage is not None:
            open_stage.alive = self._outbox.now.mono

    async def abort(self, caller: Caller, request: control.StageAbort) -> control.Ok:
        """Stage.Abort: discard stages. Unknown ones are ignored."""
        stages = [self.find(caller.vhost, name) for name in request.stages]
        await self.discard([s for s in stages if s is not None])
        return control.Ok()

    def discard(self, stages: Iterable[Stage]) -> Outcome[None]:
        """Discard stages, durably, except those that are being committed."""
        return remove(self._outbox, [self.prepare_deletion(stages)])

    def prepare_deletion(self, stages: Iterable[Stage]) -> Deletion:
        """Prepare the deletion of stages, except those that are being committed."""
        chosen = [s for s in dict.fromkeys(stages) if not (s.committing or s.deleting)]
        for stage in chosen:
            stage.deleting = True
            self._release(stage)

        def over(gone: bool) -> None:
            for stage in chosen:
                stage.deleting = False
                if gone:
                    self.drop(stage)

        return Deletion([s.record for s in chosen], over)

    def commit(self, stage: Stage) -> None:
        """Mark a stage as being committed, which also seals it."""
        stage.committing = True
        self._release(stage)

    def _release(self, stage: Stage) -> None:
        if stage.lease is not None:
            self._leases.end_token(stage.lease)

    def drop(self, stage: Stage) -> None:
        """The record of a stage was deleted: remove its files, once nothing of them is with the disk."""
        if self._stages.pop(stage.record.stage, None) is not None:
            self._keys.discard(_key_of(stage.record))
            self._pool.remove(stage.record.owner)
        if stage.closed_by is not None:
            self._closed_by.pop(stage.closed_by, None)
        for intake in stage.intakes.values():
            intake.stop(StorageError("the stage was removed"))
        run(self._drop_logs(stage))

    async def _drop_logs(self, stage: Stage) -> None:
        await gather([intake.hold() for intake in stage.intakes.values()])
        for intake in stage.intakes.values():
            self._opening.forget(intake)
            if intake.reader is not None:
                intake.reader.close()
        self._outbox.actions.append(DropLogs(stage.log_keys))

    def outdated(self, vhost: str, application: str, version: int) -> list[Stage]:
        """The stages of older versions than the committed one: they cannot be committed any more."""
        keys = self._keys.between((vhost, application), (vhost, application, _number(version)))
        return [self._stages[key[-1]] for key in keys]

    def expire(self) -> None:
        """Discard expired stages. Stages of failed and speculative attempts, and the last ones of an ended
        application, are never committed.
        """
        over = [
            s for s in self._stages.values() if self._seconds_left(s) < 0 and not (s.committing or s.deleting)
        ]
        for stage in over:
            log.info(
                "stage %s of version %d of %r was never committed and is removed: %d contents, %d octets",
                stage.record.stage,
                stage.record.version,
                stage.record.application,
                sum(stage.contents.values()),
                stage.octets,
            )
        self.discard(over)

    def _seconds_left(self, stage: Stage) -> float:
        """Seconds until a stage expires: a day after its seal, by ages that outlive a restart; an hour after its lease
        was last alive, in monotonic time.
        """
        if stage.record.sealed_us:
            return broker_limits.SEALED_STAGE_S - self._clock.age(stage.record.sealed_us)
        return broker_limits.OPEN_STAGE_S - (self._outbox.now.mono - stage.alive)

    def octets(self) -> Counter[str]:
        """Octets on disk by owner."""
        octets: Counter[str] = Counter()
        for stage in self._stages.values():
            if stage.record.owner:
                octets[stage.record.owner] += stage.octets
        return octets

    # --- listing --------------------------------------------------------------------------------------------

    def page(
        self,
        vhost: str,
        application: str | None,
        after: Sequence[str] | None,
        visible: Visible,
        beginnings: Sequence[str],
    ) -> Page[StageKey]:
        """A page of the stages of one application, or of all with one of the `beginnings`, that are `visible`; sorted
        by application and version, and then by age.
        """

        def wanted(keys: list[StageKey]) -> list[bool]:
            stages = [self._stages[key[-1]] for key in keys]
            shown = visible([(s.record.application, s.record.incarnations) for s in stages])
            return [yes and not s.deleting for yes, s in zip(shown, stages, strict=False)]

        if application is None:
            return self._keys.page((vhost,), after, wanted, beginnings=beginnings)
        return self._keys.page((vhost, application), after, wanted)

    def describe(self, names: Iterable[str]) -> Iterator[control.StageInfo]:
        """Stages for Stage.Describe."""
        return (self._describe(self._stages[name]) for name in names)

    def _describe(self, stage: Stage) -> control.StageInfo:
        record = stage.record
        return control.StageInfo(
            stage=record.stage,
            application=record.application,
            version=record.version,
            state="sealed" if record.sealed_us else "open",
            contents=stage.contents,
            bytes=stage.octets,
            created=record.created_us,
            expires=self._outbox.now.wall_us + int(self._seconds_left(stage) * 1e6),
            trouble=stage.trouble,
        )

    def targeting(self, resource: Resource) -> list[Stage]:
        """The stages for a resource."""
        return [
            s
            for s in self._stages.values()
            if s.record.incarnations.get(resource.name) == resource.record.incarnation
        ]


def _key_of(record: StageRecord) -> StageKey:
    return (
        record.vhost,
        record.application,
        _number(record.version),
        _number(record.created_us),
        record.stage,
    )


def _number(number: int) -> str:
    return f"{number:020}"


def _shorter(key: LogKey, contents: int, sealed: int) -> Damaged:
    """The error for a staged log that has fewer contents than when its stage was sealed."""
    return Damaged(
        f"{key} has {contents} contents where {sealed} were sealed; abort the stage and write it again, or restore its "
        "files from a copy and restart the broker"
    )


def unknown_stage(stage: str) -> Refused:
    """The 404 for an unknown stage."""
    return Refused(
        404, control.UNKNOWN_STAGE, f"no such stage: {stage}; it was aborted, expired or committed"
    )


def stage_of_another(stage: Stage, application: str, version: int) -> Refused:
    """The 400 for a stage that was opened for another application or version."""
    record = stage.record
    return Refused(
        400,
        control.BAD_ARGUMENTS,
        f"stage {record.stage} belongs to version {record.version} of {record.application!r}, "
        f"not to version {version} of {application!r}",
    )


def damaged(stage: Stage) -> Refused:
    """The 503 for a stage that can no longer be read whole."""
    return Refused(503, control.STORAGE, f"stage {stage.record.stage} is damaged: {stage.damage}")

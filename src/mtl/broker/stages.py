"""Stages: durable contents that nobody sees until Stage.Commit (`committing`). A stage is a log per resource it
writes to.

A stage, sealed or not, survives a restart of the broker; one that nobody commits expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.intake import Intake
from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.records import StageRecord
from mtl.broker.resources import Opener, Resource
from mtl.errors import Refused, StorageError
from mtl.log import LogOptions, LogReader
from mtl.wire import control as w


class Stage:
    """One stage: its record, and an intake per resource that it has contents for."""

    def __init__(self, record: StageRecord) -> None:
        self.record = record
        self.intakes: dict[str, Intake] = {}
        self.lease: str | None = None
        self.committing = False

    @property
    def idle(self) -> bool:
        """Whether everything that was taken in is durable."""
        return all(x.idle for x in self.intakes.values())

    @property
    def damage(self) -> StorageError | None:
        """Why some of what was staged cannot be had any more: a commit without it would lose it silently."""
        return next((x.stopped for x in self.intakes.values() if x.stopped is not None), None)

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

    def log_key(self, resource: str) -> a.LogKey:
        """Where the contents for `resource` are staged."""
        index = sorted(self.record.incarnations).index(resource)
        return f"stages/{self.record.stage}/{index}"

    def describe(self, unsealed_us: int) -> w.StageInfo:
        """What Stage.Describe tells."""
        sealed = self.record.sealed_us
        return w.StageInfo(
            stage=self.record.stage,
            application=self.record.application,
            version=self.record.version,
            state="sealed" if sealed else "open",
            contents=self.contents,
            bytes=self.octets,
            created=self.record.created_us,
            expires=expiry_us(self.record, unsealed_us),
        )


def expiry_us(record: StageRecord, alive_us: int) -> int:
    """When a stage that nobody commits goes: a sealed one a day after its seal, an open one an hour after its lease."""
    if record.sealed_us:
        return record.sealed_us + int(limits.SEALED_STAGE_S * 1e6)
    return alive_us + int(limits.OPEN_STAGE_S * 1e6)


class Stages:
    """Every stage by its public id."""

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        opener: Opener,
        options: LogOptions,
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._opener = opener
        self._options = options
        self._stages: dict[str, Stage] = {}
        self._alive_us: dict[str, int] = {}

    # --- stages ---------------------------------------------------------------------------------------------

    def restore(
        self, record: StageRecord, logs: dict[str, tuple[LogReader, dict[int, int]] | StorageError]
    ) -> None:
        """A stage that was there when the broker started; a log that did not open takes nothing and gives nothing."""
        stage = Stage(record)
        self._stages[record.stage] = stage
        for resource, opened in logs.items():
            key = stage.log_key(resource)
            if isinstance(opened, StorageError):
                stage.intakes[resource] = self._opener(key, None, {})
                stage.intakes[resource].stopped = opened
            else:
                stage.intakes[resource] = self._opener(key, *opened)

    def find(self, vhost: str, stage: str) -> Stage | None:
        """A stage by its public id."""
        found = self._stages.get(stage)
        return found if found is not None and found.record.vhost == vhost else None

    def open(
        self,
        vhost: str,
        spec: w.StageSpec,
        resources: list[Resource],
        then: Callable[[Stage | Refused], None],
    ) -> None:
        """Make a stage, durably, for these resources; or find the one that is to go on."""
        if spec.id is not None:
            found = self.find(vhost, spec.id)
            if found is None:
                raise unknown_stage(spec.id)
            if found.record.sealed_us:
                raise Refused(409, w.CLOSED, f"stage {spec.id} is sealed and takes no more contents")
            then(found)
            return
        if len(self._stages) >= limits.MAX_STAGES:
            raise Refused(
                503,
                w.OVERLOADED,
                f"there are {limits.MAX_STAGES} stages, which is the limit; see `mtl stages`",
            )
        record = StageRecord(
            vhost,
            self._random(16).hex(),
            spec.application,
            spec.version,
            {r.name: r.record.incarnation for r in resources},
            self._outbox.now.wall_us,
        )

        def saved(result: Result) -> None:
            no = refusal(result)
            if no is None:
                self._stages[record.stage] = Stage(record)
            then(no or self._stages[record.stage])

        self._outbox.save((record,), (), saved)

    def intake(self, stage: Stage, resource: str) -> Intake | None:
        """The way into a stage for `resource`; its log is made with the first content."""
        if resource not in stage.record.incarnations or stage.committing or stage.record.sealed_us:
            return None
        intake = stage.intakes.get(resource)
        if intake is None:
            intake = stage.intakes[resource] = self._opener(stage.log_key(resource), None, {})
            intake.options = self._options
        return intake

    def seal(self, stage: Stage, then: Callable[[w.Sealed | Refused], None]) -> None:
        """No more contents: durable, and from now on exempt from the lease's life."""
        if not stage.idle:
            raise Refused(
                409, w.UNSEALED, f"stage {stage.record.stage} has contents that are not durable yet"
            )
        sealed = w.Sealed(stage=stage.record.stage, contents=stage.contents, bytes=stage.octets)
        if stage.record.sealed_us:
            then(sealed)
            return
        record = msgspec.structs.replace(stage.record, sealed_us=self._outbox.now.wall_us)

        def saved(result: Result) -> None:
            no = refusal(result)
            if no is None:
                stage.record = record
            then(no or sealed)

        self._outbox.save((record,), (), saved)

    def touch(self, stage: str) -> None:
        """The lease of an open stage is alive."""
        self._alive_us[stage] = self._outbox.now.wall_us

    def discard(
        self, stages: Iterable[Stage], then: Callable[[Refused | None], None] = lambda _: None
    ) -> None:
        """Throw stages away, durably."""
        gone = [s for s in stages if s.record.stage in self._stages and not s.committing]
        if not gone:
            then(None)
            return

        def saved(result: Result) -> None:
            no = refusal(result)
            if no is None:
                for stage in gone:
                    self.drop(stage)
            then(no)

        self._outbox.save((), [s.record for s in gone], saved)

    def drop(self, stage: Stage) -> None:
        """Its record is gone: let go of the files, once nothing of them is with the disk."""
        self._stages.pop(stage.record.stage, None)
        self._alive_us.pop(stage.record.stage, None)
        keys = tuple(x.key for x in stage.intakes.values())
        for intake in stage.intakes.values():
            intake.stopped = StorageError("the stage is gone")
        waiting = [x for x in stage.intakes.values() if x.busy]
        if not waiting:
            self._outbox.actions.append(a.DropLogs(keys))
            return
        left = len(waiting)

        def idle() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._outbox.actions.append(a.DropLogs(keys))

        for intake in waiting:
            intake.hold(idle)

    def expire(self) -> None:
        """Discard the stages whose time is over: leases of failed and speculative attempts are never named."""
        now = self._outbox.now.wall_us
        self.discard(
            [
                s
                for s in self._stages.values()
                if s.lease is None and expiry_us(s.record, self._alive(s)) < now
            ]
        )

    def _alive(self, stage: Stage) -> int:
        return self._alive_us.setdefault(stage.record.stage, self._outbox.now.wall_us)

    def of(self, vhost: str, application: str | None) -> list[w.StageInfo]:
        """What Stage.Describe tells, of one application or all; oldest first."""
        found = [
            s.describe(self._alive(s))
            for s in self._stages.values()
            if s.record.vhost == vhost and application in (None, s.record.application)
        ]
        return sorted(found, key=lambda s: (s.created or 0, s.stage))

    def targeting(self, resource: Resource) -> list[Stage]:
        """The stages that have contents for a resource."""
        return [
            s
            for s in self._stages.values()
            if s.record.incarnations.get(resource.name) == resource.record.incarnation
        ]


def unknown_stage(stage: str) -> Refused:
    """The 404 for a stage that is not there."""
    return Refused(404, w.UNKNOWN_STAGE, f"no such stage: {stage}; it was aborted, expired or committed")

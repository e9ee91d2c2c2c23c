"""Stage.Commit: staged contents become visible in all their resources at once, and only once per version.

PROTOCOL.md 5.5. This is the one operation of the broker that
takes several steps; they are the methods of `Commit`, in their order.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.records import AnyRecord, ApplicationRecord, PublishEntry, PublishRecord
from mtl.broker.resources import Resource, Resources, unknown
from mtl.broker.stages import Stage, Stages, damaged, not_its, unknown_stage
from mtl.errors import LogStopped, Refused, StorageError
from mtl.log import Change
from mtl.wire import control as w

log = logging.getLogger("mtl.broker")

Answer = Callable[[w.Committed | Refused], None]
ApplicationKey = tuple[str, str]
"""(virtual host, application)."""


class Committing:
    """What every application committed last, and the commits under way."""

    def __init__(
        self, outbox: Outbox, resources: Resources, stages: Stages, published: Callable[[Resource], None]
    ) -> None:
        self._outbox = outbox
        self._resources = resources
        self._stages = stages
        self._published = published
        self._applications: dict[ApplicationKey, ApplicationRecord] = {}
        self._commits: dict[ApplicationKey, Commit] = {}

    def remember(self, record: ApplicationRecord) -> None:
        """An application's last commit."""
        self._applications[(record.vhost, record.application)] = record

    def of(self, vhost: str, application: str | None) -> list[w.ApplicationInfo]:
        """What Stage.Describe tells, of one application or all."""
        return [
            _application_info(r)
            for (v, name), r in sorted(self._applications.items())
            if v == vhost and application in (None, name)
        ]

    def concerns(self, resource: Resource) -> bool:
        """Whether a commit is putting contents into this resource: retention and Delete wait."""
        return any(resource in c.targets for c in self._commits.values())

    # --- for a commit under way -----------------------------------------------------------------------------

    def last(self, commit: Commit) -> ApplicationRecord | None:
        """What its application committed before."""
        return self._applications.get((commit.vhost, commit.application))

    def finished(self, commit: Commit, no: Refused | None) -> None:
        """A commit is over: its contents are visible, or (with the refusal) nothing happened."""
        key = (commit.vhost, commit.application)
        self._commits.pop(key, None)
        if no is None:
            for stage in commit.stages:
                self._stages.drop(stage)
            for resource in commit.targets:
                self._published(resource)
            self._stages.discard(self._found(commit.vhost, commit.joined))
        outcome = no or _committed(self._applications[key], already=False)
        for answer in commit.answers:
            answer(outcome)

    # --- Stage.Commit ---------------------------------------------------------------------------------------

    def commit(self, vhost: str, request: w.StageCommit, answer: Answer) -> None:
        """Stage.Commit: once per (application, version), all or nothing. Raises `Refused`; changes nothing then."""
        key = (vhost, request.application)
        running = self._commits.get(key)
        if running is not None:
            self._join(running, request, answer)
            return
        last = self._applications.get(key)
        if last is not None and self._replayed(last, request, answer):
            return
        if len(set(request.stages)) != len(request.stages):
            raise Refused(400, w.BAD_ARGUMENTS, "a stage is named twice")
        stages = [self._committable(vhost, request, name) for name in request.stages]
        names = sorted({n for s in stages for n in s.contents})
        targets = [self._resources.need(vhost, n) for n in names]
        for stage in stages:
            self._stages.commit(stage)
        commit = Commit(self._outbox, self, vhost, request, stages, targets)
        commit.answers.append(answer)
        self._commits[key] = commit
        commit.hold()

    def _join(self, running: Commit, request: w.StageCommit, answer: Answer) -> None:
        """The same version again while it is being committed: it gets the same answer."""
        if request.query and running.query and request.query != running.query:
            raise _reused(request, running.version, running.query)
        if running.version != request.version:
            raise Refused(
                503,
                w.OVERLOADED,
                f"version {running.version} of {request.application!r} is being committed; try again",
            )
        if running.stuck is not None:
            raise running.refusal(running.stuck)
        running.answers.append(answer)
        running.joined += [name for name in request.stages if name not in running.joined]

    def _replayed(self, last: ApplicationRecord, request: w.StageCommit, answer: Answer) -> bool:
        """Whether this version was committed before: then the answer is repeated and the new stages are discarded."""
        if request.version > last.version:
            return False
        if request.query and last.query and request.query != last.query:
            raise _reused(request, last.version, last.query)
        if request.version < last.version:
            raise Refused(
                409,
                w.ROLLED_BACK,
                f"application {request.application!r} has committed version {last.version}; version {request.version} "
                "means that the checkpoint was rolled back or copied, or the txnAppId is reused. "
                f"`mtl stages forget {request.application}` if that is meant",
                version=last.version,
            )
        again = self._found(last.vhost, request.stages)
        _compare(last, again)
        replayed = msgspec.structs.replace(last, replays=last.replays + 1)
        self.remember(replayed)
        self._stages.discard(again)
        self._outbox.save((replayed,), (), lambda _: answer(_committed(replayed, already=True)))
        return True

    def _found(self, vhost: str, names: Sequence[str]) -> list[Stage]:
        found = (self._stages.find(vhost, name) for name in names)
        return [s for s in found if s is not None]

    def _committable(self, vhost: str, request: w.StageCommit, name: str) -> Stage:
        stage = self._stages.find(vhost, name)
        if stage is None:
            raise unknown_stage(name)
        if (stage.record.application, stage.record.version) != (request.application, request.version):
            raise not_its(stage, request.application, request.version)
        if stage.committing:
            raise Refused(409, w.CLOSED, f"stage {name} is being committed already")
        if stage.damage is not None:
            raise damaged(stage)
        if not stage.idle:
            raise Refused(
                409, w.UNSEALED, f"stage {name} has contents that are not durable yet; close its lease first"
            )
        for target, incarnation in stage.record.incarnations.items():
            resource = self._resources.find(vhost, target)
            if resource is None:
                raise unknown(target)
            resource.check(incarnation)
            resource.writable()
        return stage

    def forget(self, vhost: str, application: str, then: Callable[[Refused | None], None]) -> None:
        """Forget what an application committed last: the deliberate way out of a rolled-back checkpoint."""
        record = self._applications.get((vhost, application))
        if record is None:
            raise Refused(404, w.UNKNOWN_APPLICATION, f"application {application!r} never committed anything")
        if (vhost, application) in self._commits:
            raise Refused(503, w.OVERLOADED, f"application {application!r} is committing; try again")

        def saved(result: Result) -> None:
            no = refusal(result)
            if no is None:
                self._applications.pop((vhost, application), None)
            then(no)

        self._outbox.save((), (record,), saved)

    def redo(self, record: PublishRecord, done: Callable[[], None]) -> None:
        """A commit past its commit point when the broker stopped: its contents are put in place before anything is
        served, unless the disk refuses; its resources wait then, and nobody sees a part of it.
        """
        request = w.StageCommit(application=record.application, version=record.version, stages=record.stages)
        targets = [self._resources.need(record.vhost, e.resource) for e in record.entries]
        stages = self._found(record.vhost, record.stages)
        for stage in stages:
            self._stages.commit(stage)
        commit = Commit(self._outbox, self, record.vhost, request, stages, targets)
        commit.answers.append(lambda _: done())
        self._commits[(record.vhost, record.application)] = commit
        commit.redo(record)


class Commit:
    """One Stage.Commit under way, in numbered steps; step 1, the checks, is the caller's.

    `joined` are stages that a repetition of the request named. It is `stuck` when the disk refuses what is committed
    already: then whoever waits is told, its resources take nothing in, and it is tried again.
    """

    def __init__(
        self,
        outbox: Outbox,
        owner: Committing,
        vhost: str,
        request: w.StageCommit,
        stages: list[Stage],
        targets: list[Resource],
    ) -> None:
        self._outbox = outbox
        self._owner = owner
        self.vhost = vhost
        self.application = request.application
        self.version = request.version
        self.query = request.query or ""
        self.stages = stages
        self.targets = targets
        self.answers: list[Answer] = []
        self.joined: list[str] = []
        self.stuck: StorageError | None = None
        self._unready: StorageError | None = None
        self._changes: dict[str, list[Change]] = {}
        self._left = len(targets)

    def hold(self) -> None:
        """2. Hold appends to the named resources, wait until nothing of theirs is with the disk, and have on the disk
        whatever lies before the commit: a redo has to find its place.
        """
        if not self.targets:
            self._point()
        for resource in self.targets:
            resource.intake.hold(lambda resource=resource: self._held(resource))  # type: ignore[misc]

    def _held(self, resource: Resource) -> None:
        if resource.record.durability == "sync" or resource.stopped:
            self._settled()
            return
        intake, now = resource.intake, self._outbox.now.wall_us

        def rolled(result: Result) -> None:
            if isinstance(result, StorageError):
                self._unready = result
            else:
                intake.apply(result)
            self._settled()

        intake.submit(lambda number: a.Roll(number, intake.key, now), rolled)

    def _settled(self) -> None:
        self._left -= 1
        if not self._left:
            self._point()

    def _point(self) -> None:
        """3. The commit point: one transaction remembers the version and what goes where."""
        stopped = (r.intake.stopped for r in self.targets)
        unready = self._unready or next((error for error in stopped if error is not None), None)
        if unready is not None:  # what was with the disk a moment ago has failed
            self._refuse(str(unready))
            return
        entries = [self._entry(r) for r in self.targets]
        now = self._outbox.now.wall_us
        digest = {e.resource: (e.base, e.contents) for e in entries}
        last = self._owner.last(self)
        application = ApplicationRecord(
            self.vhost,
            self.application,
            self.version,
            self.query,
            digest,
            now,
            last.replays if last is not None else 0,
        )
        stages = [s.record.stage for s in self.stages]
        publish = PublishRecord(self.vhost, self.application, self.version, stages, entries, now)
        before: tuple[AnyRecord, ...] = (last,) if last is not None else ()

        def saved(result: Result) -> None:
            if isinstance(result, StorageError):
                self._refuse(str(result))
                return
            self._owner.remember(application)
            self._publish(publish)

        self._outbox.save_surely((application, publish), (), before, saved)

    def _entry(self, resource: Resource) -> PublishEntry:
        logs = [s.log_key(resource.name) for s in self.stages if s.contents.get(resource.name)]
        contents = sum(s.contents.get(resource.name, 0) for s in self.stages)
        return PublishEntry(resource.name, resource.record.incarnation, resource.end, contents, logs)

    def redo(self, record: PublishRecord) -> None:
        """Steps 4 and 5 again, after a crash between 3 and 5; nothing is served yet."""
        for resource in self.targets:
            resource.intake.hold(lambda: None)
        stopped = next((r for r in self.targets if r.log is None), None)
        if stopped is None:
            self._publish(record)
        else:
            self._stick(stopped.intake.stopped or StorageError(f"resource {stopped.name!r} did not open"))

    def _publish(self, record: PublishRecord) -> None:
        """4. Put the contents in place, each resource by itself; repeated until it succeeds, for it is committed."""
        self._left = len(record.entries)
        if not record.entries:
            self._applied(record)
        for resource, entry in zip(self.targets, record.entries, strict=True):
            self._place(record, resource, entry)

    def _place(self, record: PublishRecord, resource: Resource, entry: PublishEntry) -> None:
        def placed(result: Result) -> None:
            if isinstance(result, StorageError):
                self._stick(result)
                if not isinstance(result, LogStopped):
                    self._outbox.later(limits.SAVE_RETRY_S, lambda: self._place(record, resource, entry))
                return
            self._changes[entry.resource] = result
            self._left -= 1
            if not self._left:
                self._applied(record)

        resource.intake.submit(
            lambda number: a.Publish(
                number, resource.intake.key, entry.base, tuple(entry.logs), record.now_us
            ),
            placed,
        )

    def _applied(self, record: PublishRecord) -> None:
        """5. Mark it applied, then advance the visible end of all resources in one step, answer, let go.

        The mark comes first: a redo removes what lies at or above its base, so nothing may be confirmed there before.
        """

        def marked(result: Result) -> None:
            if isinstance(result, StorageError):
                self._stick(result)
                self._outbox.later(limits.SAVE_RETRY_S, lambda: self._applied(record))
                return
            for resource in self.targets:
                for change in self._changes.get(resource.name, ()):
                    resource.intake.apply(change)
            self._finish(None)

        self._outbox.save((), (record, *(s.record for s in self.stages)), marked)

    def _refuse(self, reason: str) -> None:
        """Nothing happened."""
        for stage in self.stages:
            stage.committing = False
        self._finish(Refused(503, w.STORAGE, reason))

    def _finish(self, no: Refused | None) -> None:
        for resource in self.targets:
            if self.stuck is not None:
                resource.intake.go_on()
            resource.intake.release()
        self._owner.finished(self, no)

    def _stick(self, error: StorageError) -> None:
        if self.stuck is None:
            log.error(
                "version %d of application %r is committed and cannot be put in place: %s; %s wait for it",
                self.version,
                self.application,
                error,
                ", ".join(r.name for r in self.targets),
            )
            waiting = StorageError(f"a commit of {self.application!r} cannot be put in place: {error}")
            for resource in self.targets:
                if not resource.stopped:
                    resource.intake.stop(waiting)
        self.stuck = error
        answers, self.answers = self.answers, []
        for answer in answers:
            answer(self.refusal(error))

    def refusal(self, error: StorageError) -> Refused:
        """What whoever asks is told while it is stuck: to ask again."""
        return Refused(
            503,
            w.STORAGE,
            f"version {self.version} of {self.application!r} is committed, but not visible yet: {error}",
        )


def _compare(last: ApplicationRecord, again: list[Stage]) -> None:
    """A repeated commit comes with the same contents, or somebody should look."""
    staged: Counter[str] = Counter()
    for stage in again:
        staged.update(stage.contents)
    committed = {n: contents for n, (_, contents) in last.digest.items()}
    if staged and dict(staged) != committed:
        log.warning(
            "application %r repeats version %d with %s where it committed %s; the first stands",
            last.application,
            last.version,
            dict(staged),
            committed,
        )


def _reused(request: w.StageCommit, version: int, query: str) -> Refused:
    return Refused(
        409,
        w.ROLLED_BACK,
        f"application {request.application!r} was at version {version} by query {query}; "
        f"query {request.query} comes with version {request.version}: the name is reused by another query. "
        f"Give it another txnAppId, or `mtl stages forget {request.application}` if that is meant",
        version=version,
    )


def _committed(record: ApplicationRecord, *, already: bool) -> w.Committed:
    return w.Committed(already=already, resources=_published(record), digest=_digest(record))


def _published(record: ApplicationRecord) -> dict[str, w.Published]:
    return {n: w.Published(first=first, contents=contents) for n, (first, contents) in record.digest.items()}


def _digest(record: ApplicationRecord) -> str:
    return ",".join(f"{n}={contents}" for n, (_, contents) in sorted(record.digest.items()))


def _application_info(record: ApplicationRecord) -> w.ApplicationInfo:
    return w.ApplicationInfo(
        application=record.application,
        version=record.version,
        digest=_digest(record),
        query=record.query or None,
        resources=_published(record),
        committed=record.committed_us,
        replays=record.replays,
    )

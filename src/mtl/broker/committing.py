"""Stage.Commit: staged contents become visible in all their resources at once, and only once per version.

storage-and-loop.md "Stage.Commit", connector.md "Exactly once". This is the one operation of the broker that
takes several steps; they are the methods of `Commit`, in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.records import ApplicationRecord, PublishEntry, PublishRecord
from mtl.broker.resources import Resource, Resources, unknown
from mtl.broker.stages import Stage, Stages, unknown_stage
from mtl.errors import Refused, StorageError
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
        return any(
            resource.name in c.names and c.vhost == resource.record.vhost for c in self._commits.values()
        )

    def last(self, commit: Commit) -> ApplicationRecord | None:
        """What the commit's application committed before."""
        return self._applications.get((commit.vhost, commit.application))

    def hindered(self, commit: Commit) -> Refused | None:
        """Why a commit cannot go on that has waited for its resources: one of them was deleted, or its log stopped.

        Nobody knows where a stopped log ends, so no commit may begin there.
        """
        names = [r.name for r in commit.targets if self._resources.find(commit.vhost, r.name) is not r]
        if names:
            return unknown(*names)
        try:
            for resource in commit.targets:
                resource.serving()
        except Refused as e:
            return e
        return None

    def passed(self, record: ApplicationRecord) -> None:
        """A commit is past its commit point: from here on its version counts as committed."""
        self.remember(record)

    def finished(self, commit: Commit, no: Refused | None) -> None:
        """A commit is over: its contents are visible, or (with the refusal) nothing happened."""
        key = (commit.vhost, commit.application)
        self._commits.pop(key, None)
        if no is None:
            for stage in commit.stages:
                self._stages.drop(stage)
            for resource in commit.targets:
                self._published(resource)
        outcome = no or _committed(self._applications[key], already=False)
        for answer in commit.answers:
            answer(outcome)

    def commit(self, vhost: str, request: w.StageCommit, answer: Answer) -> None:
        """Stage.Commit: once per (application, version), all or nothing. Raises `Refused`; changes nothing then."""
        key = (vhost, request.application)
        running = self._commits.get(key)
        if running is not None:
            if running.version != request.version:
                raise Refused(
                    503,
                    w.OVERLOADED,
                    f"version {running.version} of {request.application!r} is being committed",
                )
            running.answers.append(answer)
            return
        last = self._applications.get(key)
        if last is not None and self._replayed(last, request, answer):
            return
        if len(set(request.stages)) != len(request.stages):
            raise Refused(400, w.BAD_ARGUMENTS, "a stage is named twice")
        stages = [self._committable(vhost, name) for name in request.stages]
        for stage in stages:
            stage.committing = True
        names = sorted({n for s in stages for n in s.contents})
        targets = [self._resources.need(vhost, n) for n in names]
        commit = Commit(self._outbox, self, vhost, request, stages, targets)
        commit.answers.append(answer)
        self._commits[key] = commit
        commit.hold()

    def _replayed(self, last: ApplicationRecord, request: w.StageCommit, answer: Answer) -> bool:
        """Whether this version was committed before: then the answer is repeated and the new stages are discarded."""
        if request.query and last.query and request.query != last.query and request.version <= last.version:
            raise Refused(
                409,
                w.ROLLED_BACK,
                f"application {request.application!r} was at version {last.version} by query {last.query}; "
                f"query {request.query} comes with version {request.version}: the name is reused by another query. "
                f"Give it another txnAppId, or `mtl stages forget {request.application}` if that is meant",
                version=last.version,
            )
        if request.version > last.version:
            return False
        if request.version < last.version:
            raise Refused(
                409,
                w.ROLLED_BACK,
                f"application {request.application!r} has committed version {last.version}; version {request.version} "
                "means that the checkpoint was rolled back or copied, or the txnAppId is reused. "
                f"`mtl stages forget {request.application}` if that is meant",
                version=last.version,
            )
        replayed = msgspec.structs.replace(last, replays=last.replays + 1)
        self._applications[(last.vhost, last.application)] = replayed
        found = (self._stages.find(last.vhost, name) for name in request.stages)
        self._stages.discard([s for s in found if s is not None])
        self._outbox.save((replayed,), (), lambda _: answer(_committed(replayed, already=True)))
        return True

    def _committable(self, vhost: str, name: str) -> Stage:
        stage = self._stages.find(vhost, name)
        if stage is None:
            raise unknown_stage(name)
        if stage.committing:
            raise Refused(409, w.CLOSED, f"stage {name} is being committed under another version")
        if not stage.idle:
            raise Refused(
                409, w.UNSEALED, f"stage {name} has contents that are not durable yet; close its lease first"
            )
        if stage.damage is not None:
            raise Refused(503, w.STORAGE, f"stage {name} is stopped: {stage.damage}")
        for target, incarnation in stage.record.incarnations.items():
            resource = self._resources.find(vhost, target)
            if resource is None:
                raise unknown(target)
            resource.check(incarnation)
            resource.serving()
        return stage

    def forget(self, vhost: str, application: str, then: Callable[[Refused | None], None]) -> None:
        """Forget what an application committed last: the deliberate way out of a rolled-back checkpoint."""
        record = self._applications.get((vhost, application))
        if record is None:
            raise Refused(404, w.UNKNOWN_APPLICATION, f"application {application!r} never committed anything")

        def saved(result: Result) -> None:
            no = refusal(result)
            if no is None:
                self._applications.pop((vhost, application), None)
            then(no)

        self._outbox.save((), (record,), saved)

    def redo(self, record: PublishRecord, done: Callable[[], None]) -> None:
        """A commit past its commit point when the broker stopped: put its contents in place before anything is
        served.
        """
        request = w.StageCommit(application=record.application, version=record.version, stages=record.stages)
        stages = [s for s in (self._stages.find(record.vhost, x) for x in record.stages) if s is not None]
        targets = [self._resources.need(record.vhost, e.resource) for e in record.entries]
        commit = Commit(self._outbox, self, record.vhost, request, stages, targets)
        commit.answers.append(lambda _: done())
        self._commits[(record.vhost, record.application)] = commit
        stopped = [r.name for r in targets if r.log is None]
        stopped += [f"stage {s.record.stage}" for s in stages if s.damage is not None]
        if stopped:
            # All or nothing: the others wait with the damaged one, held, until it is repaired and the broker restarted.
            log.error(
                "version %d of application %r cannot be put in place: %s stopped",
                record.version,
                record.application,
                ", ".join(stopped),
            )
            commit.park()
            done()
            return
        commit.redo(record)


class Commit:
    """One Stage.Commit under way, step by step as storage-and-loop.md numbers them; step 1 is the caller's."""

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
        self._query = request.query or ""
        self.vhost = vhost
        self.application = request.application
        self.version = request.version
        self.stages = stages
        self.targets = targets
        self.answers: list[Answer] = []
        self._changes: dict[str, list[Change]] = {}
        self._left = len(targets)

    @property
    def names(self) -> set[str]:
        """The resources that it puts contents into."""
        return {r.name for r in self.targets}

    def hold(self) -> None:
        """2. Hold appends to the named resources, and wait until nothing of theirs is with the disk."""
        if not self.targets:
            self._point()
            return
        for resource in self.targets:
            resource.intake.hold(self._held)

    def _held(self) -> None:
        self._left -= 1
        if not self._left:
            self._point()

    def _point(self) -> None:
        """3. The commit point: one transaction remembers the version and what goes where."""
        no = self._owner.hindered(self)
        if no is not None:
            self._refuse(no)
            return
        entries = [self._entry(r) for r in self.targets]
        now = self._outbox.now.wall_us
        digest = {e.resource: (e.base, e.contents) for e in entries}
        former = self._owner.last(self)
        application = ApplicationRecord(
            self.vhost,
            self.application,
            self.version,
            self._query,
            digest,
            now,
            former.replays if former is not None else 0,
        )
        stages = [s.record.stage for s in self.stages]
        publish = PublishRecord(self.vhost, self.application, self.version, stages, entries, now)
        self._outbox.save(
            (application, publish), (), lambda result: self._passed(application, publish, result)
        )

    def _entry(self, resource: Resource) -> PublishEntry:
        logs = [s.log_key(resource.name) for s in self.stages if s.contents.get(resource.name)]
        contents = sum(s.contents.get(resource.name, 0) for s in self.stages)
        return PublishEntry(resource.name, resource.record.incarnation, resource.end, contents, logs)

    def _passed(self, application: ApplicationRecord, publish: PublishRecord, result: Result) -> None:
        no = refusal(result)
        if no is not None:
            self._undo(application, publish, no)
            return
        self._owner.passed(application)
        self._publish(publish)

    def _undo(self, application: ApplicationRecord, publish: PublishRecord, no: Refused) -> None:
        """The commit point failed, and yet a crash may find it in the database's log, and redo it over whatever went
        into the resources since. So nothing goes there before it is overwritten.
        """
        former = self._owner.last(self)
        put = (former,) if former is not None else ()
        forget = (publish,) if former is not None else (application, publish)

        def undone(result: Result) -> None:
            if isinstance(result, StorageError):
                self._outbox.later(limits.PUBLISH_RETRY_S, lambda: self._undo(application, publish, no))
                return
            self._refuse(no)

        self._outbox.save(put, forget, undone)

    def _refuse(self, no: Refused) -> None:
        """Nothing happened."""
        for stage in self.stages:
            stage.committing = False
        self._finish(no)

    def redo(self, record: PublishRecord) -> None:
        """Steps 4 and 5 again, after a crash between 3 and 5; nothing is served yet."""
        self.park()
        self._publish(record)

    def park(self) -> None:
        """Let nothing into the resources."""
        for resource in self.targets:
            resource.intake.hold(lambda: None)

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
                # Committed and not in place: the resource takes nothing else until it is.
                self._outbox.later(limits.PUBLISH_RETRY_S, lambda: self._place(record, resource, entry))
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
        stages = [s.record for s in self.stages]
        self._outbox.save((), (record, *stages), lambda result: self._marked(record, result))

    def _marked(self, record: PublishRecord, result: Result) -> None:
        if isinstance(result, StorageError):
            self._outbox.later(limits.PUBLISH_RETRY_S, lambda: self._applied(record))
            return
        for resource in self.targets:
            for change in self._changes.get(resource.name, ()):
                resource.intake.apply(change)
        self._finish(None)

    def _finish(self, no: Refused | None) -> None:
        for resource in self.targets:
            resource.intake.release()
        self._owner.finished(self, no)


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

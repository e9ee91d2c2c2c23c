"""Stage.Commit: staged contents become visible in all their resources at once, and only once per version.

PROTOCOL.md 5.5. This file has the last commit of every application, and the checks; `publishing` has the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Deletion, Outbox, remove
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.sorted_keys import Page, SortedKeys
from mtl.broker.stages import repetition
from mtl.broker.stages.publishing import Answer, Commit
from mtl.broker.stages.stages import Stage, Stages, Visible, damaged, stage_of_another, unknown_stage
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused
from mtl.storage.records import ApplicationRecord, PublishRecord, record_key
from mtl.storage.unreadable import Unreadable
from mtl.wire import control as w

_PUBLISHED_OCTETS = 64
"""Most octets of a resource's position and number of contents in a reply, in JSON."""

ApplicationKey = tuple[str, str]
"""(virtual host, application)."""


class Committing:
    """The last commit of every application, and the commits in progress."""

    def __init__(
        self,
        outbox: Outbox,
        resources: Resources,
        stages: Stages,
        opening: LogOpening,
        unreadable: Unreadable,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._unreadable = unreadable
        self._resources = resources
        self._stages = stages
        self._opening = opening
        self._quotas = quotas
        self._pool = Pool(quotas, Quota.APPLICATIONS)
        """The applications that are known or that commit for the first time."""
        self._applications: dict[ApplicationKey, ApplicationRecord] = {}
        self._keys: SortedKeys[ApplicationKey] = SortedKeys()
        self._commits: dict[ApplicationKey, Commit] = {}
        self._forgetting: set[ApplicationKey] = set()

    def remember(self, record: ApplicationRecord) -> None:
        """Remember an application's last commit."""
        key = (record.vhost, record.application)
        if key not in self._applications:
            self._keys.add(key)
            if key not in self._commits:
                self._pool.add(record.owner)
        self._applications[key] = record

    def page(
        self,
        vhost: str,
        application: str | None,
        after: Sequence[str] | None,
        visible: Visible,
        beginnings: Sequence[str],
    ) -> Page[ApplicationKey]:
        """A page of the applications that are `visible`, with the resources of their last commits: one, or all with one
        of the `beginnings`, sorted by name.
        """

        def wanted(keys: list[ApplicationKey]) -> list[bool]:
            return visible([(key[1], self._applications[key].published) for key in keys])

        if application is None:
            return self._keys.page((vhost,), after, wanted, beginnings=beginnings)
        return self._keys.page((vhost, application), after, wanted)

    def describe(self, keys: Iterable[ApplicationKey]) -> Iterator[w.ApplicationInfo]:
        """Applications for Stage.Describe."""
        return (_application_info(self._applications[key]) for key in keys)

    def last_of(self, vhost: str, application: str, query: str | None) -> ApplicationRecord | None:
        """The last commit of an application. A new application `<user>.<query>` continues from the application
        `<query>` if that was this query's (`_before_users`).
        """
        found = self._applications.get((vhost, application))
        key = _before_users(vhost, application, query)
        earlier = self._applications.get(key) if key is not None else None
        if found is not None or earlier is None or earlier.query != query:
            return found
        return msgspec.structs.replace(earlier, application=application)

    def concerns(self, resource: Resource) -> bool:
        """Whether a commit is publishing to this resource: retention waits."""
        return any(resource in c.targets for c in self._commits.values())

    # --- for Resource.Delete --------------------------------------------------------------------------------

    def part(self, resource: Resource) -> None:
        """Release a resource that is to be deleted from its commit. Raises `Refused` 503 while a commit publishes to
        it. A stuck commit releases it, so that a resource beyond repair can be deleted.
        """
        stuck = next((c for c in self._commits.values() if resource in c.targets and c.can_release), None)
        if stuck is not None:
            stuck.release_resource(resource)
        elif self.concerns(resource):
            raise Refused(
                503, w.OVERLOADED, f"a commit is publishing contents in {resource.name!r}; try again"
            )

    def prepare_deletion(self, resource: Resource) -> Deletion:
        """Prepare the deletion of a released resource: its part of the commit is deleted with it."""
        commit = next((c for c in self._commits.values() if c.released is resource), None)
        if commit is None:
            return Deletion((), lambda _: None)
        return Deletion(
            (),
            lambda gone: commit.resource_deleted(resource) if gone else commit.resource_kept(resource),
            (commit.without_released,),
        )

    # --- for a commit under way -----------------------------------------------------------------------------

    def last(self, commit: Commit) -> ApplicationRecord | None:
        """The commit of the same application before this one."""
        return self._applications.get((commit.vhost, commit.application))

    def finished(self, commit: Commit, no: Refused | None) -> None:
        """A commit has ended: its contents are visible, or (with the refusal) nothing was changed."""
        key = (commit.vhost, commit.application)
        self._commits.pop(key, None)
        if no is not None and key not in self._applications:
            self._pool.remove(commit.owner)
        if no is None:
            for stage in commit.stages:
                self._stages.drop(stage)
            for resource in commit.targets:
                self._resources.grew(resource)
            outdated = self._stages.outdated(commit.vhost, commit.application, commit.version)
            joined = [s for s in commit.joined if self._stages.find(commit.vhost, s.record.stage) is s]
            self._stages.discard([*joined, *outdated])
        outcome = no or _committed(self._applications[key], already=False)
        for answer in commit.answers:
            answer(outcome)

    # --- Stage.Commit ---------------------------------------------------------------------------------------

    def commit(self, vhost: str, principal: str, request: w.StageCommit, answer: Answer) -> None:
        """Stage.Commit of a principal: once per (application, version), all or nothing. Raises `Refused`, and then
        changes nothing.
        """
        key = (vhost, request.application)
        running = self._commits.get(key)
        if running is not None:
            self._join(running, request, answer)
            return
        self._check_not_forgotten(key)
        last = self.last_of(vhost, request.application, request.query)
        self._check_readable(key)
        earlier = _before_users(vhost, request.application, request.query)
        if key not in self._applications and earlier is not None:
            self._check_readable(earlier)
            self._check_not_forgotten(earlier)
            if earlier in self._commits:
                raise Refused(503, w.OVERLOADED, f"a commit of {earlier[1]!r} has not ended yet; try again")
        if last is not None and self._replayed(last, request, answer):
            return
        if key not in self._applications:
            self._pool.check(principal)
        if len(set(request.stages)) != len(request.stages):
            raise Refused(400, w.BAD_ARGUMENTS, "a stage is named twice")
        stages = [self._committable(vhost, request, name) for name in request.stages]
        emptied = [self._resources.need(vhost, n) for n in request.truncate]
        for resource in emptied:
            resource.writable()
        names = sorted({n for s in stages for n in s.contents} | set(request.truncate))
        targets = [self._resources.need(vhost, n) for n in names]
        for stage in stages:
            self._stages.commit(stage)
        owner = self._quotas.owner(principal) if last is None else last.owner
        if key not in self._applications:
            self._pool.add(owner)
        commit = Commit(self._outbox, self._opening, self, vhost, request, owner, stages, targets)
        commit.answers.append(answer)
        self._commits[key] = commit
        commit.hold()

    def _check_readable(self, key: ApplicationKey) -> None:
        """Raises `Refused` 503 when an application's last commit is unknown, or may be incomplete."""
        kinds = (PublishRecord,) if key in self._applications else (ApplicationRecord, PublishRecord)
        for kind in kinds:
            self._unreadable.check(kind, record_key(*key), f"the last commit of application {key[1]!r}")

    def _join(self, running: Commit, request: w.StageCommit, answer: Answer) -> None:
        """The same version again while it is being committed gets the same answer."""
        if request.query and running.query and request.query != running.query:
            raise _reused(request, running.version, running.query)
        if running.version != request.version:
            raise Refused(
                503,
                w.OVERLOADED,
                f"version {running.version} of {request.application!r} is being committed; try again",
            )
        repetition.check(request, running.digest)
        named = self._named(running.vhost, request)
        if running.delay is not None:
            raise running.delay
        running.answers.append(answer)
        running.joined += [stage for stage in named if stage not in running.joined]

    def _replayed(self, last: ApplicationRecord, request: w.StageCommit, answer: Answer) -> bool:
        """Whether this version was committed before: then the answer is repeated, and the new stages are discarded."""
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
        repetition.check(request, last.digest)
        again = self._named(last.vhost, request)
        repetition.warn(request, last, again)
        replayed = msgspec.structs.replace(last, replays=last.replays + 1)
        self.remember(replayed)
        self._stages.discard(again)
        self._outbox.save((replayed,), (), lambda _: answer(_committed(replayed, already=True)))
        return True

    def _found(self, vhost: str, names: Sequence[str]) -> list[Stage]:
        found = (self._stages.find(vhost, name) for name in names)
        return [s for s in found if s is not None]

    def _named(self, vhost: str, request: w.StageCommit) -> list[Stage]:
        """The stages that a repeated request names and that still exist. Raises `Refused` 400 for a stage of another
        application or version: a repetition discards its stages, and must not discard those of others.
        """
        found = self._found(vhost, request.stages)
        for stage in found:
            _check_owner(stage, request)
        return found

    def _committable(self, vhost: str, request: w.StageCommit, name: str) -> Stage:
        stage = self._stages.find(vhost, name)
        if stage is None:
            self._stages.check_readable(name)
            raise unknown_stage(name)
        _check_owner(stage, request)
        if stage.committing:
            raise Refused(409, w.CLOSED, f"stage {name} is being committed already")
        if stage.damage is not None:
            raise damaged(stage)
        if not stage.idle:
            raise Refused(
                409, w.UNSEALED, f"stage {name} has contents that are not durable yet; close its lease first"
            )
        for target, incarnation in stage.record.incarnations.items():
            resource = self._resources.need(vhost, target)
            resource.check(incarnation)
            resource.writable()
        return stage

    def forget(self, vhost: str, application: str, then: Callable[[Refused | None], None]) -> None:
        """Forget an application's last commit, which is needed after a checkpoint was rolled back on purpose."""
        key = (vhost, application)
        record = self._applications.get(key)
        if record is None and self._unreadable.has_key(ApplicationRecord, record_key(*key)):
            record = ApplicationRecord(vhost, application, 0, "", {}, 0)
        if record is None:
            self._unreadable.check(ApplicationRecord, record_key(*key), f"application {application!r}")
            raise Refused(404, w.UNKNOWN_APPLICATION, f"application {application!r} never committed anything")
        if key in self._commits:
            raise Refused(503, w.OVERLOADED, f"application {application!r} is committing; try again")
        self._check_not_forgotten(key)
        known = key in self._applications
        self._forgetting.add(key)

        def over(gone: bool) -> None:
            self._forgetting.discard(key)
            if gone:
                forgotten = self._applications.pop(key, None)
                if forgotten is not None:
                    self._keys.discard(key)
                    self._pool.remove(forgotten.owner)
                self._unreadable.resolved(ApplicationRecord, record_key(*key))

        deletion = Deletion((record,) if known else (), over, damaged=() if known else (record,))
        remove(self._outbox, [deletion], then)

    def _check_not_forgotten(self, key: ApplicationKey) -> None:
        """Raises `Refused` 503 while it is unknown whether the application is forgotten."""
        if key in self._forgetting:
            raise Refused(503, w.OVERLOADED, f"application {key[1]!r} is being forgotten; try again")

    def redo(self, record: PublishRecord, done: Callable[[], None]) -> None:
        """Continue a commit that was past its commit point when the broker stopped. Its contents are published
        before any request is served. If the disk fails its resources wait, and no part of the commit becomes
        visible.
        """
        request = w.StageCommit(
            application=record.application,
            version=record.version,
            stages=record.stages,
            truncate=[e.resource for e in record.entries if e.truncate],
            digest=self._applications[(record.vhost, record.application)].digest,
        )
        owner = self._applications[(record.vhost, record.application)].owner
        targets = [self._resources.need(record.vhost, e.resource) for e in record.entries]
        stages = self._found(record.vhost, record.stages)
        for stage in stages:
            self._stages.commit(stage)
        commit = Commit(self._outbox, self._opening, self, record.vhost, request, owner, stages, targets)
        commit.answers.append(lambda _: done())
        self._commits[(record.vhost, record.application)] = commit
        commit.redo(record)


def _check_owner(stage: Stage, request: w.StageCommit) -> None:
    """Raises `Refused` 400 for a stage that was opened for another application or version."""
    if (stage.record.application, stage.record.version) != (request.application, request.version):
        raise stage_of_another(stage, request.application, request.version)


def _before_users(vhost: str, application: str, query: str | None) -> ApplicationKey | None:
    """The name that a query's application has as long as the broker has no users. An operator who adds users restarts
    the query with one; a batch that was published just before the restart must not be published again.
    """
    return (vhost, query) if query and application.endswith(f".{query}") else None


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
    published, omitted = _published(record)
    return w.Committed(already=already, resources=published, omitted=omitted, digest=record.digest)


def _published(record: ApplicationRecord) -> tuple[dict[str, w.Published], int | None]:
    """The resources of a commit as far as they fit a reply, and the number of the others, if there are any."""
    fitting: dict[str, w.Published] = {}
    octets = 0
    for name, (first, contents) in record.published.items():
        octets += len(msgspec.json.encode(name)) + _PUBLISHED_OCTETS
        if octets > broker_limits.PAGE_OCTETS:
            return fitting, len(record.published) - len(fitting)
        fitting[name] = w.Published(first=first, contents=contents)
    return fitting, None


def _application_info(record: ApplicationRecord) -> w.ApplicationInfo:
    published, omitted = _published(record)
    return w.ApplicationInfo(
        application=record.application,
        version=record.version,
        digest=record.digest,
        query=record.query or None,
        resources=published,
        omitted=omitted,
        committed=record.committed_us,
        replays=record.replays,
    )

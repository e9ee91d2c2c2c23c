"""Stage.Commit up to its first step: the checks, and the commits in progress by application. PROTOCOL.md 5.5.

`commit` has the steps of one commit, `applications` the last commit of every application.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from mtl.broker.access.caller import Caller
from mtl.broker.outbox import Deletion, Outbox
from mtl.broker.stages import repetition
from mtl.broker.stages.applications import ApplicationKey, Applications, committed
from mtl.broker.stages.commit import Commit
from mtl.broker.stages.stages import Stage, Stages, damaged, unknown_stage
from mtl.broker.steps import run
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused, StorageError
from mtl.storage.records import ApplicationRecord, PublishRecord
from mtl.wire import control

log = logging.getLogger("mtl.broker")


class Commits:
    """The commits in progress, by application."""

    def __init__(
        self,
        outbox: Outbox,
        opening: LogOpening,
        resources: Resources,
        stages: Stages,
        applications: Applications,
    ) -> None:
        self._outbox = outbox
        self._opening = opening
        self._resources = resources
        self._stages = stages
        self._applications = applications
        self._commits: dict[ApplicationKey, Commit] = {}

    # --- Stage.Commit ---------------------------------------------------------------------------------------

    async def commit(self, caller: Caller, request: control.StageCommit) -> control.Committed:
        """Stage.Commit: once per (application, version), all or nothing. Raises `Refused`, and then
        changes nothing, except when its outcome is not known or not visible yet (503).
        """
        vhost, principal = caller.vhost, caller.principal
        key = (vhost, request.application)
        running = self._commits.get(key)
        if running is not None:
            self._join(running, request)
            return await running.answered
        self._applications.check(key, request.query)
        last = self._applications.last_of(vhost, request.application, request.query)
        if last is not None and request.version <= last.version:
            return await self._repeat(last, request)
        self._applications.admit(key, principal)
        if len(set(request.stages)) != len(request.stages):
            raise Refused(400, control.BAD_ARGUMENTS, "a stage is named twice")
        stages = [self._committable(vhost, request, name) for name in request.stages]
        for resource in self._resources.need_all(vhost, request.truncate):
            resource.writable()
        names = sorted({n for s in stages for n in s.contents} | set(request.truncate))
        targets = [self._resources.need(vhost, n) for n in names]
        owner = self._applications.begin_commit(key, principal, last)
        commit = self._begin(key, request, owner, stages, targets)
        run(self._carry_out(commit, commit.carry_out()))
        return await commit.answered

    def _committable(self, vhost: str, request: control.StageCommit, name: str) -> Stage:
        stage = self._stages.find(vhost, name)
        if stage is None:
            self._stages.check_readable(name)
            raise unknown_stage(name)
        repetition.check_stage(stage, request)
        if stage.committing:
            raise Refused(409, control.CLOSED, f"stage {name} is being committed already")
        if stage.damage is not None:
            raise damaged(stage)
        if not stage.idle:
            raise Refused(
                409,
                control.UNSEALED,
                f"stage {name} has contents that are not durable yet; close its lease first",
            )
        for target, incarnation in stage.record.incarnations.items():
            resource = self._resources.need(vhost, target)
            resource.check(incarnation)
            resource.writable()
        return stage

    def _begin(
        self,
        key: ApplicationKey,
        request: control.StageCommit,
        owner: str,
        stages: list[Stage],
        targets: list[Resource],
    ) -> Commit:
        for stage in stages:
            self._stages.commit(stage)
        commit = Commit(self._outbox, self._opening, self._applications, key, request, owner, stages, targets)
        self._commits[key] = commit
        return commit

    async def _carry_out(self, commit: Commit, steps: Coroutine[Any, Any, None]) -> None:
        try:
            await steps
        except StorageError as error:  # before the commit point: nothing has changed
            for stage in commit.stages:
                stage.committing = False
            self._end(commit)
            if not commit.answered.is_known:
                commit.answered.fail(error)
            return
        self._end(commit)
        for stage in commit.stages:
            self._stages.drop(stage)
        for resource in commit.targets:
            self._resources.grew(resource)
        vhost, application = commit.key
        outdated = self._stages.outdated(vhost, application, commit.version)
        joined = [s for s in commit.joined if self._stages.find(vhost, s.record.stage) is s]
        self._stages.discard([*joined, *outdated])
        if not commit.answered.is_known:
            commit.answered.set(committed(self._applications[commit.key], already=False))

    def _end(self, commit: Commit) -> None:
        commit.release()
        del self._commits[commit.key]
        self._applications.end_commit(commit.key, commit.owner)

    # --- repeated requests ----------------------------------------------------------------------------------

    def _join(self, running: Commit, request: control.StageCommit) -> None:
        """The same version again while it is being committed gets the same answer."""
        repetition.check_query(request, running.version, running.query)
        if running.version != request.version:
            raise Refused(
                503,
                control.OVERLOADED,
                f"version {running.version} of {request.application!r} is being committed; try again",
            )
        repetition.check(request, running.digest)
        named = self._named(running.key[0], request)
        if running.delay is not None:
            raise running.delay
        running.joined += [stage for stage in named if stage not in running.joined]

    async def _repeat(self, last: ApplicationRecord, request: control.StageCommit) -> control.Committed:
        """This version was committed before: the answer is repeated, and the new stages are discarded."""
        repetition.check_query(request, last.version, last.query)
        repetition.check_version(request, last.version)
        repetition.check(request, last.digest)
        again = self._named(last.vhost, request)
        repetition.warn(request, last, again)
        replayed = msgspec.structs.replace(last, replays=last.replays + 1)
        self._applications.remember(replayed)
        self._stages.discard(again)
        try:
            await self._outbox.save((replayed,))
        except StorageError as error:
            log.warning("application %r, the number of its repeated commits: %s", last.application, error)
        return committed(replayed, already=True)

    def _named(self, vhost: str, request: control.StageCommit) -> list[Stage]:
        """The stages that a repeated request names and that still exist. Raises `Refused` 400 for a stage of another
        application or version: a repetition discards its stages, and must not discard those of others.
        """
        stages = self._known_stages(vhost, request.stages)
        for stage in stages:
            repetition.check_stage(stage, request)
        return stages

    def _known_stages(self, vhost: str, names: Sequence[str]) -> list[Stage]:
        stages = (self._stages.find(vhost, name) for name in names)
        return [s for s in stages if s is not None]

    # --- after a crash --------------------------------------------------------------------------------------

    async def redo(self, record: PublishRecord) -> None:
        """Continue a commit that was past its commit point when the broker stopped. Its contents are published
        before any request is served. If the disk fails its resources wait, and no part of the commit becomes
        visible; then `Refused` is raised.
        """
        key = (record.vhost, record.application)
        last = self._applications[key]
        request = control.StageCommit(
            application=record.application,
            version=record.version,
            stages=record.stages,
            truncate=[e.resource for e in record.entries if e.truncate],
            digest=last.digest,
        )
        targets = [self._resources.need(record.vhost, e.resource) for e in record.entries]
        self._applications.begin_commit(key, "", last)
        commit = self._begin(
            key, request, last.owner, self._known_stages(record.vhost, record.stages), targets
        )
        run(self._carry_out(commit, commit.redo(record)))
        await commit.answered

    # --- retention and Resource.Delete ----------------------------------------------------------------------

    def concerns(self, resource: Resource) -> bool:
        """Whether a commit is publishing to this resource: retention waits."""
        return any(resource in c.targets for c in self._commits.values())

    def part(self, resource: Resource) -> None:
        """Release a resource that is to be deleted from its commit. Raises `Refused` 503 while a commit publishes to
        it. A stuck commit releases it, so that a resource beyond repair can be deleted.
        """
        stuck = next((c for c in self._commits.values() if resource in c.targets and c.can_release), None)
        if stuck is not None:
            stuck.release_resource(resource)
        elif self.concerns(resource):
            raise Refused(
                503, control.OVERLOADED, f"a commit is publishing contents in {resource.name!r}; try again"
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

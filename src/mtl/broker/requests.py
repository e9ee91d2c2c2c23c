"""Control requests: one row per command, one short method per row.

Every method answers exactly once, now or when the disk has done its part (MTL-04); a `Refused` it raises is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

from mtl.broker.authorization import Authorization
from mtl.broker.committing import Committing
from mtl.broker.cursor_requests import CursorRequests
from mtl.broker.cursors import Cursors, key_of
from mtl.broker.granting import Answer, Granting
from mtl.broker.granting_readers import ReaderGrants
from mtl.broker.granting_writers import WriterGrants
from mtl.broker.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.polls import Polls, described
from mtl.broker.queues import Queues
from mtl.broker.records import CursorRecord
from mtl.broker.resources import Resource, Resources
from mtl.broker.sessions import Session, Sessions
from mtl.broker.stages import Stages
from mtl.errors import Refused, StorageError
from mtl.log import LogReader
from mtl.profiles import Profile
from mtl.wire import control as w

Method = Callable[[Session, Any, Answer], None]


class Requests:
    """Finds the method for a request and sees to its answer."""

    def __init__(
        self,
        outbox: Outbox,
        sessions: Sessions,
        authorization: Authorization,
        leases: Leases,
        resources: Resources,
        cursors: Cursors,
        queues: Queues,
        stages: Stages,
        committing: Committing,
        polls: Polls,
        granting: Granting,
        readers: ReaderGrants,
        writers: WriterGrants,
    ) -> None:
        self._sessions = sessions
        self._authorization = authorization
        self._leases = leases
        self._resources = resources
        self._cursors = cursors
        self._queues = queues
        self._stages = stages
        self._committing = committing
        groups = CursorRequests(outbox, authorization, resources, cursors)
        self._methods: dict[type, Method] = {
            w.Open: lambda s, r, answer: answer(sessions.open(s, r)),
            w.Authorize: sessions.authorize,
            w.Profile: lambda s, r, answer: answer(sessions.select(s, r)),
            w.Reader: lambda s, r, answer: readers.reader(s, _profile(s), r, answer),
            w.Writer: lambda s, r, answer: writers.writer(s, _profile(s), r, answer),
            w.LeaseClose: granting.close,
            w.ResourceCreate: self._create,
            w.ResourceList: self._list,
            w.ResourceDescribe: polls.describe,
            w.ResourceDelete: self._delete,
            w.ResourceLocate: self._locate,
            w.CursorOpen: groups.open,
            w.CursorDescribe: groups.describe,
            w.CursorReset: groups.reset,
            w.CursorDelete: groups.delete,
            w.QueueDescribe: self._describe_queues,
            w.QueueDelete: self._delete_queue,
            w.StageCommit: lambda s, r, answer: committing.commit(s.vhost, r, answer),
            w.StageAbort: self._abort_stages,
            w.StageDescribe: self._describe_stages,
            w.StageForget: self._forget_application,
        }

    def handle(
        self, session: Session, request: w.Request, reply: Callable[[w.Reply | Refused], None]
    ) -> None:
        """Check the turn, do what is asked, follow the answer in the session's table."""
        try:
            kind = session.control.check(request)
        except Refused as e:
            reply(self._sessions.challenge(session) if e.status == 401 else e)
            return

        def answer(outcome: w.Reply | Refused) -> None:
            status = outcome.status if isinstance(outcome, Refused) else outcome.code
            session.control.replied(kind, status)
            reply(outcome)

        try:
            method = self._method(session, request)
            self._authorization.check(session, request)
            method(session, request, answer)
        except Refused as e:
            answer(e)
        except StorageError as e:  # looking something up in a log may read its disk
            answer(Refused(503, w.STORAGE, str(e)))

    def _method(self, session: Session, request: w.Request) -> Method:
        connection = isinstance(request, w.Open | w.Authorize | w.Profile | w.Reader | w.Writer)
        if not connection and type(request) not in _profile(session).classes:
            raise Refused(
                501, w.UNKNOWN_COMMAND, f'the profile "{_profile(session).name}" has no {request.command}'
            )
        return self._methods[type(request)]

    # --- Resource -------------------------------------------------------------------------------------------

    def _create(self, session: Session, request: w.ResourceCreate, answer: Answer) -> None:
        def created(outcome: Resource | Refused) -> None:
            answer(
                outcome if isinstance(outcome, Refused) else w.ResourceCreated(resource=outcome.describe())
            )

        self._resources.create(session.vhost, request, created)

    def _list(self, session: Session, request: w.ResourceList, answer: Answer) -> None:
        found = self._authorization.seen(session, self._resources.matching(session.vhost, request.pattern))
        answer(described(found))

    def _delete(self, session: Session, request: w.ResourceDelete, answer: Answer) -> None:
        """Its leases, cursors and stages go first, its log last; while that lasts nobody finds it."""
        resource = self._resources.need(session.vhost, request.resource)
        resource.check(request.incarnation)
        self._committing.part(resource)
        resource.deleting = True
        for lease in self._leases:
            if lease.terms.vhost == session.vhost and resource.name in lease.terms.resources:
                self._leases.end(lease)
        keys = [key_of(r) for r in self._cursors.all() if _of(r, session.vhost, resource.name)]

        def removed(no: Refused | None) -> None:
            resource.deleting = no is None
            self._committing.parted(resource, gone=no is None)
            answer(no or w.Ok())

        def stages_gone(no: Refused | None) -> None:
            if no is not None:
                removed(no)
                return
            self._resources.remove(resource, self._committing.without(resource), removed)

        def queues_gone(no: Refused | None) -> None:
            if no is not None:
                removed(no)
                return
            self._stages.discard(self._stages.targeting(resource), stages_gone)

        def cursors_gone(no: Refused | None) -> None:
            if no is not None:
                removed(no)
                return
            self._queues.delete(list(resource.queues.values()), queues_gone)

        self._cursors.delete(keys, cursors_gone)

    def _locate(self, session: Session, request: w.ResourceLocate, answer: Answer) -> None:
        resource = self._resources.need(session.vhost, request.resource)
        resource.check(request.incarnation)
        log = resource.readable()
        answer(
            _by_time(log, request.timestamp)
            if request.timestamp is not None
            else _by_range(resource, log, request)
        )

    # --- Queue ----------------------------------------------------------------------------------------------

    def _describe_queues(self, session: Session, request: w.QueueDescribe, answer: Answer) -> None:
        resources = self._resources.of_vhost(session.vhost)
        named = [r for r in resources if request.resource in (None, r.name)]
        named = list(compress(named, self._authorization.sees(session, [r.name for r in named])))
        queues = [q for r in named for q in r.queues.values() if request.group in (None, q.name)]
        queues.sort(key=lambda q: (q.resource.name, q.name))
        answer(w.Queues(queues=[q.describe() for q in queues]))

    def _delete_queue(self, session: Session, request: w.QueueDelete, answer: Answer) -> None:
        resource = self._resources.need(session.vhost, request.resource)
        resource.check(request.incarnation)
        queue = resource.queues.get(request.group)
        if queue is None:
            raise Refused(
                404, w.UNKNOWN_QUEUE, f"resource {request.resource!r} has no queue {request.group!r}"
            )
        if queue.consumers:
            raise Refused(
                409,
                w.IN_USE,
                f"queue {queue.name!r} of {resource.name!r} has {len(queue.consumers)} consumers",
            )
        self._queues.delete([queue], lambda no: answer(no or w.Ok()))

    # --- Stage ----------------------------------------------------------------------------------------------

    def _abort_stages(self, session: Session, request: w.StageAbort, answer: Answer) -> None:
        found = [self._stages.find(session.vhost, name) for name in request.stages]
        self._stages.discard([s for s in found if s is not None], lambda no: answer(no or w.Ok()))

    def _describe_stages(self, session: Session, request: w.StageDescribe, answer: Answer) -> None:
        may = self._authorization
        stages = self._stages.of(session.vhost, request.application)
        applications = self._committing.of(session.vhost, request.application)
        answer(
            w.Stages(
                stages=[s for s in stages if may.sees_stage(session, s.stage)],
                applications=[x for x in applications if may.sees_all(session, x.resources)],
            )
        )

    def _forget_application(self, session: Session, request: w.StageForget, answer: Answer) -> None:
        self._committing.forget(session.vhost, request.application, lambda no: answer(no or w.Ok()))


def _profile(session: Session) -> Profile:
    if session.profile is None:  # the session table lets nothing through that needs one
        raise Refused(400, w.NO_PROFILE, "send Connection.Profile first")
    return session.profile


def _of(record: CursorRecord, vhost: str, resource: str) -> bool:
    return record.vhost == vhost and record.resource == resource


def _by_time(log: LogReader, timestamp: int) -> w.Located:
    ref = log.at_time(timestamp)
    if ref is None:
        return w.Located(sequence=log.next, match=False)
    return w.Located(sequence=max(ref.base, log.earliest), timestamp=ref.time_us)


def _by_range(resource: Resource, log: LogReader, request: w.ResourceLocate) -> w.Located:
    start = resource.resolve(request.start or 0)
    if start == log.next:
        return w.Located(sequence=start, match=False)
    end, first = log.end_within(start, request.contents, request.bytes), log.find(start)
    return w.Located(
        sequence=end,
        timestamp=None if first is None else first.time_us,
        bytes=log.stored_between(start, end),
    )

"""Control requests: one row per command, one short method per row.

Every method answers exactly once, now or when the disk has done its part (MTL-04); a `Refused` it raises is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtl import limits
from mtl.broker.committing import Committing
from mtl.broker.cursors import Cursors
from mtl.broker.granting import Answer, Granting
from mtl.broker.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.records import CursorRecord
from mtl.broker.resources import Resource, Resources, unknown
from mtl.broker.sessions import Session, Sessions
from mtl.broker.stages import Stages
from mtl.errors import DataLoss, Refused
from mtl.log import LogReader
from mtl.profiles import Profile
from mtl.wire import control as w

Method = Callable[[Session, Any, Answer], None]


class _Waiter:
    """A Resource.Describe that waits for something new."""

    __slots__ = ("answer", "request", "vhost")

    def __init__(self, vhost: str, request: w.ResourceDescribe, answer: Answer) -> None:
        self.vhost = vhost
        self.request = request
        self.answer = answer


class Requests:
    """Finds the method for a request and sees to its answer."""

    def __init__(
        self,
        outbox: Outbox,
        sessions: Sessions,
        leases: Leases,
        resources: Resources,
        cursors: Cursors,
        stages: Stages,
        committing: Committing,
        granting: Granting,
    ) -> None:
        self._outbox = outbox
        self._sessions = sessions
        self._leases = leases
        self._resources = resources
        self._cursors = cursors
        self._stages = stages
        self._committing = committing
        self._granting = granting
        self._waiters: dict[int, _Waiter] = {}
        self._last_waiter = 0
        self._methods: dict[type, Method] = {
            w.Open: lambda s, r, answer: answer(sessions.open(s, r)),
            w.Authorize: lambda s, r, answer: answer(sessions.authorize(s, r)),
            w.Profile: lambda s, r, answer: answer(sessions.select(s, r)),
            w.Reader: lambda s, r, answer: granting.reader(s, _profile(s), r, answer),
            w.Writer: lambda s, r, answer: granting.writer(s, _profile(s), r, answer),
            w.LeaseClose: granting.close,
            w.ResourceCreate: self._create,
            w.ResourceList: self._list,
            w.ResourceDescribe: self._describe,
            w.ResourceDelete: self._delete,
            w.ResourceLocate: self._locate,
            w.CursorOpen: self._open_cursor,
            w.CursorDescribe: self._describe_cursors,
            w.CursorDelete: self._delete_cursor,
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
            reply(w.Unauthorized(mechanisms=[]) if e.status == 401 else e)
            return

        def answer(outcome: w.Reply | Refused) -> None:
            status = outcome.status if isinstance(outcome, Refused) else outcome.code
            session.control.replied(kind, status)
            reply(outcome)

        try:
            self._method(session, request)(session, request, answer)
        except Refused as e:
            answer(e)

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
        found = self._resources.matching(session.vhost, request.pattern)
        answer(w.Resources(resources=[r.describe() for r in found]))

    def _describe(self, session: Session, request: w.ResourceDescribe, answer: Answer) -> None:
        found = self._described(session.vhost, request)
        if request.after is None or not request.wait or _news(found, request.after):
            answer(w.Resources(resources=[r.describe() for r in found]))
            return
        if len(self._waiters) >= limits.MAX_WAITERS:
            raise Refused(503, w.OVERLOADED, f"{limits.MAX_WAITERS} requests wait already; ask without wait")
        self._last_waiter += 1
        number = self._last_waiter
        self._waiters[number] = _Waiter(session.vhost, request, answer)
        self._outbox.later(min(request.wait / 1000, limits.MAX_WAIT_S), lambda: self._answer_waiter(number))

    def _described(self, vhost: str, request: w.ResourceDescribe) -> list[Resource]:
        names = [request.resource] if request.resource is not None else request.resources
        if names is None:
            return self._resources.matching(vhost, request.pattern)
        missing = [n for n in names if self._resources.find(vhost, n) is None]
        if missing:
            raise unknown(*missing)
        return [self._resources.need(vhost, n) for n in names]

    def changed(self, vhost: str, resource: Resource | None = None) -> None:
        """A resource's visible end moved, or one came or went: answer whoever waited for that."""
        for number, waiter in list(self._waiters.items()):
            if waiter.vhost != vhost:
                continue
            after = waiter.request.after or {}
            if resource is not None and resource.name in after and resource.end <= after[resource.name]:
                continue
            self._answer_waiter(number, only_news=True)

    def _answer_waiter(self, number: int, *, only_news: bool = False) -> None:
        waiter = self._waiters.get(number)
        if waiter is None:
            return
        try:
            found = self._described(waiter.vhost, waiter.request)
        except Refused as e:
            del self._waiters[number]
            waiter.answer(e)
            return
        if only_news and not _news(found, waiter.request.after or {}):
            return
        del self._waiters[number]
        waiter.answer(w.Resources(resources=[r.describe() for r in found]))

    def _delete(self, session: Session, request: w.ResourceDelete, answer: Answer) -> None:
        resource = self._resources.need(session.vhost, request.resource)
        resource.check(request.incarnation)
        if self._committing.concerns(resource):
            raise Refused(
                503, w.OVERLOADED, f"a commit is putting contents into {resource.name!r}; try again"
            )
        for lease in self._leases:
            if lease.terms.vhost == session.vhost and resource.name in lease.terms.resources:
                self._leases.end(lease)
        keys = [
            (r.vhost, r.group, r.resource)
            for r in self._cursors.all()
            if _of(r, session.vhost, resource.name)
        ]

        def removed(no: Refused | None) -> None:
            answer(no or w.Ok())

        def cursors_gone(no: Refused | None) -> None:
            if no is not None:
                answer(no)
                return
            self._stages.discard(self._stages.targeting(resource))
            self._resources.remove(resource, removed)

        self._cursors.delete(keys, cursors_gone)

    def _locate(self, session: Session, request: w.ResourceLocate, answer: Answer) -> None:
        resource = self._resources.need(session.vhost, request.resource)
        resource.check(request.incarnation)
        log = resource.serving()
        answer(
            _by_time(log, request.timestamp)
            if request.timestamp is not None
            else _by_range(resource, log, request)
        )

    # --- Cursor ---------------------------------------------------------------------------------------------

    def _open_cursor(self, session: Session, request: w.CursorOpen, answer: Answer) -> None:
        resource = self._resources.need(session.vhost, request.resource)
        resource.check(request.incarnation)
        key = (session.vhost, request.group, request.resource)
        self._cursors.check(key, session.token)
        present = self._cursors.get(key)
        there = present is not None and present.incarnation == resource.record.incarnation
        at = {"earliest": resource.earliest, "latest": resource.end}.get(str(request.from_), request.from_)

        def opened(cursor: CursorRecord | Refused) -> None:
            if isinstance(cursor, Refused):
                answer(cursor)
                return
            answer(
                w.CursorOpened(position=cursor.position, created=not there, incarnation=cursor.incarnation)
            )

        self._cursors.open(key, resource.record.incarnation, int(at), opened)

    def _describe_cursors(self, session: Session, request: w.CursorDescribe, answer: Answer) -> None:
        def flushed(no: Refused | None) -> None:
            answer(
                no
                or w.Cursors(
                    cursors=[
                        self._cursor_info(r)
                        for r in sorted(self._cursors.all(), key=lambda r: (r.group, r.resource))
                        if r.vhost == session.vhost
                        and request.group in (None, r.group)
                        and request.resource in (None, r.resource)
                    ]
                )
            )

        self._cursors.flush(flushed)

    def _cursor_info(self, record: CursorRecord) -> w.CursorInfo:
        resource = self._resources.find(record.vhost, record.resource)
        position = self._cursors.durable(record)
        end = resource.end if resource is not None else position
        held = self._cursors.holding((record.vhost, record.group, record.resource))
        log = resource.log if resource is not None else None
        return w.CursorInfo(
            group=record.group,
            resource=record.resource,
            incarnation=record.incarnation,
            position=position,
            next=end,
            behind=max(0, end - position),
            bytes_behind=log.stored_between(max(position, log.earliest), end) if log is not None else 0,
            held=held is not None,
            holder=record.holder or None,
            epoch=record.epoch,
        )

    def _delete_cursor(self, session: Session, request: w.CursorDelete, answer: Answer) -> None:
        key = (session.vhost, request.group, request.resource)
        if self._cursors.get(key) is None:
            raise Refused(
                404, w.UNKNOWN_CURSOR, f"group {request.group!r} has no cursor on {request.resource!r}"
            )
        self._cursors.delete([key], lambda no: answer(no or w.Ok()))

    # --- Stage ----------------------------------------------------------------------------------------------

    def _abort_stages(self, session: Session, request: w.StageAbort, answer: Answer) -> None:
        found = [self._stages.find(session.vhost, name) for name in request.stages]
        stages = [s for s in found if s is not None]
        for stage in stages:
            lease = self._leases.find(stage.lease) if stage.lease else None
            if lease is not None:
                self._leases.end(lease)
        self._stages.discard(stages, lambda no: answer(no or w.Ok()))

    def _describe_stages(self, session: Session, request: w.StageDescribe, answer: Answer) -> None:
        stages = self._stages.of(session.vhost, request.application)
        applications = self._committing.of(session.vhost, request.application)
        answer(w.Stages(stages=stages, applications=applications))

    def _forget_application(self, session: Session, request: w.StageForget, answer: Answer) -> None:
        self._committing.forget(session.vhost, request.application, lambda no: answer(no or w.Ok()))


def _profile(session: Session) -> Profile:
    if session.profile is None:  # the session table lets nothing through that needs one
        raise Refused(400, w.NO_PROFILE, "send Connection.Profile first")
    return session.profile


def _news(found: list[Resource], after: dict[str, int]) -> bool:
    return any(r.end > after.get(r.name, -1) for r in found)


def _of(record: CursorRecord, vhost: str, resource: str) -> bool:
    return record.vhost == vhost and record.resource == resource


def _by_time(log: LogReader, timestamp: int) -> w.Located:
    ref = log.at_time(timestamp)
    if ref is None:
        return w.Located(sequence=log.next, match=False)
    return w.Located(sequence=max(ref.base, log.earliest), timestamp=ref.time_us)


def _by_range(resource: Resource, log: LogReader, request: w.ResourceLocate) -> w.Located:
    start = request.start or 0
    if start < log.earliest:
        raise DataLoss(resource.name, start, log.earliest)
    if start > log.next:
        raise DataLoss(resource.name, log.next, start)
    if start == log.next:
        return w.Located(sequence=start, match=False)
    return w.Located(sequence=log.end_within(start, request.contents, request.bytes))

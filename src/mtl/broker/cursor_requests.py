"""The requests of class Cursor: open, describe, reset and delete a group's place in a resource. PROTOCOL.md 5.3."""

from __future__ import annotations

from itertools import compress

from mtl.broker.authorization import Authorization
from mtl.broker.cursors import CursorKey, Cursors, key_of
from mtl.broker.granting import Answer
from mtl.broker.outbox import Outbox
from mtl.broker.records import CursorRecord
from mtl.broker.resources import Resource, Resources
from mtl.broker.sessions import Session
from mtl.errors import Refused, StorageError
from mtl.wire import control as w


class CursorRequests:
    """Every method answers exactly once; a `Refused` it raises is the answer."""

    def __init__(
        self, outbox: Outbox, authorization: Authorization, resources: Resources, cursors: Cursors
    ) -> None:
        self._outbox = outbox
        self._authorization = authorization
        self._resources = resources
        self._cursors = cursors

    def open(self, session: Session, request: w.CursorOpen, answer: Answer) -> None:
        """Make a cursor, or find it."""
        resource = self._resource(session, request)
        key = (session.vhost, request.group, request.resource)
        self._cursors.check(key, session.token)
        present = self._cursors.get(key)
        there = present is not None and present.incarnation == resource.record.incarnation
        at = present.position if there and present is not None else resource.resolve(request.from_)

        def opened(cursor: CursorRecord | Refused) -> None:
            if isinstance(cursor, Refused):
                answer(cursor)
                return
            answer(
                w.CursorOpened(position=cursor.position, created=not there, incarnation=cursor.incarnation)
            )

        self._cursors.open(key, resource.record.incarnation, at, opened)

    def describe(self, session: Session, request: w.CursorDescribe, answer: Answer) -> None:
        """Where groups stand, everything confirmed so far being on disk."""

        def flushed(no: Refused | None) -> None:
            if no is not None:
                answer(no)
                return
            asked = [
                r
                for r in self._cursors.all()
                if r.vhost == session.vhost
                and request.group in (None, r.group)
                and request.resource in (None, r.resource)
            ]
            seen = self._authorization.sees(session, [r.resource for r in asked])
            asked = list(compress(asked, seen))
            asked.sort(key=lambda r: (r.group, r.resource))
            answer(w.Cursors(cursors=[self._info(r) for r in asked]))

        self._cursors.flush(flushed)

    def reset(self, session: Session, request: w.CursorReset, answer: Answer) -> None:
        """Move a cursor anywhere, back too; only `force` takes it from whoever holds it."""
        resource = self._resource(session, request)
        key = (session.vhost, request.group, request.resource)
        before = self._need(key)
        held = self._cursors.holding(key)
        if held is not None and not request.force:
            raise Refused(
                409,
                w.IN_USE,
                f"the cursor of group {request.group!r} on {request.resource!r} is held by {held.holder!r}; stop it, "
                "or reset with force, which ends it",
            )

        def saved(cursor: CursorRecord | Refused) -> None:
            answer(
                cursor
                if isinstance(cursor, Refused)
                else w.CursorWasReset(
                    position=cursor.position, before=before.position, incarnation=cursor.incarnation
                )
            )

        self._cursors.reset(
            key, resource.record.incarnation, _target(resource, request), session.principal, saved
        )

    def delete(self, session: Session, request: w.CursorDelete, answer: Answer) -> None:
        """Forget a cursor; the leases that hold it end."""
        key = (session.vhost, request.group, request.resource)
        record = self._need(key)
        if request.incarnation not in (None, record.incarnation):
            raise Refused(409, w.INCARNATION, f"the cursor is one of incarnation {record.incarnation}")
        self._cursors.delete([key], lambda no: answer(no or w.Ok()))

    def _resource(self, session: Session, request: w.CursorOpen | w.CursorReset) -> Resource:
        resource = self._resources.need(session.vhost, request.resource)
        resource.check(request.incarnation)
        resource.readable()
        return resource

    def _need(self, key: CursorKey) -> CursorRecord:
        record = self._cursors.get(key)
        if record is None:
            raise Refused(404, w.UNKNOWN_CURSOR, f"group {key[1]!r} has no cursor on {key[2]!r}")
        return record

    def _info(self, record: CursorRecord) -> w.CursorInfo:
        resource = self._resources.find(record.vhost, record.resource)
        position = self._cursors.durable(record)
        end = resource.end if resource is not None else position
        held = self._cursors.holding(key_of(record))
        octets, since = _unread(resource, position, end)
        return w.CursorInfo(
            group=record.group,
            resource=record.resource,
            incarnation=record.incarnation,
            position=position,
            next=end,
            behind=max(0, end - position),
            bytes_behind=octets,
            seconds_behind=0.0 if since is None else max(0, self._outbox.now.wall_us - since) / 1e6,
            held=held is not None,
            holder=record.holder or None,
            epoch=record.epoch,
        )


def _target(resource: Resource, request: w.CursorReset) -> int:
    if request.to is not None:
        return resource.resolve(request.to)
    ref = resource.readable().at_time(request.timestamp or 0)  # one of the two is given
    return resource.end if ref is None else max(ref.base, resource.earliest)


def _unread(resource: Resource | None, start: int, end: int) -> tuple[int, int | None]:
    """Stored octets of [start, end), as far as they are kept, and when the oldest of them was appended (µs)."""
    if resource is None or resource.log is None:
        return 0, None
    first = max(start, resource.earliest)
    if first >= end:
        return 0, None
    try:
        oldest = resource.log.find(first)
        return resource.log.stored_between(first, end), None if oldest is None else oldest.time_us
    except StorageError:
        return 0, None  # whoever reads it is told; a description goes without

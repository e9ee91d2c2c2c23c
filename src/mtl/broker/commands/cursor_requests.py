"""The requests of class Cursor: open, describe, reset and delete the cursor of a group. PROTOCOL.md 5.3."""

from __future__ import annotations

from itertools import compress

from mtl.broker.access.caller import Caller
from mtl.broker.ages import Ages
from mtl.broker.commands.authorization import Authorization
from mtl.broker.commands.granting import Answer
from mtl.broker.reading.cursors import CursorKey, Cursors, is_of, key_of
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused, StorageError
from mtl.storage.api import LogView
from mtl.storage.records import CursorRecord
from mtl.wire import control as w


class CursorRequests:
    """Every method answers exactly once; a `Refused` that it raises is the answer."""

    def __init__(
        self, ages: Ages, authorization: Authorization, resources: Resources, cursors: Cursors
    ) -> None:
        self._ages = ages
        self._authorization = authorization
        self._resources = resources
        self._cursors = cursors

    def open(self, caller: Caller, request: w.CursorOpen, answer: Answer) -> None:
        """Create a cursor, or find it."""
        resource = self._resource(caller, request)
        key = (caller.vhost, request.group, request.resource)
        self._cursors.check(key, caller.session)
        present = self._cursors.get(key)
        there = present is not None and is_of(present, resource)
        at = present.position if there and present is not None else self._begin(resource, request, present)

        def opened(cursor: CursorRecord | Refused) -> None:
            if isinstance(cursor, Refused):
                answer(cursor)
                return
            answer(
                w.CursorOpened(
                    position=cursor.position,
                    log_epoch=cursor.log_epoch,
                    created=not there,
                    incarnation=cursor.incarnation,
                )
            )

        self._cursors.open(key, resource, at, opened)

    @staticmethod
    def _begin(resource: Resource, request: w.CursorOpen, lost: CursorRecord | None) -> int:
        """The position of a new cursor. One that does not belong to the log any more moves only to a given sequence."""
        same = lost is not None and lost.incarnation == resource.record.incarnation
        if lost is not None and same and not isinstance(request.from_, int):
            resource.check_place(lost.position, lost.log_epoch)
        return resource.resolve(request.from_, request.log_epoch)

    def describe(self, caller: Caller, request: w.CursorDescribe, answer: Answer) -> None:
        """The positions of groups, after writing all confirmed ones to disk."""

        def flushed(no: Refused | None) -> None:
            if no is not None:
                answer(no)
                return
            asked = [
                r
                for r in self._cursors.all()
                if r.vhost == caller.vhost
                and request.group in (None, r.group)
                and request.resource in (None, r.resource)
            ]
            seen = self._authorization.sees(caller, [r.resource for r in asked])
            asked = list(compress(asked, seen))
            if not asked and request.group is not None and request.resource is not None:
                try:
                    self._cursors.check_readable((caller.vhost, request.group, request.resource))
                except Refused as unreadable:
                    answer(unreadable)
                    return
            asked.sort(key=lambda r: (r.group, r.resource))
            answer(w.Cursors(cursors=[self._info(r) for r in asked]))

        self._cursors.flush(flushed)

    def reset(self, caller: Caller, request: w.CursorReset, answer: Answer) -> None:
        """Move a cursor forward or back; from a live holder only with `force`."""
        resource = self._resource(caller, request)
        key = (caller.vhost, request.group, request.resource)
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
                    position=cursor.position,
                    log_epoch=cursor.log_epoch,
                    before=before.position,
                    incarnation=cursor.incarnation,
                )
            )

        self._cursors.reset(key, resource, _target(resource, request), caller.principal, saved)

    def delete(self, caller: Caller, request: w.CursorDelete, answer: Answer) -> None:
        """Delete a cursor; the leases that hold it end."""
        key = (caller.vhost, request.group, request.resource)
        if not self._cursors.is_damaged(key):
            record = self._need(key)
            if request.incarnation not in (None, record.incarnation):
                raise Refused(409, w.INCARNATION, f"the cursor is one of incarnation {record.incarnation}")
        self._cursors.delete([key], lambda no: answer(no or w.Ok()))

    def _resource(self, caller: Caller, request: w.CursorOpen | w.CursorReset) -> Resource:
        resource = self._resources.need(caller.vhost, request.resource)
        resource.check(request.incarnation)
        resource.readable()
        return resource

    def _need(self, key: CursorKey) -> CursorRecord:
        record = self._cursors.get(key)
        if record is None:
            self._cursors.check_readable(key)
            raise Refused(404, w.UNKNOWN_CURSOR, f"group {key[1]!r} has no cursor on {key[2]!r}")
        return record

    def _info(self, record: CursorRecord) -> w.CursorInfo:
        resource = self._resources.find(record.vhost, record.resource)
        position = self._cursors.durable(record)
        log = resource.log if resource is not None else None
        end = position if resource is None else log.next if log is not None else None
        held = self._cursors.holding(key_of(record))
        same = resource is not None and resource.record.incarnation == record.incarnation
        parting = resource.parting(position, record.log_epoch) if resource is not None and same else None
        start = position if parting is None else parting
        octets, since = (0, None) if log is None else _unread(log, start)
        return w.CursorInfo(
            group=record.group,
            resource=record.resource,
            incarnation=record.incarnation,
            position=position,
            next=end,
            behind=None if end is None else max(0, end - start),
            bytes_behind=octets if end is not None else None,
            seconds_behind=None if end is None else self._age_s(since),
            held=held is not None,
            holder=record.holder or None,
            epoch=record.epoch,
            log_epoch=record.log_epoch,
            lost=None if parting is None else w.Lost(first=parting, end=position),
        )

    def _age_s(self, since: int | None) -> float:
        return 0.0 if since is None else self._ages.of(since)


def _target(resource: Resource, request: w.CursorReset) -> int:
    if request.to is not None:
        return resource.resolve(request.to, request.log_epoch)
    ref = resource.readable().at_time(request.timestamp or 0)  # one of the two is given
    return resource.end if ref is None else max(ref.base, resource.earliest)


def _unread(log: LogView, start: int) -> tuple[int, int | None]:
    """Stored octets from `start` on, as far as they are kept, and the append time of the oldest of them (µs)."""
    first = max(start, log.earliest)
    if first >= log.next:
        return 0, None
    try:
        oldest = log.find(first)
        return log.stored_between(first, log.next), None if oldest is None else oldest.time_us
    except StorageError:
        return 0, None  # reported to readers; left out of a description

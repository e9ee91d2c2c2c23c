"""The requests of class Cursor: open, describe, reset and delete the cursor of a group. PROTOCOL.md 5.3."""

from __future__ import annotations

from mtl.broker.access.caller import Caller
from mtl.broker.commands.listing import Listing, continued, fitting
from mtl.broker.reading.cursors import CursorKey, Cursors, is_of, key_of
from mtl.broker.reading.reads import Reads
from mtl.broker.writing.clock import CorrectedClock
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources, unknown
from mtl.errors import Refused
from mtl.storage.api import Range, RangeFrom
from mtl.storage.records import CursorRecord
from mtl.wire import control


class CursorRequests:
    """A method per request."""

    def __init__(
        self,
        clock: CorrectedClock,
        listing: Listing,
        resources: Resources,
        cursors: Cursors,
        reads: Reads,
    ) -> None:
        self._clock = clock
        self._listing = listing
        self._resources = resources
        self._cursors = cursors
        self._reads = reads

    async def open(self, caller: Caller, request: control.CursorOpen) -> control.CursorOpened:
        """Create a cursor, or find it."""
        resource = self._resource(caller, request)
        key = (caller.vhost, request.group, request.resource)
        self._cursors.check(key, caller.session)
        present = self._cursors.get(key)
        exists = present is not None and is_of(present, resource)
        at = (
            present.position
            if exists and present is not None
            else self._initial_position(resource, request, present)
        )
        cursor = await self._cursors.open(key, resource, at, caller.principal)
        return control.CursorOpened(
            position=cursor.position,
            log_epoch=cursor.log_epoch,
            created=not exists,
            incarnation=cursor.incarnation,
        )

    @staticmethod
    def _initial_position(resource: Resource, request: control.CursorOpen, lost: CursorRecord | None) -> int:
        """The position of a new cursor. One that does not belong to the log any more moves only to a given sequence."""
        same = lost is not None and lost.incarnation == resource.record.incarnation
        if lost is not None and same and not isinstance(request.from_, int):
            resource.check_place(lost.position, lost.log_epoch)
        return resource.resolve(request.from_, request.log_epoch)

    async def describe(self, caller: Caller, request: control.CursorDescribe) -> control.CursorList:
        """The positions of groups, after writing all confirmed ones to disk."""
        await self._cursors.flush()
        page = self._listing.cursors_page(caller, request)
        records = [r for key in page.keys if (r := self._cursors.get(key)) is not None]
        if not records and request.group is not None and request.resource is not None:
            self._cursors.check_readable((caller.vhost, request.group, request.resource))
        behind = await self._behind(caller, records)
        infos = [self._info(record, unread) for record, unread in zip(records, behind, strict=True)]
        entries, end = fitting(infos, [key_of(r) for r in records], page.last)
        return control.CursorList(cursors=entries, continue_=continued(end))

    async def _behind(self, caller: Caller, records: list[CursorRecord]) -> list[Range | None]:
        """The octets and the time of each cursor's unconfirmed contents, None without any or if they cannot be read:
        that error is reported to readers, and left out of the description.
        """
        asked: dict[int, tuple[Resource, RangeFrom]] = {}
        for at, record in enumerate(records):
            resource = self._resources.find(record.vhost, record.resource)
            log = resource.log if resource is not None else None
            if resource is not None and log is not None:
                start = max(self._start(record, resource), log.earliest)
                if start < log.next:
                    asked[at] = resource, RangeFrom(start)
        answers = dict(
            zip(asked, await self._reads.ask_all(list(asked.values()), caller.principal), strict=True)
        )
        return [answers.get(at) for at in range(len(records))]

    async def reset(self, caller: Caller, request: control.CursorReset) -> control.CursorWasReset:
        """Move a cursor forward or back; from a live holder only with `force`."""
        resource = self._resource(caller, request)
        if request.to is not None:
            position = resource.resolve(request.to, request.log_epoch)
        else:  # without `to` the request has a `timestamp`
            ref = await self._reads.at_time(resource, request.timestamp or 0, caller.principal)
            position = resource.end if ref is None else max(ref.base, resource.earliest)
        if self._resource(caller, request) is not resource:
            raise unknown(request.resource)  # deleted while its contents were read
        key = (caller.vhost, request.group, request.resource)
        before = self._need(key)
        held = self._cursors.holding(key)
        if held is not None and not request.force:
            raise Refused(
                409,
                control.IN_USE,
                f"the cursor of group {request.group!r} on {request.resource!r} is held by {held.holder!r}; stop it, "
                "or reset with force, which ends it",
            )
        cursor = await self._cursors.reset(key, resource, position, caller.principal)
        return control.CursorWasReset(
            position=cursor.position,
            log_epoch=cursor.log_epoch,
            before=before.position,
            incarnation=cursor.incarnation,
        )

    async def delete(self, caller: Caller, request: control.CursorDelete) -> control.Ok:
        """Delete a cursor; the leases that hold it end."""
        key = (caller.vhost, request.group, request.resource)
        if not self._cursors.is_damaged(key):
            record = self._need(key)
            if request.incarnation not in (None, record.incarnation):
                raise Refused(
                    409, control.INCARNATION, f"the cursor is one of incarnation {record.incarnation}"
                )
        await self._cursors.delete([key])
        return control.Ok()

    def _resource(self, caller: Caller, request: control.CursorOpen | control.CursorReset) -> Resource:
        resource = self._resources.need(caller.vhost, request.resource)
        resource.check(request.incarnation)
        resource.readable()
        return resource

    def _need(self, key: CursorKey) -> CursorRecord:
        record = self._cursors.get(key)
        if record is None:
            self._cursors.check_readable(key)
            raise Refused(404, control.UNKNOWN_CURSOR, f"group {key[1]!r} has no cursor on {key[2]!r}")
        return record

    def _diverges_at(self, record: CursorRecord, resource: Resource) -> int | None:
        """The sequence at which the cursor's log and the present one begin to differ. None if they do not differ,
        or if it was another resource.
        """
        same = resource.record.incarnation == record.incarnation
        return resource.diverges_at(self._cursors.durable(record), record.log_epoch) if same else None

    def _start(self, record: CursorRecord, resource: Resource) -> int:
        """The first content that the group has not confirmed."""
        diverges_at = self._diverges_at(record, resource)
        return self._cursors.durable(record) if diverges_at is None else diverges_at

    def _info(self, record: CursorRecord, behind: Range | None) -> control.CursorInfo:
        resource = self._resources.find(record.vhost, record.resource)
        position = self._cursors.durable(record)
        log = resource.log if resource is not None else None
        end = position if resource is None else log.next if log is not None else None
        held = self._cursors.holding(key_of(record))
        diverges_at = None if resource is None else self._diverges_at(record, resource)
        start = position if diverges_at is None else diverges_at
        return control.CursorInfo(
            group=record.group,
            resource=record.resource,
            incarnation=record.incarnation,
            position=position,
            next=end,
            behind=None if end is None else max(0, end - start),
            bytes_behind=None if end is None else behind.octets if behind is not None else 0,
            seconds_behind=None
            if end is None
            else self._age_s(behind.time_us if behind is not None else None),
            held=held is not None,
            holder=record.holder or None,
            epoch=record.epoch,
            log_epoch=record.log_epoch,
            lost=None if diverges_at is None else control.Lost(first=diverges_at, end=position),
        )

    def _age_s(self, since: int | None) -> float:
        return 0.0 if since is None else self._clock.age(since)

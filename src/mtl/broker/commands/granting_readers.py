"""Connection.Reader: a reader's start, its window and its group.

PROTOCOL.md 5.2, 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mtl.broker import limits as broker_limits
from mtl.broker.access.caller import Caller
from mtl.broker.commands.granting import Granting, check_fixed, granted_window
from mtl.broker.commands.granting_holders import HolderGrants
from mtl.broker.commands.granting_queues import QueueGrants
from mtl.broker.leases.lease import LeaseTerms
from mtl.broker.reading.cursors import Cursor, Cursors, Holding
from mtl.broker.reading.fanout import Fanout, FanoutLease
from mtl.broker.reading.readers import ReaderLease, Readers
from mtl.broker.reading.reads import Reads
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources, unknown
from mtl.errors import Refused
from mtl.profiles import Profile
from mtl.storage.records import CursorRecord
from mtl.wire import control
from mtl.wire.history import History


@dataclass(frozen=True, slots=True)
class LocalReads:
    """This machine's mark, and the place of the broker's files for readers on this machine (PROTOCOL.md 5.6)."""

    machine: str
    files: control.LocalFiles


class ReaderGrants:
    """Grants reading leases."""

    def __init__(
        self,
        granting: Granting,
        resources: Resources,
        readers: Readers,
        fanout: Fanout,
        cursors: Cursors,
        queues: QueueGrants,
        holders: HolderGrants,
        reads: Reads,
        local: LocalReads | None,
    ) -> None:
        self._granting = granting
        self._resources = resources
        self._readers = readers
        self._fanout = fanout
        self._cursors = cursors
        self._queues = queues
        self._holders = holders
        self._reads = reads
        self._local = local

    async def reader(self, caller: Caller, request: control.ConnectionReader) -> control.DataLease:
        """Connection.Reader (MTL-42 to 49)."""
        profile = caller.chosen_profile
        self._granting.admit(caller, profile, request)
        if request.positions is not None:
            _check_groups(profile)
            return await self._holders.hold(caller, profile, request)
        if not profile.any_reader and len(request.resources) != 1:
            raise Refused(
                400,
                control.BAD_ARGUMENTS,
                f"a reader of the {profile.name} profile names exactly one resource, because its sequences are "
                "that resource's positions",
            )
        if not profile.durable:
            return self._fanout_reader(caller, profile, request)
        await self._resources.ensure(caller, request.resources)
        if profile.competing:
            return await self._queues.consumer(caller, profile, request)
        return await self._log_reader(caller, profile, request)

    def _fanout_reader(
        self, caller: Caller, profile: Profile, request: control.ConnectionReader
    ) -> control.DataLease:
        check_fixed(profile, request.resources)
        lease = FanoutLease(self._granting.terms(caller, profile, request))
        self._granting.grant(lease, partial(self._fanout.remove, lease))
        self._fanout.add(lease)
        return self._granting.data_lease(lease.terms, packed=False)

    async def _log_reader(
        self, caller: Caller, profile: Profile, request: control.ConnectionReader
    ) -> control.DataLease:
        resource = self._resources.need(caller.vhost, request.resources[0])
        resource.check(request.incarnation)
        resource.readable()
        if isinstance(request.from_, int):  # checked before the group: the position may be of another copy
            resource.check_place(request.from_, request.log_epoch)
        terms = self._granting.terms(caller, profile, request)
        held = await self._hold(caller, resource, request)
        record = self._cursors.get((terms.vhost, request.group, resource.name)) if request.group else None
        start = _start(resource, request, record)
        await self._reads.check(resource, start, terms.principal)
        return self._grant(terms, resource, request, held, start)

    async def _hold(
        self, caller: Caller, resource: Resource, request: control.ConnectionReader
    ) -> Holding | None:
        """The holding of a group's reader; None for members and for readers without a group.

        A holder that reconnects names its earlier epoch, and so learns of a newer holder even if its session was
        forgotten.
        """
        if request.group is None:
            start = _start(resource, request, None)
            unstored = CursorRecord(caller.vhost, "", resource.name, resource.record.incarnation, start)
            return Holding(Cursor(unstored)) if request.holder is not None else None
        key = (caller.vhost, request.group, resource.name)
        self._cursors.check(key, caller.session, request.holder or caller.session, request.epoch)
        if request.epoch is not None and request.holder is None:  # a member
            return None
        start = _start(resource, request, self._cursors.get(key))
        await self._cursors.open(key, resource, start, caller.principal)
        return await self._cursors.hold(key, caller.session, request.holder or caller.session)

    def _grant(
        self,
        terms: LeaseTerms,
        resource: Resource,
        request: control.ConnectionReader,
        held: Holding | None,
        start: int,
    ) -> control.DataLease:
        if self._resources.need(terms.vhost, resource.name) is not resource:
            raise unknown(resource.name)  # deleted while the cursor was being made, or contents were read
        granted = granted_window(request.window, broker_limits.MAX_WINDOW_CONTENTS)
        local = self._local_files(request)
        lease = ReaderLease(
            terms, resource, start, request.until, granted, request.packed, held, local=local is not None
        )
        self._granting.grant(lease, partial(self._ended, lease, held), partial(self._readers.unbound, lease))
        self._readers.joined(lease)
        if held is not None:
            held.add_lease(lease)
        return self._granting.data_lease(
            terms,
            request.packed,
            from_=start,
            until=request.until,
            window=control.Window(contents=granted[0], bytes=granted[1]) if lease.full else None,
            incarnation=resource.record.incarnation,
            earliest=resource.earliest,
            next=resource.end,
            epoch=held.epoch if held is not None and held.key is not None else request.epoch,
            position=held.position if held is not None else None,
            history=_since(resource.history, start),
            local=local,
        )

    def _ended(self, lease: ReaderLease, held: Holding | None) -> None:
        self._readers.ended(lease)
        if held is not None:
            held.remove_lease(lease)

    def _local_files(self, request: control.ConnectionReader) -> control.LocalFiles | None:
        """The place of the broker's files. A packed reader on this machine tries whether it can read them."""
        if self._local is None or not request.packed or request.local != self._local.machine:
            return None
        return self._local.files


def _check_groups(profile: Profile) -> None:
    """Raises `Refused` 501 for a profile without groups."""
    if not profile.durable or profile.competing:
        raise Refused(
            501, control.UNSUPPORTED, f'the profile "{profile.name}" has no groups, and so no holders'
        )


def _since(history: History, start: int) -> control.Epochs:
    """The epochs from that of the content before `start` on."""
    before = [first for first, _ in history.entries if first < start][-1:]
    return tuple(entry for entry in history.entries if entry[0] >= (before or [start])[0])


def _start(resource: Resource, request: control.ConnectionReader, record: CursorRecord | None) -> int:
    """Resolve `from`, now and not at Summon. Raises `DataLoss` for contents that are removed or never existed."""
    start = request.from_ if request.from_ is not None else ("group" if request.group else "latest")
    if start == "group":
        if request.group is None:
            raise Refused(400, control.BAD_ARGUMENTS, 'from "group" needs a group')
        if record is None or record.incarnation != resource.record.incarnation:
            return resource.earliest
        return resource.resolve(record.position, record.log_epoch)
    return resource.resolve(start, request.log_epoch)

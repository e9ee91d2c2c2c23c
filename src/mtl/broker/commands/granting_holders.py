"""Connection.Reader with `positions`: one lease that holds several resources. PROTOCOL.md 5.3."""

from __future__ import annotations

from mtl.broker.access.caller import Caller
from mtl.broker.commands.granting import Granting
from mtl.broker.leases.lease import LeaseTerms
from mtl.broker.reading.cursors import Cursor, Cursors, Holding
from mtl.broker.reading.holders import HolderLease
from mtl.broker.reading.readers import ReaderLease, Readers
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.errors import Fenced, Refused
from mtl.profiles import Profile
from mtl.storage.records import CursorRecord
from mtl.wire import control

_NO_WINDOW = (1, 1)
"""The window of a part: nothing is sent on it."""


class HolderGrants:
    """Grants leases of holders of several resources. A resource that cannot be held does not keep the others from being
    held: the 202 says why.
    """

    def __init__(self, granting: Granting, resources: Resources, readers: Readers, cursors: Cursors) -> None:
        self._granting = granting
        self._resources = resources
        self._readers = readers
        self._cursors = cursors

    async def hold(
        self, caller: Caller, profile: Profile, request: control.ConnectionReader
    ) -> control.DataLease:
        """Connection.Reader with `positions`. Raises `Fenced` if one of the cursors was taken over."""
        terms = self._granting.terms(caller, profile, request)
        unheld: dict[str, Refused] = {}
        starts: dict[str, tuple[Resource, int]] = {}
        for name, position in (request.positions or {}).items():
            try:
                starts[name] = self._start(caller, name, position)
            except Refused as refused:
                unheld[name] = refused
        if request.group is None:
            holdings = {name: _nameless(caller, *start) for name, start in starts.items()}
            return self._grant(terms, starts, holdings, unheld)
        group = request.group
        holder = request.holder or caller.session
        for name in starts:
            self._cursors.check((caller.vhost, group, name), caller.session, holder)
        wanted = {(caller.vhost, group, name): start for name, start in starts.items()}
        held, refused_ = await self._cursors.hold_all(wanted, caller.session, caller.principal, holder)
        for (_, _, name), error in refused_.items():
            if isinstance(error, Fenced):
                raise error
            unheld[name] = error
        holdings = {name: holding for (_, _, name), holding in held.items()}
        return self._grant(terms, starts, holdings, unheld)

    def _start(self, caller: Caller, name: str, position: control.HeldFrom) -> tuple[Resource, int]:
        resource = self._resources.need(caller.vhost, name)
        resource.check(position.incarnation)
        resource.readable()
        return resource, resource.resolve(position.from_, position.log_epoch)

    def _grant(
        self,
        terms: LeaseTerms,
        starts: dict[str, tuple[Resource, int]],
        holdings: dict[str, Holding],
        unheld: dict[str, Refused],
    ) -> control.DataLease:
        parts = []
        for name, holding in holdings.items():
            resource, start = starts[name]
            try:
                if (
                    self._resources.need(terms.vhost, name) is resource
                ):  # not deleted while cursors were written
                    parts.append(ReaderLease(terms, resource, start, None, _NO_WINDOW, False, holding))
            except Refused as refused:
                unheld[name] = refused
        lease = HolderLease(terms, self._readers)
        self._granting.grant(lease, lease.ended)
        lease.begin(parts)
        return self._granting.data_lease(
            terms,
            packed=False,
            held={part.resource.name: part.holding.epoch for part in parts if part.holding is not None},
            unheld={name: control.Unheld.of(refused) for name, refused in unheld.items()} or None,
        )


def _nameless(caller: Caller, resource: Resource, start: int) -> Holding:
    return Holding(Cursor(CursorRecord(caller.vhost, "", resource.name, resource.record.incarnation, start)))

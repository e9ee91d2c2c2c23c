"""Groups: their durable positions, their holders, and the fencing of an older holder by a newer one.

PROTOCOL.md 5.3. A cursor is the minimum of the positions that its holder's leases have confirmed. Confirms never
move it back. It is written later than it moves: after a lost write, readers that start from the group get some
contents again.

The records in memory are ahead of those on the disk. A change is made in memory first, and changes are saved in
their order. The request for a change is answered when it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from mtl.broker.leases.lease import Lease
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Deletion, Outbox, remove, unstored
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.sorted_keys import Page, SortedKeys
from mtl.broker.steps import Outcome, begin
from mtl.broker.writing.resource import Resource
from mtl.errors import Fenced, Refused, StorageError
from mtl.storage.records import CursorRecord, record_key
from mtl.storage.unreadable import Unreadable
from mtl.wire.control import OVERLOADED, UNKNOWN_CURSOR

CursorKey = tuple[str, str, str]
"""(virtual host, group, resource)."""


class HoldingLease(Lease):
    """A lease that moves a group's cursor. `confirmed` is the lowest content that it has not confirmed."""

    confirmed: int


class Cursor:
    """The position of a group in one resource. No other object has it. `record` is the latest state, `durable` the
    position on the disk (None: not written yet), `holding` the holding of the last holder.
    """

    __slots__ = ("durable", "holding", "record")

    def __init__(self, record: CursorRecord, durable: int | None = None) -> None:
        self.record = record
        self.durable = durable
        self.holding: Holding | None = None

    def advance(self, position: int, log_epoch: str | None) -> None:
        """Move forward to `position`. The content before it is of `log_epoch`."""
        self.record = msgspec.structs.replace(self.record, position=position, log_epoch=log_epoch)


class Holding:
    """The holding of a cursor by one holder, such as a Spark driver. A newer holding has a higher `epoch`. `moved`
    is called when the cursor has moved. A holding without a group has no key, and its cursor is not stored.
    """

    def __init__(
        self, cursor: Cursor, key: CursorKey | None = None, moved: Callable[[Cursor], None] = lambda _: None
    ) -> None:
        self._cursor = cursor
        self._moved = moved
        self.key = key
        self.holder = cursor.record.holder
        self.epoch = cursor.record.epoch
        self.leases: dict[str, HoldingLease] = {}

    @property
    def position(self) -> int:
        """The next content that the group has not confirmed."""
        return self._cursor.record.position

    def add_lease(self, lease: HoldingLease) -> None:
        """Add a lease of the same holder."""
        lease.confirmed = self.position
        self.leases[lease.terms.token] = lease

    def remove_lease(self, lease: HoldingLease) -> None:
        """A lease ended. The cursor stays until another lease confirms, so it cannot jump when a driver's leases end
        one by one.
        """
        self.leases.pop(lease.terms.token, None)

    def moved(self, resource: Resource) -> None:
        """A lease confirmed contents of `resource`: move the cursor to the minimum of all leases' positions."""
        lowest = min((x.confirmed for x in self.leases.values()), default=self.position)
        if lowest > self.position:
            self._cursor.advance(lowest, resource.epoch_of(lowest))
            self._moved(self._cursor)


class Cursors:
    """Every group's cursor."""

    def __init__(
        self,
        outbox: Outbox,
        records: Iterable[CursorRecord],
        leases: Leases,
        unreadable: Unreadable,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._unreadable = unreadable
        self._cursors: dict[CursorKey, Cursor] = {key_of(r): Cursor(r, r.position) for r in records}
        self._keys: SortedKeys[CursorKey] = SortedKeys(self._cursors)
        self._quotas = quotas
        self._pool = Pool(quotas, Quota.CURSORS)
        for cursor in self._cursors.values():
            self._pool.add(cursor.record.owner)
        self._dirty: dict[CursorKey, None] = {}
        self._flushing = 0
        self._flushed: Outcome[None] = Outcome()
        self._unflushed: StorageError | None = None
        self._leases = leases
        self._fenced: dict[str, dict[CursorKey, tuple[str, str]]] = {}
        """The cursors that each control session has lost: the last holder that lost it, and the reason."""
        self._deleting: dict[CursorKey, None] = {}

    # --- opening --------------------------------------------------------------------------------------------

    def get(self, key: CursorKey) -> CursorRecord | None:
        """The record of a cursor, with its latest position."""
        cursor = self._cursors.get(key)
        return None if cursor is None else cursor.record

    def all(self) -> list[CursorRecord]:
        """Every record, with its latest position."""
        return [cursor.record for cursor in self._cursors.values()]

    def page(
        self,
        vhost: str,
        group: str | None,
        resource: str | None,
        after: Sequence[str] | None,
        visible: Callable[[list[str]], Iterable[bool]],
    ) -> Page[CursorKey]:
        """A page of the cursors of a group, of a resource, of both, or all, sorted by group and resource, whose
        resources are `visible`.
        """

        def wanted(keys: list[CursorKey]) -> list[bool]:
            seen = visible([name for _, _, name in keys])
            return [
                resource in (None, name) and shown for (_, _, name), shown in zip(keys, seen, strict=True)
            ]

        prefix = (
            [vhost] if group is None else [vhost, group] if resource is None else [vhost, group, resource]
        )
        return self._keys.page(tuple(prefix), after, wanted)

    def durable(self, record: CursorRecord) -> int:
        """The position on the disk, which may be reported, and on which retention may rely."""
        cursor = self._cursors.get(key_of(record))
        return record.position if cursor is None or cursor.durable is None else cursor.durable

    def holding(self, key: CursorKey) -> Holding | None:
        """The present holding of a cursor, if it has a live lease."""
        cursor = self._cursors.get(key)
        held = None if cursor is None else cursor.holding
        return held if held is not None and held.leases else None

    async def open(self, key: CursorKey, resource: Resource, position: int, principal: str) -> CursorRecord:
        """Create a cursor at `position`, durably, for a principal; idempotent. An existing cursor moves only if the log
        does not have its position any more. Raises `Refused` 503 for too many cursors, 403 for too many of the
        principal.
        """
        self._open(key, resource, position, principal)
        return await self._save(key)

    def _open(self, key: CursorKey, resource: Resource, position: int, principal: str) -> None:
        if key in self._deleting:
            raise _being_deleted(key)
        cursor = self._cursors.get(key)
        if cursor is None:
            self.check_readable(key)
        if cursor is None:
            self._pool.check(principal)
            owner = self._quotas.owner(principal)
            self._pool.add(owner)
            cursor = self._cursors[key] = Cursor(CursorRecord(*key, "", 0, owner=owner))
            self._keys.add(key)
        if not is_of(cursor.record, resource):
            cursor.record = msgspec.structs.replace(
                cursor.record,
                incarnation=resource.record.incarnation,
                position=position,
                log_epoch=resource.epoch_of(position),
                holder="",
            )
            cursor.durable = None
            self._dirty[key] = None

    async def reset(self, key: CursorKey, resource: Resource, position: int, by: str) -> CursorRecord:
        """Move an existing cursor to `position`, forward or back, durably, for the user `by`. Its holding is fenced
        as by a newer holder, so that late Confirms do not move the cursor.
        """
        if key in self._deleting:
            raise _being_deleted(key)
        cursor = self._cursors[key]
        self._fence(key, cursor, f"was reset to {position} by {by!r}")
        cursor.record = msgspec.structs.replace(
            cursor.record,
            incarnation=resource.record.incarnation,
            position=position,
            log_epoch=resource.epoch_of(position),
            epoch=cursor.record.epoch + 1,
            holder="",
        )
        # Retention waits from now on.
        cursor.durable = position if cursor.durable is None else min(position, cursor.durable)
        self._dirty[key] = None
        return await self._save(key)

    async def hold(self, key: CursorKey, session: str, holder: str) -> Holding:
        """Hold an open cursor: join the holding of the same holder, or begin a new epoch and fence the older one.

        A holder that returns, even after a crash of the broker, keeps its epoch and its members.
        """
        epoch = self._hold(key, session, holder)
        await self._save(key)
        return self._held(key, epoch)

    async def hold_all(
        self,
        wanted: Mapping[CursorKey, tuple[Resource, int]],
        session: str,
        principal: str,
        holder: str,
    ) -> tuple[dict[CursorKey, Holding], dict[CursorKey, Refused]]:
        """Open and hold many cursors, each for a resource and at a position if it is new, with one write. Returns the
        holdings, and the errors of the others.
        """
        unheld: dict[CursorKey, Refused] = {}
        epochs: dict[CursorKey, int] = {}
        for key, (resource, position) in wanted.items():
            try:
                self._open(key, resource, position, principal)
                epochs[key] = self._hold(key, session, holder)
            except Refused as refused:
                unheld[key] = refused
        holdings: dict[CursorKey, Holding] = {}
        try:
            await self.flush()
        except StorageError as error:
            return holdings, unheld | dict.fromkeys(epochs, unstored(error))
        for key, epoch in epochs.items():
            try:
                holdings[key] = self._held(key, epoch)
            except Refused as refused:
                unheld[key] = refused
        return holdings, unheld

    def _hold(self, key: CursorKey, session: str, holder: str) -> int:
        """Note the holder of an open cursor; the epoch of its holding."""
        self.check(key, session, holder)
        if key in self._deleting:
            raise _being_deleted(key)
        cursor = self._cursors[key]
        if cursor.record.holder != holder:
            cursor.record = msgspec.structs.replace(
                cursor.record, epoch=cursor.record.epoch + 1, holder=holder
            )
            self._dirty[key] = None
        return cursor.record.epoch

    def _held(self, key: CursorKey, holding_epoch: int) -> Holding:
        """The holding of an epoch, now that it is durable. Raises `Fenced` if a newer holder has taken the group, and
        `Refused` 404 if the cursor was deleted meanwhile.
        """
        record = self.get(key)
        if record is None:
            raise _deleted(key)
        if record.epoch != holding_epoch:
            raise fenced(key)
        return self._current_holding(key)

    def _current_holding(self, key: CursorKey) -> Holding:
        cursor = self._cursors[key]
        current = cursor.holding
        if current is not None and current.epoch == cursor.record.epoch and current.leases:
            return current
        self._fence(key, cursor, _TAKEN_OVER)
        cursor.holding = Holding(cursor, key, self._moved)
        return cursor.holding

    def check(
        self, key: CursorKey, session: str, holder: str | None = None, holding_epoch: int | None = None
    ) -> None:
        """Raises `Fenced` if this holder (None: any) has lost the group in this session, or if the `holding_epoch` of a
        member is that of an older holder.

        A later holder in the same session may be newer than the one that took the group.
        """
        lost = self._fenced.get(session, {}).get(key)
        if lost is not None and holder in {None, lost[0]}:
            raise fenced(key, lost[1])
        record = self.get(key)
        if holding_epoch is not None and record is None:
            self.check_readable(key)
        if holding_epoch is not None and (record is None or record.epoch != holding_epoch):
            raise fenced(key, _moved_on(record, holding_epoch))

    def check_readable(self, key: CursorKey) -> None:
        """Raises `Refused` 503 for a cursor whose record cannot be read."""
        self._unreadable.check(CursorRecord, record_key(*key), f"group {key[1]!r} on {key[2]!r}")

    def is_unreadable(self, vhost: str, group: str, resource: str) -> bool:
        """Whether this cursor may exist without a readable record. Retention must then keep the contents of its
        resource.
        """
        key = (vhost, group, resource)
        return (
            key not in self._cursors and self._unreadable.reason(CursorRecord, record_key(*key)) is not None
        )

    def forget_session(self, session: str) -> None:
        """A control session has ended: forget the cursors that it lost."""
        self._fenced.pop(session, None)

    async def delete(self, keys: Sequence[CursorKey]) -> None:
        """Delete cursors, durably, and end the leases that hold them."""
        await remove(self._outbox, [self.prepare_deletion(keys)])

    def prepare_deletion(self, keys: Sequence[CursorKey]) -> Deletion:
        """Prepare the deletion of cursors; the leases that hold them end."""
        known = {k: self._cursors[k].record for k in keys if k in self._cursors and k not in self._deleting}
        damaged = {k: CursorRecord(*k, "", 0) for k in keys if self.is_damaged(k) and k not in self._deleting}
        chosen = [*known, *damaged]
        for key in chosen:
            self._end_leases_of(key)
            self._dirty.pop(key, None)
        self._deleting |= dict.fromkeys(chosen)

        def over(gone: bool) -> None:
            for key in chosen:
                del self._deleting[key]
                if gone:
                    self._end_leases_of(key)
                    self._dirty.pop(key, None)
                    cursor = self._cursors.pop(key, None)
                    if cursor is not None:
                        self._keys.discard(key)
                        self._pool.remove(cursor.record.owner)
                    self._unreadable.resolved(CursorRecord, record_key(*key))
                elif key in known:
                    self._dirty[key] = None

        return Deletion(tuple(known.values()), over, damaged=tuple(damaged.values()))

    def is_damaged(self, key: CursorKey) -> bool:
        """Whether the record of exactly this cursor cannot be read; `delete` forgets it."""
        return key not in self._cursors and self._unreadable.has_key(CursorRecord, record_key(*key))

    def _end_leases_of(self, key: CursorKey) -> None:
        cursor = self._cursors.get(key)
        if cursor is not None and cursor.holding is not None:
            held, cursor.holding = cursor.holding, None
            for token in list(held.leases):
                self._leases.end_token(token)

    def _fence(self, key: CursorKey, cursor: Cursor, why: str) -> None:
        if cursor.holding is not None:
            for lease in cursor.holding.leases.values():
                self._fenced.setdefault(lease.terms.session, {})[key] = cursor.holding.holder, why
            self._end_leases_of(key)

    # --- positions ------------------------------------------------------------------------------------------

    def _moved(self, cursor: Cursor) -> None:
        key = key_of(cursor.record)
        if self._cursors.get(key) is cursor:
            self._dirty[key] = None

    def flush(self) -> Outcome[None]:
        """Write the moved cursors in one transaction. The step ends after this and all earlier writes, with the error
        of one of them if it failed. The next flush writes the cursors of a failed write again.
        """
        flushed = self._flushed
        if self._dirty:
            keys, self._dirty = self._dirty, {}
            begin(self._write([k for k in keys if k not in self._deleting]))
        self._all_flushed()
        return flushed

    async def _save(self, key: CursorKey) -> CursorRecord:
        """Write the present state of one cursor durably. Raises `Refused` 404 if it was deleted meanwhile."""
        if key in self._dirty or self._flushing:
            self._dirty.pop(key, None)
            await self._write([key])
        record = self.get(key)
        if record is None:
            raise _deleted(key)
        return record

    async def _write(self, keys: list[CursorKey]) -> None:
        self._flushing += 1
        records = [self._cursors[k].record for k in keys]
        try:
            await self._outbox.save(records)
        except StorageError as error:
            self._dirty.update({k: None for k in keys if k in self._cursors and k not in self._deleting})
            self._unflushed = error
            self._written()
            raise
        for record in records:
            cursor = self._cursors.get(key_of(record))
            if cursor is not None:
                cursor.durable = record.position
        self._written()

    def _written(self) -> None:
        self._flushing -= 1
        self._all_flushed()

    def _all_flushed(self) -> None:
        if self._flushing:
            return
        flushed, self._flushed = self._flushed, Outcome()
        failed, self._unflushed = self._unflushed, None
        if failed is not None:
            flushed.fail(failed)
        else:
            flushed.set(None)

    @property
    def dirty(self) -> bool:
        """Whether a cursor has moved since the last flush."""
        return bool(self._dirty)


def key_of(record: CursorRecord) -> CursorKey:
    """The key of a cursor."""
    return record.vhost, record.group, record.resource


def is_of(record: CursorRecord, resource: Resource) -> bool:
    """Whether a cursor belongs to this incarnation of its resource, and to this copy of its log."""
    same = record.incarnation == resource.record.incarnation
    return same and resource.diverges_at(record.position, record.log_epoch) is None


_TAKEN_OVER = "was taken over by a newer holder"


def fenced(key: CursorKey, why: str = _TAKEN_OVER) -> Fenced:
    """The error for an older holder."""
    return Fenced(f"group {key[1]!r} of resource {key[2]!r} {why}")


def _moved_on(record: CursorRecord | None, holding_epoch: int) -> str:
    """The reason why a holding has ended, as far as the record shows it: after a reset a cursor has no holder."""
    if record is None:
        return f"has no cursor any more; its epoch {holding_epoch} has ended"
    was_reset = record.epoch > holding_epoch and not record.holder
    return f"{'was reset and ' if was_reset else ''}is at epoch {record.epoch}, not {holding_epoch}"


def _deleted(key: CursorKey) -> Refused:
    return Refused(404, UNKNOWN_CURSOR, f"the cursor of group {key[1]!r} on {key[2]!r} was deleted meanwhile")


def _being_deleted(key: CursorKey) -> Refused:
    return Refused(
        503, OVERLOADED, f"the cursor of group {key[1]!r} on {key[2]!r} is being deleted; try again"
    )

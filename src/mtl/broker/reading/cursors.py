"""Groups: their durable positions, their holders, and the fencing of an older holder by a newer one.

PROTOCOL.md 5.3. A cursor is the minimum of the positions that its holder's leases have confirmed. It never goes back,
and is written lazily: a lost write only means redelivery to readers that start from the group.

The records in memory are ahead of those on disk. A change is made in memory first, and changes are saved in their
order; the request for a change is answered when it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.leases.lease import Lease
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.removing import Leaving, remove
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


class Holding:
    """One driver's hold on a group's cursor of one resource. A hold without a group has no key and is not stored.

    `position` is the next content that the group has not confirmed.
    """

    def __init__(
        self, cursors: Cursors, key: CursorKey | None, holder: str, epoch: int, position: int
    ) -> None:
        self._cursors = cursors
        self.key = key
        self.holder = holder
        self.epoch = epoch
        self.position = position
        self.leases: dict[str, HoldingLease] = {}

    def join(self, lease: HoldingLease) -> None:
        """Add a lease of the same holder."""
        lease.confirmed = self.position
        self.leases[lease.terms.token] = lease

    def leave(self, lease: HoldingLease) -> None:
        """A lease ended. From the next Confirm of another lease on, it does not hold the cursor back any more. Not at
        once: when a driver dies its leases end one by one, and the cursor must not jump to the foremost of them.
        """
        self.leases.pop(lease.terms.token, None)

    def moved(self, resource: Resource) -> None:
        """A lease confirmed contents of `resource`: move the cursor to the minimum of all leases' positions."""
        lowest = min((x.confirmed for x in self.leases.values()), default=self.position)
        if lowest > self.position:
            self.position = lowest
            if self.key is not None:
                self._cursors.touch(self.key, lowest, resource.epoch_of(lowest))


class Cursors:
    """Every group's cursor and its holding."""

    def __init__(
        self,
        outbox: Outbox,
        records: Iterable[CursorRecord],
        leases: Leases,
        unreadable: Unreadable,
    ) -> None:
        self._outbox = outbox
        self._unreadable = unreadable
        self._records: dict[CursorKey, CursorRecord] = {key_of(r): r for r in records}
        self._durable = {key: record.position for key, record in self._records.items()}
        self._holdings: dict[CursorKey, Holding] = {}
        self._dirty: dict[CursorKey, None] = {}
        self._flushing = 0
        self._flushed: list[Callable[[Refused | None], None]] = []
        self._unflushed: Refused | None = None
        self._leases = leases
        self._fenced: dict[str, dict[CursorKey, str]] = {}
        """The cursors that each control session has lost, with the reason."""
        self._deleting: dict[CursorKey, None] = {}

    # --- opening --------------------------------------------------------------------------------------------

    def get(self, key: CursorKey) -> CursorRecord | None:
        """The record of a cursor, with its latest position."""
        return self._records.get(key)

    def all(self) -> list[CursorRecord]:
        """Every record, with its latest position."""
        return list(self._records.values())

    def durable(self, record: CursorRecord) -> int:
        """The position on the disk: it may be reported, and retention may rely on it."""
        return self._durable.get(key_of(record), record.position)

    def holding(self, key: CursorKey) -> Holding | None:
        """The present holding of a cursor, if it has a live lease."""
        held = self._holdings.get(key)
        return held if held is not None and held.leases else None

    def open(
        self,
        key: CursorKey,
        resource: Resource,
        position: int,
        then: Callable[[CursorRecord | Refused], None],
    ) -> None:
        """Create a cursor at `position`, durably; idempotent. An existing one moves only if its position is not one of
        the log any more. Raises `Refused` 503 for too many.
        """
        if key in self._deleting:
            raise _being_deleted(key)
        record = self._records.get(key)
        if record is None:
            self.check_readable(key)
        if record is None and len(self._records) >= broker_limits.MAX_CURSORS:
            raise Refused(
                503,
                OVERLOADED,
                f"{broker_limits.MAX_CURSORS} cursors are remembered, which is the limit; `mtl cursors` shows them, "
                "`mtl cursors delete` forgets those that nobody needs",
            )
        if record is None or not is_of(record, resource):
            before = record or CursorRecord(*key, "", 0)
            self._records[key] = msgspec.structs.replace(
                before,
                incarnation=resource.record.incarnation,
                position=position,
                log_epoch=resource.epoch_of(position),
                holder="",
            )
            self._durable.pop(key, None)
            self._dirty[key] = None
        self._save(key, then)

    def reset(
        self,
        key: CursorKey,
        resource: Resource,
        position: int,
        by: str,
        then: Callable[[CursorRecord | Refused], None],
    ) -> None:
        """Move an existing cursor to `position`, forward or back, durably, for the user `by`. Its holding is fenced as
        by a newer holder, so that no late Confirm moves the cursor.
        """
        if key in self._deleting:
            raise _being_deleted(key)
        record = self._records[key]
        held = self._holdings.get(key)
        if held is not None:
            self._fence(key, held, f"was reset to {position} by {by!r}")
        self._records[key] = msgspec.structs.replace(
            record,
            incarnation=resource.record.incarnation,
            position=position,
            log_epoch=resource.epoch_of(position),
            epoch=record.epoch + 1,
            holder="",
        )
        self._durable[key] = min(position, self._durable.get(key, position))  # retention waits from now on
        self._dirty[key] = None
        self._save(key, then)

    def hold(
        self, key: CursorKey, session: str, holder: str, then: Callable[[Holding | Refused], None]
    ) -> None:
        """Hold an open cursor: join the holding of the same holder, or begin a new epoch and fence the older one.

        A holder that returns, even after a crash of the broker, keeps its epoch, and so its members.
        """
        self.check(key, session)
        if key in self._deleting:
            raise _being_deleted(key)
        record = self._records[key]
        if record.holder != holder:
            record = msgspec.structs.replace(record, epoch=record.epoch + 1, holder=holder)
            self._records[key] = record
            self._dirty[key] = None
        epoch = record.epoch

        def saved(result: CursorRecord | Refused) -> None:
            if isinstance(result, Refused):
                then(result)
            elif result.epoch != epoch:  # a newer holder asked meanwhile
                then(fenced(key))
            else:
                then(self._held(key, holder, result))

        self._save(key, saved)

    def _held(self, key: CursorKey, holder: str, record: CursorRecord) -> Holding:
        current = self._holdings.get(key)
        if current is not None and current.epoch == record.epoch and current.leases:
            return current
        if current is not None:
            self._fence(key, current, _TAKEN)
        held = self._holdings[key] = Holding(self, key, holder, record.epoch, record.position)
        return held

    def check(self, key: CursorKey, session: str, epoch: int | None = None) -> None:
        """Raises `Fenced` when this session lost the group, or the `epoch` of a member is that of an older holder."""
        lost = self._fenced.get(session, {}).get(key)
        if lost is not None:
            raise fenced(key, lost)
        record = self._records.get(key)
        if epoch is not None and record is None:
            self.check_readable(key)
        if epoch is not None and (record is None or record.epoch != epoch):
            raise fenced(key, _moved_on(record, epoch))

    def check_readable(self, key: CursorKey) -> None:
        """Raises `Refused` 503 for a cursor whose record cannot be read."""
        self._unreadable.check(CursorRecord, record_key(*key), f"group {key[1]!r} on {key[2]!r}")

    def is_unreadable(self, vhost: str, group: str, resource: str) -> bool:
        """Whether this cursor may exist without a readable record: retention must not pass it."""
        key = (vhost, group, resource)
        return (
            key not in self._records and self._unreadable.reason(CursorRecord, record_key(*key)) is not None
        )

    def forget_session(self, session: str) -> None:
        """A control session has ended: forget the cursors that it lost."""
        self._fenced.pop(session, None)

    def delete(self, keys: Sequence[CursorKey], then: Callable[[Refused | None], None]) -> None:
        """Delete cursors, durably, and end the leases that hold them."""
        remove(self._outbox, [self.leave(keys)], then)

    def leave(self, keys: Sequence[CursorKey]) -> Leaving:
        """Prepare the deletion of cursors; the leases that hold them end."""
        known = {k: self._records[k] for k in keys if k in self._records and k not in self._deleting}
        damaged = {k: CursorRecord(*k, "", 0) for k in keys if self.is_damaged(k) and k not in self._deleting}
        leaving = [*known, *damaged]
        for key in leaving:
            self._let_go(key)
            self._dirty.pop(key, None)
        self._deleting |= dict.fromkeys(leaving)

        def over(gone: bool) -> None:
            for key in leaving:
                del self._deleting[key]
                if gone:
                    self._let_go(key)
                    self._dirty.pop(key, None)
                    self._durable.pop(key, None)
                    self._records.pop(key, None)
                    self._unreadable.resolved(CursorRecord, record_key(*key))
                elif key in known:
                    self._dirty[key] = None

        return Leaving(tuple(known.values()), over, damaged=tuple(damaged.values()))

    def is_damaged(self, key: CursorKey) -> bool:
        """Whether the record of exactly this cursor cannot be read; `delete` forgets it."""
        return key not in self._records and self._unreadable.is_known(CursorRecord, record_key(*key))

    def _let_go(self, key: CursorKey) -> None:
        held = self._holdings.pop(key, None)
        for lease in list(held.leases.values()) if held else ():
            self._leases.end(lease)

    def _fence(self, key: CursorKey, older: Holding, why: str) -> None:
        for lease in list(older.leases.values()):
            self._fenced.setdefault(lease.terms.session, {})[key] = why
            self._leases.end(lease)
        self._holdings.pop(key, None)

    # --- positions ------------------------------------------------------------------------------------------

    def touch(self, key: CursorKey, position: int, epoch: str | None) -> None:
        """A cursor moved forward to `position`, which follows a content of `epoch`; the next `flush` writes it."""
        record = self._records.get(key)
        if record is not None and position > record.position:
            self._records[key] = msgspec.structs.replace(record, position=position, log_epoch=epoch)
            self._dirty[key] = None

    def flush(self, then: Callable[[Refused | None], None] = lambda _: None) -> None:
        """Write the moved cursors in one transaction. `then` is called when this and all earlier writes are over, with
        the refusal if one of them failed; the next flush writes its cursors again.
        """
        self._flushed.append(then)
        if self._dirty:
            keys, self._dirty = self._dirty, {}
            self._write([k for k in keys if k not in self._deleting], lambda _: None)
        self._all_flushed()

    def _save(self, key: CursorKey, then: Callable[[CursorRecord | Refused], None]) -> None:
        """Make the present state of one cursor durable."""
        if key not in self._dirty and not self._flushing:
            then(self._records[key])
            return
        self._dirty.pop(key, None)

        def saved(no: Refused | None) -> None:
            then(no or self._records.get(key) or _deleted(key))

        self._write([key], saved)

    def _write(self, keys: list[CursorKey], then: Callable[[Refused | None], None]) -> None:
        self._flushing += 1
        records = [self._records[k] for k in keys]

        def saved(result: Result) -> None:
            self._flushing -= 1
            if isinstance(result, StorageError):
                self._dirty.update({k: None for k in keys if k in self._records and k not in self._deleting})
                self._unflushed = refusal(result)
            else:
                self._durable |= {key_of(r): r.position for r in records if key_of(r) in self._records}
            then(refusal(result))
            self._all_flushed()

        self._outbox.save(records, (), saved)

    def _all_flushed(self) -> None:
        if not self._flushing:
            waiting, self._flushed = self._flushed, []
            failed, self._unflushed = self._unflushed, None
            for then in waiting:
                then(failed)

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
    return same and resource.parting(record.position, record.log_epoch) is None


_TAKEN = "was taken over by a newer holder"


def fenced(key: CursorKey, why: str = _TAKEN) -> Fenced:
    """The error for an older holder."""
    return Fenced(f"group {key[1]!r} of resource {key[2]!r} {why}")


def _moved_on(record: CursorRecord | None, epoch: int) -> str:
    """The fate of an epoch, as far as the record shows it: a reset leaves a cursor without a holder."""
    if record is None:
        return f"has no cursor any more; epoch {epoch} of it is over"
    was_reset = record.epoch > epoch and not record.holder
    return f"{'was reset and ' if was_reset else ''}is at epoch {record.epoch}, not {epoch}"


def _deleted(key: CursorKey) -> Refused:
    return Refused(404, UNKNOWN_CURSOR, f"the cursor of group {key[1]!r} on {key[2]!r} was deleted meanwhile")


def _being_deleted(key: CursorKey) -> Refused:
    return Refused(
        503, OVERLOADED, f"the cursor of group {key[1]!r} on {key[2]!r} is being deleted; try again"
    )

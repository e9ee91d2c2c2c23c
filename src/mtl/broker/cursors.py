"""Groups: durable positions, who holds them, and how a newer holder fences an older one.

profiles.md "Cursors and the driver's commit". A cursor is the minimum of what the leases of its holding confirmed; it
never goes back, and is written lazily: losing the last move only means redelivery to those who start from the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.records import CursorRecord
from mtl.errors import Fenced, Refused, StorageError
from mtl.wire import control as w

if TYPE_CHECKING:
    from mtl.broker.readers import ReaderLease

CursorKey = tuple[str, str, str]
"""(virtual host, group, resource)."""


class Holding:
    """One driver's hold on a group's cursor of one resource. A nameless one (no record) is kept nowhere.

    `position` is the next content that the group has not confirmed.
    """

    def __init__(
        self,
        cursors: Cursors,
        key: CursorKey | None,
        holder: str,
        epoch: int,
        position: int,
        incarnation: str,
    ) -> None:
        self._cursors = cursors
        self.key = key
        self.holder = holder
        self.epoch = epoch
        self.position = position
        self.incarnation = incarnation
        self.leases: dict[str, ReaderLease] = {}

    def join(self, lease: ReaderLease) -> None:
        """A lease of the same holder: the cursor is the minimum of what they confirmed."""
        lease.confirmed = self.position
        self.leases[lease.terms.token] = lease

    def leave(self, lease: ReaderLease) -> None:
        """A lease ended; what it had not confirmed no longer holds the others back."""
        self.leases.pop(lease.terms.token, None)
        if self.leases:
            self.moved()

    def moved(self) -> None:
        """A lease confirmed: move the cursor forward if all of them have."""
        lowest = min((x.confirmed for x in self.leases.values()), default=self.position)
        if lowest > self.position:
            self.position = lowest
            if self.key is not None:
                self._cursors.touch(self.key, lowest)


class Cursors:
    """Every group's cursor, and its present holding."""

    def __init__(
        self, outbox: Outbox, records: Iterable[CursorRecord], end_lease: Callable[[ReaderLease], None]
    ) -> None:
        self._outbox = outbox
        self._records: dict[CursorKey, CursorRecord] = {(r.vhost, r.group, r.resource): r for r in records}
        self._durable = {key: record.position for key, record in self._records.items()}
        self._holdings: dict[CursorKey, Holding] = {}
        self._dirty: dict[CursorKey, None] = {}
        self._flushing: list[list[Callable[[Refused | None], None]]] = []
        self._end_lease = end_lease
        self._fenced: dict[str, set[CursorKey]] = {}

    # --- opening --------------------------------------------------------------------------------------------

    def get(self, key: CursorKey) -> CursorRecord | None:
        """The record of a cursor, positions up to date."""
        return self._records.get(key)

    def all(self) -> list[CursorRecord]:
        """Every record, positions up to date."""
        return list(self._records.values())

    def durable(self, record: CursorRecord) -> int:
        """The position that a crash would leave: what may be told, and what retention may rely on."""
        return self._durable.get((record.vhost, record.group, record.resource), record.position)

    def holding(self, key: CursorKey) -> Holding | None:
        """The present holding of a cursor, if some lease of it lives."""
        held = self._holdings.get(key)
        return held if held is not None and held.leases else None

    def open(
        self, key: CursorKey, incarnation: str, position: int, then: Callable[[CursorRecord | Refused], None]
    ) -> None:
        """Make the cursor durable at `position` unless it is there; idempotent, never moves one that is."""
        record = self._records.get(key)
        if record is not None and record.incarnation == incarnation:
            then(record)
            return
        epoch = record.epoch if record is not None else 0
        vhost, group, resource = key
        fresh = CursorRecord(vhost, group, resource, incarnation, position, epoch)
        self._put(fresh, then)

    def hold(
        self, key: CursorKey, session: str, holder: str, then: Callable[[Holding | Refused], None]
    ) -> None:
        """Hold an open cursor: join the holding of the same holder, or begin a new epoch and fence the older one.

        A holder that comes back, after a restart of the broker too, with nobody in between is still in its epoch: its
        members know that one.
        """
        self.check(key, session)
        current = self.holding(key)
        if current is not None and current.holder == holder:
            then(current)
            return
        if current is not None:
            self._fence(key, current)
        record = self._records[key]
        epoch = record.epoch if record.holder == holder else record.epoch + 1
        fresh = msgspec.structs.replace(record, epoch=epoch, holder=holder)
        self._records[key] = fresh  # from now on, so that whoever comes meanwhile finds the group taken

        def saved(result: CursorRecord | Refused) -> None:
            if isinstance(result, Refused):
                then(result)
                return
            if result.holder != holder:
                then(Fenced(f"a newer holder took over group {key[1]!r} of resource {key[2]!r}"))
                return
            later = self.holding(key)
            if later is not None and later.holder == holder:
                then(later)
                return
            held = Holding(self, key, holder, result.epoch, self._records[key].position, result.incarnation)
            self._holdings[key] = held
            then(held)

        self._put(fresh, saved)

    def check(self, key: CursorKey, session: str, epoch: int | None = None) -> None:
        """Raises `Fenced` when this session lost the group, or a member comes with the epoch of an older holder."""
        if key in self._fenced.get(session, ()):
            raise Fenced(f"a newer holder took over group {key[1]!r} of resource {key[2]!r}")
        record = self._records.get(key)
        if epoch is not None and (record is None or record.epoch != epoch):
            now = record.epoch if record is not None else 0
            raise Fenced(f"group {key[1]!r} of resource {key[2]!r} is held with epoch {now}, not {epoch}")

    def forget_session(self, session: str) -> None:
        """A control session is gone; so is what it lost."""
        self._fenced.pop(session, None)

    def delete(self, keys: Iterable[CursorKey], then: Callable[[Refused | None], None]) -> None:
        """Forget cursors, durably, and end the leases that hold them."""
        gone = [self._records.pop(k) for k in keys if k in self._records]
        for record in gone:
            key = (record.vhost, record.group, record.resource)
            self._dirty.pop(key, None)
            self._durable.pop(key, None)
            held = self._holdings.pop(key, None)
            for lease in list(held.leases.values()) if held else ():
                self._end_lease(lease)
        if not gone:
            then(None)
            return
        self._outbox.save((), gone, lambda result: then(refusal(result)))

    def _fence(self, key: CursorKey, older: Holding) -> None:
        for lease in list(older.leases.values()):
            self._fenced.setdefault(lease.terms.session, set()).add(key)
            self._end_lease(lease)
        self._holdings.pop(key, None)

    # --- positions ------------------------------------------------------------------------------------------

    def touch(self, key: CursorKey, position: int) -> None:
        """A cursor moved forward; it is written with the next `flush`."""
        record = self._records.get(key)
        if record is not None and position > record.position:
            self._records[key] = msgspec.structs.replace(record, position=position)
            self._dirty[key] = None

    def flush(self, then: Callable[[Refused | None], None] = lambda _: None) -> None:
        """Write the moved cursors in one transaction. A failure leaves them to the next flush.

        `then` gets the refusal of this flush, or of the one that is under way when nothing moved since.
        """
        if not self._dirty:
            if self._flushing:
                self._flushing[-1].append(then)
            else:
                then(None)
            return
        keys, self._dirty = self._dirty, {}
        records = [self._records[k] for k in keys if k in self._records]
        waiting = [then]
        self._flushing.append(waiting)

        def saved(result: Result) -> None:
            self._flushing.remove(waiting)
            if isinstance(result, StorageError):
                self._dirty.update({k: None for k in keys if k in self._records})
            else:
                self._saved(records)
            for one in waiting:
                one(refusal(result))

        self._outbox.save(records, (), saved)

    def _saved(self, records: Iterable[CursorRecord]) -> None:
        for record in records:
            key = (record.vhost, record.group, record.resource)
            now = self._records.get(key)
            if now is not None and now.incarnation == record.incarnation:
                self._durable[key] = record.position

    @property
    def dirty(self) -> bool:
        """Whether some cursor moved since the last flush."""
        return bool(self._dirty)

    def _put(self, record: CursorRecord, then: Callable[[CursorRecord | Refused], None]) -> None:
        """Write a record. `then` gets what holds when that is done: a newer holder may have come, or all is deleted."""
        key = (record.vhost, record.group, record.resource)
        known = key in self._records

        def saved(result: Result) -> None:
            no = refusal(result)
            if no is not None:
                then(no)
                return
            now = self._records.get(key)
            if now is None and known:
                then(Refused(404, w.UNKNOWN_CURSOR, f"the cursor of group {key[1]!r} was deleted meanwhile"))
                return
            if now is None or now.incarnation != record.incarnation or now.epoch < record.epoch:
                self._records[key] = record
            self._saved([record])
            then(self._records[key])

        self._outbox.save((record,), (), saved)

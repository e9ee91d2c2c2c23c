"""Writer names: the id of each in the logs, its holder, and its expiry.

PROTOCOL.md 5.4. A newer holder of a name fences the older one. A name that was unused for a day is forgotten with
its publishing numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.writing.writers import WriterLease
from mtl.errors import Fenced, Refused, StorageError
from mtl.storage.records import WriterRecord, record_key
from mtl.storage.unreadable import Unreadable
from mtl.wire import control

NameKey = tuple[str, str]
"""(virtual host, name)."""

_ID_MASK = (1 << 63) - 1


class WriterNames:
    """Every writer name. Restored names count as used now: the broker's downtime does not age them.

    Ids are random. Counted ids would be used again after the highest name had expired, and a log that still knows the
    numbers of the old writer would take the new one's contents for duplicates.
    """

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        records: Iterable[WriterRecord],
        leases: Leases,
        unreadable: Unreadable,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._records: dict[NameKey, WriterRecord] = {(r.vhost, r.name): r for r in records}
        self._used: dict[NameKey, float] = dict.fromkeys(self._records, outbox.now.mono)
        self._leases: dict[NameKey, tuple[WriterLease, WriterRecord]] = {}
        """The live lease of each name, and the record that it was granted with."""
        self._fenced: dict[str, dict[NameKey, str]] = {}
        """The names that each control session has lost, with the last holder that lost it."""
        self._all_leases = leases
        self._unreadable = unreadable
        self._quotas = quotas
        self._pool = Pool(quotas, Quota.WRITER_NAMES)
        for record in self._records.values():
            self._pool.add(record.owner)

    async def open(
        self,
        vhost: str,
        name: str,
        session: str,
        principal: str,
        holder: str,
        epoch: int | None,
    ) -> WriterRecord:
        """Open a name for its holder, durably; another holder begins a new epoch.

        Raises `Fenced` when this holder lost the name in this session, and when the `epoch` is that of an older
        holder: numbers that it has not seen confirmed may belong to a newer holder's contents by now. `Refused` 404
        when the name is not known any more, 503 for too many names, 403 for too many of this principal.
        """
        key = (vhost, name)
        known = self._records.get(key)
        same = known is not None and known.holder == holder
        if self._fenced.get(session, {}).get(key) == holder:
            raise fenced(name)
        if known is None:
            self._unreadable.check(WriterRecord, record_key(*key), f"writer name {name!r}")
        if epoch is not None and known is None:
            raise Refused(
                404,
                control.UNKNOWN_WRITER,
                f"the writer name {name!r} is not known (any more): it was not used for a long time, or "
                "the broker's data was replaced. Ask without epoch to begin again",
            )
        # One of two holders is newer. Holders with the same epoch got the name from different copies of the data.
        is_other_holder = holder != session or (known is not None and known.epoch != epoch)
        if epoch is not None and not same and is_other_holder:
            raise fenced(name)
        owner = self._quotas.owner(principal)
        if known is None:
            self._pool.check(principal)
            self._pool.add(owner)
        record = (
            WriterRecord(vhost, name, self._new_id(), 1, holder, owner)
            if known is None
            else msgspec.structs.replace(known, epoch=known.epoch + (not same), holder=holder)
        )
        self._records[key] = record
        self._used[key] = self._outbox.now.mono
        await self._outbox.save((record,))
        if not self.current(record):
            raise fenced(name)
        return record

    def _new_id(self) -> int:
        return int.from_bytes(self._random(8), "big") & _ID_MASK or 1

    def current(self, record: WriterRecord) -> bool:
        """Whether the name was not opened since, not even by the same holder."""
        return self._records.get((record.vhost, record.name)) is record

    def fence(self, record: WriterRecord) -> None:
        """End the former lease of the name; later requests of another holder in its session are refused as fenced."""
        key = (record.vhost, record.name)
        if key not in self._leases:
            return
        lease, former = self._leases[key]
        if former.holder != record.holder:
            self._fenced.setdefault(lease.terms.session, {})[key] = former.holder
        self._all_leases.end(lease)

    def lease_granted(self, record: WriterRecord, lease: WriterLease) -> None:
        """A lease of the name was granted."""
        self._leases[(record.vhost, record.name)] = lease, record

    def lease_ended(self, record: WriterRecord, lease: WriterLease) -> None:
        """A lease of the name ended; the name was in use until now."""
        key = (record.vhost, record.name)
        if self._leases.get(key, (None, record))[0] is lease:
            del self._leases[key]
        if key in self._used:
            self._used[key] = self._outbox.now.mono

    def forget_session(self, session: str) -> None:
        """A control session has ended: forget the names that it lost."""
        self._fenced.pop(session, None)

    async def expire(self) -> list[int]:
        """Forget the names that were unused for long. Returns their ids, for the logs to remove."""
        horizon = self._outbox.now.mono - broker_limits.WRITER_NAME_IDLE_S
        keys = [k for k, used in self._used.items() if used < horizon and k not in self._leases]
        idle = [self._records[k] for k in keys]
        if not idle:
            return []
        try:
            await self._outbox.save((), idle)
        except StorageError:
            return []  # tried again at the next check
        gone = [r for r in idle if self.current(r) and (r.vhost, r.name) not in self._leases]
        for record in gone:
            del self._records[(record.vhost, record.name)]
            self._pool.remove(record.owner)
            del self._used[(record.vhost, record.name)]
        return [r.id for r in gone]


def fenced(name: str) -> Fenced:
    """The error for the older holder of a name."""
    return Fenced(f"a newer holder took over the writer name {name!r}")

"""All queues, and their records on the disk.

PROTOCOL.md 6. The first consumer of a queue creates it. It exists until it or its resource is deleted. Settlements
are written later than they happen, many contents at a time. After a lost write contents are delivered again, with a
mark. For this mark `ahead` is written before a delivery: the end of the contents that may have been delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from mtl.broker.events import Event
from mtl.broker.outbox import Deletion, Outbox, remove
from mtl.broker.queues import limits as queue_limits
from mtl.broker.queues.queue import Queue, as_of, state_of
from mtl.broker.queues.queue_state import QueueState
from mtl.broker.queues.settled import Settled
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.sorted_keys import Page, SortedKeys
from mtl.broker.steps import Outcome, begin
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused, StorageError
from mtl.storage.records import QueueRecord, record_key
from mtl.storage.unreadable import Unreadable
from mtl.wire import control

log = logging.getLogger("mtl.broker")

_ID_MASK = (1 << 63) - 1


QueueKey = tuple[str, str, str]
"""(virtual host, resource, queue)."""

_NONE: Final[Mapping[str, Queue]] = {}


class Queues:
    """Every queue."""

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        resources: Resources,
        unreadable: Unreadable,
        quotas: Quotas,
    ) -> None:
        self._outbox = outbox
        self._quotas = quotas
        self._pool = Pool(quotas, Quota.QUEUES)
        self._unreadable = unreadable
        self._random = random
        self._resources = resources
        self._queues: dict[Queue, None] = {}
        self._keys: SortedKeys[QueueKey] = SortedKeys()
        self._of: dict[Resource, dict[str, Queue]] = {}
        self._dirty: dict[Queue, None] = {}
        self._burying: dict[Queue, None] = {}
        self._ahead = queue_limits.QUEUE_AHEAD
        self.deliverable: Event[[Queue]] = Event()
        """A queue may deliver more than before."""

    # --- finding and making ---------------------------------------------------------------------------------

    def of(self, resource: Resource) -> Mapping[str, Queue]:
        """The queues of a resource by their names."""
        return self._of.get(resource, _NONE)

    def page(
        self,
        vhost: str,
        resource: str | None,
        queue: str | None,
        after: Sequence[str] | None,
        visible: Callable[[list[str]], Iterable[bool]],
        beginnings: Sequence[str],
    ) -> Page[QueueKey]:
        """A page of the queues of a resource, of a name, of both, or all, sorted by resource and name, whose resources
        have one of the `beginnings` and are `visible`.
        """

        def wanted(keys: list[QueueKey]) -> list[bool]:
            seen = visible([name for _, name, _ in keys])
            return [
                shown and queue in (None, name) and self._resources.listed(vhost, resource) is not None
                for (_, resource, name), shown in zip(keys, seen, strict=True)
            ]

        if resource is None:
            return self._keys.page((vhost,), after, wanted, beginnings=beginnings)
        return self._keys.page((vhost, resource), after, wanted)

    def describe(self, keys: Iterable[QueueKey]) -> list[control.QueueInfo]:
        """Queues for Queue.Describe."""
        present = ((self._resources.listed(vhost, resource), name) for vhost, resource, name in keys)
        return [self.of(resource)[name].describe() for resource, name in present if resource is not None]

    def restore(self, records: Iterable[QueueRecord]) -> None:
        """Restore queues. Those of another incarnation of their resource are deleted."""
        over: list[QueueRecord] = []
        for record in records:
            resource = self._resources.find(record.vhost, record.resource)
            if resource is None and self._resources.is_unreadable(record.vhost, record.resource):
                continue
            if resource is None or resource.record.incarnation != record.incarnation:
                over.append(record)
                continue
            queue = self._add(
                Queue(resource, record.queue, record.id, state_of(record, resource), record.owner)
            )
            queue.ahead, queue.buried, queue.restored = record.ahead, record.buried, record
            if queue.state.letters:
                self._burying[queue] = None
        if over:
            self._outbox.save((), over)  # after a failure the next start finds them again

    def opened(self, resource: Resource) -> None:
        """The log of a resource is open: restrict the state of its queues to the valid part of their records."""
        for queue in self.of(resource).values():
            known, queue.restored = queue.restored, None
            record = as_of(known, resource) if known is not None else None
            if record is not None and record is not known:
                queue.state = state_of(record, resource)
                queue.ahead, queue.low = record.ahead, record.low
                self.touch(queue)

    def open(self, resource: Resource, name: str, start: int, principal: str) -> Queue:
        """The queue of this name. If it does not exist it is created for a principal, to begin at `start`; no content
        is delivered before it is durable.

        Raises `Refused` 503 for too many queues, and for a queue that is being deleted, 403 for too many of the
        principal.
        """
        queue = self.of(resource).get(name)
        if queue is not None and queue.deleting:
            message = f"queue {name!r} of {resource.name!r} is being deleted; try again"
            raise Refused(503, control.OVERLOADED, message)
        if queue is not None:
            return queue
        self.check_readable(resource, name)
        self._pool.check(principal)
        number = int.from_bytes(self._random(8), "big") & _ID_MASK or 1
        state = QueueState(Settled(start), max_deliveries=resource.max_deliveries)
        return self._add(Queue(resource, name, number, state, self._quotas.owner(principal)))

    def check_readable(self, resource: Resource, name: str) -> None:
        """Raises `Refused` 503 for a queue whose record cannot be read."""
        self._unreadable.check(QueueRecord, _key(resource, name), f"queue {name!r} of {resource.name!r}")

    def is_unreadable(self, resource: Resource, name: str) -> bool:
        """Whether this queue may exist without a readable record. Retention must then keep the contents of its
        resource.
        """
        gone = name not in self.of(resource)
        return gone and self._unreadable.reason(QueueRecord, _key(resource, name)) is not None

    async def forget(self, resource: Resource, name: str) -> None:
        """Delete a damaged queue. Raises `Refused` 503 when it is unknown whether it exists."""
        if not self._unreadable.has_key(QueueRecord, _key(resource, name)):
            self.check_readable(resource, name)
            return
        record = QueueRecord(*resource.key, name, resource.record.incarnation, 0, 0, 0)
        await self._outbox.save((), (record,))
        self._unreadable.resolved(QueueRecord, record.key)

    def _add(self, queue: Queue) -> Queue:
        self._queues[queue] = None
        self._keys.add(_key_of(queue))
        self._pool.add(queue.owner)
        self._of.setdefault(queue.resource, {})[queue.name] = queue
        return queue

    # --- writing --------------------------------------------------------------------------------------------

    def touch(self, queue: Queue) -> None:
        """Contents were settled or came back: the next `flush` writes the queue."""
        self._dirty[queue] = None
        if queue.state.letters:
            self._burying[queue] = None

    def flush(self) -> None:
        """Write the changed queues in one transaction."""
        dirty, self._dirty = self._dirty, {}
        queues = [q for q in dirty if q.exists]
        if queues:
            begin(self._write(queues))

    def save(self, queue: Queue) -> Outcome[None]:
        """Write the present state of one queue."""
        self._dirty.pop(queue, None)
        return begin(self._write([queue]))

    def raise_ahead(self, queue: Queue) -> None:
        """Raise `ahead` in the record, so that more contents may be delivered. The event `deliverable` follows."""
        if self._ahead and queue.saving_ahead <= queue.ahead:
            self.save(queue)

    def close(self) -> None:
        """Write the changed queues, with `ahead` as the real end of the deliveries. No new content is delivered
        after this.
        """
        self._ahead = 0
        for queue in self._queues:
            if queue.restored is None and queue.ahead > queue.state.next:
                queue.ahead = queue.state.next
                self.touch(queue)
        self.flush()

    def burying(self) -> Mapping[Queue, None]:
        """The queues with unfinished dead letters."""
        self._burying = {q: None for q in self._burying if q.exists and q.state.letters}
        return self._burying

    @property
    def has_queues(self) -> bool:
        """Whether there is a queue."""
        return bool(self._queues)

    @property
    def dirty(self) -> bool:
        """Whether there are queues to be written."""
        return bool(self._dirty)

    async def _write(self, queues: Sequence[Queue]) -> None:
        """Write queues in one transaction. After a failure the next `flush` does it."""
        records = {q: q.record(q.state.next + self._ahead) for q in queues}
        for queue, record in records.items():
            queue.saving_ahead = record.ahead

        try:
            await self._outbox.save(tuple(records.values()))
        except StorageError:
            for queue in records:
                queue.saving_ahead = queue.ahead
                self.touch(queue)
            raise
        for queue, record in records.items():
            queue.ahead = record.ahead if self._ahead else min(queue.ahead, record.ahead)
            queue.low, queue.buried = record.low, record.buried
            self.deliverable(queue)

    # --- the end --------------------------------------------------------------------------------------------

    async def delete(self, queues: Sequence[Queue]) -> None:
        """Delete queues durably. Their consumers keep the contents that they have, and get no further ones."""
        await remove(self._outbox, [self.prepare_deletion(queues)])

    def prepare_deletion(self, queues: Sequence[Queue]) -> Deletion:
        """Prepare the deletion of queues."""
        chosen = [q for q in queues if not q.deleting]
        for queue in chosen:
            queue.deleting = True
            for lease in queue.consumers.values():
                lease.summoned.pop(queue.resource.name, None)
            queue.consumers.clear()

        def over(gone: bool) -> None:
            for queue in chosen:
                queue.deleting = False
                if gone:
                    self._forget(queue)
                else:
                    self.touch(queue)

        return Deletion([q.record(q.ahead) for q in chosen], over)

    def _forget(self, queue: Queue) -> None:
        if queue in self._queues:
            del self._queues[queue]
            self._keys.discard(_key_of(queue))
            self._pool.remove(queue.owner)
        queue.deleted = True
        others = self._of.get(queue.resource, {})
        others.pop(queue.name, None)
        if not others:
            self._of.pop(queue.resource, None)


def _key_of(queue: Queue) -> QueueKey:
    return (*queue.resource.key, queue.name)


def _key(resource: Resource, name: str) -> str:
    return record_key(*resource.key, name)

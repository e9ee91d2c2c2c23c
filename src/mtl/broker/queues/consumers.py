"""Consumers of queues: the distribution of contents in turn and by window, and the effect of Confirms and Rejects.

PROTOCOL.md 6. The contents of a queue are delivered to its consumers in turn, to each up to its window. The content
sequence counts the deliveries of a lease, over all its resources. A property has the position in the resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.leases.leases import Leases
from mtl.broker.leases.pauses import Pauses
from mtl.broker.outbox import Outbox
from mtl.broker.queues.queue import Queue, QueueEntry, QueueLease
from mtl.broker.queues.queue_state import QueueEvent, Run
from mtl.broker.queues.queues import Queues
from mtl.broker.reading.ahead import Aheads
from mtl.broker.reading.readers import HasRoom
from mtl.broker.steps import run
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.errors import Refused, StorageError
from mtl.net.limits import GROUP
from mtl.protocol.settlement import Sent
from mtl.storage.api import Chunk
from mtl.wire import commands


class Consumers:
    """Delivers the contents of every queue and handles their settlement."""

    def __init__(
        self,
        outbox: Outbox,
        opening: LogOpening,
        queues: Queues,
        resources: Resources,
        leases: Leases,
        aheads: Aheads,
        has_room: HasRoom,
    ) -> None:
        self._outbox = outbox
        self._opening = opening
        self._queues = queues
        self._resources = resources
        self._leases = leases
        self._aheads = aheads
        self._has_room = has_room
        self._ready: dict[Queue, None] = {}
        self._delayed: dict[Queue, None] = {}
        self._sent_now: dict[QueueLease, None] = {}
        self._sent_before: dict[QueueLease, None] = {}
        self._pauses: Pauses[QueueLease] = Pauses(outbox)
        self.counts = {"delivered": 0, "blocked": 0, "rejected": 0, "unread": 0}

    def grew(self, resource: Resource) -> None:
        """The visible end of a resource moved."""
        for queue in self._queues.of(resource).values():
            self.wake(queue)

    # --- commands of consumers ------------------------------------------------------------------------------

    async def summon(self, lease: QueueLease, resource: str) -> bool:
        """Begin to consume from the queue of a resource. The resource may be newer than the lease."""
        consumed = self._resources.find(lease.terms.vhost, resource)
        if consumed is None:
            return False
        flow = lease.flow
        await self._opening.opened([consumed.intake])
        return lease.flow is flow and self._summoned(lease, resource)

    def _summoned(self, lease: QueueLease, resource: str) -> bool:
        try:
            consumed = self._resources.need(lease.terms.vhost, resource)  # it may have been deleted meanwhile
            queue = self._queues.of(consumed).get(lease.queue)
            if queue is None or queue.deleting:
                start, principal = consumed.resolve(lease.start), lease.terms.principal
                queue = self._queues.open(consumed, lease.queue, start, principal)
        except Refused:
            return False
        lease.summoned[resource] = queue
        queue.consumers[lease.terms.token] = lease
        self.wake(queue)
        return True

    def dismiss(self, lease: QueueLease, resource: str) -> None:
        """Send no further content of `resource`. Contents on their way may still be settled."""
        queue = lease.summoned.pop(resource, None)
        if queue is None:
            return
        queue.consumers.pop(lease.terms.token, None)
        if not queue.consumers:
            queue.chunks.clear()
            self._aheads.ended(queue.chunks)

    def confirm(self, lease: QueueLease, sequence: int, multiple: bool) -> None:
        """Contents were processed."""
        if lease.full:
            for queue, sequences in _positions(lease.unsettled.settle(sequence, multiple)).items():
                queue.state.confirm(sequences)
                self._changed(queue)
            self._wake_all(lease)

    def reject(self, lease: QueueLease, command: commands.Reject) -> None:
        """Contents were not processed: they are delivered again, or (without `recycle`) become dead letters."""
        if not lease.full:
            return
        settled = lease.unsettled.settle(command.sequence, command.multiple)
        for queue, sequences in _positions(settled).items():
            self.counts["rejected"] += len(sequences)
            if command.recycle:
                queue.state.recycle(sequences, lease.terms.token, self._outbox.now.mono)
                self._delayed[queue] = None
            else:
                queue.state.reject(sequences, command.reason)
            self._changed(queue)
        self._wake_all(lease)

    def on_frame(self, lease: QueueLease) -> None:
        """A frame came from this peer: its queue may have room again."""
        if self._pauses.end(lease):
            self._wake_all(lease)

    # --- outcomes of deliveries -----------------------------------------------------------------------------

    def blocked(self, lease: QueueLease, number: int) -> None:
        """The deliveries from `number` on were not sent: other consumers may have those contents."""
        self.counts["blocked"] += 1
        self._pauses.pause(lease, number)
        lease.delivered = min(lease.delivered, number - 1)
        unsent = list(lease.unsettled.cut(number))
        lease.refused = GROUP + max((sent.size for sent in unsent), default=0)
        for queue, sequences in _positions(unsent).items():
            queue.state.release(sequences, left=False)
            self._changed(queue)

    def unread(self, lease: QueueLease, resource: str, first: int, end: int, error: StorageError) -> None:
        """Contents [first, end) cannot be read, or do not verify. No content is skipped: the lease ends, and
        requests for another lease are refused with the reason (`Resource.readable`).
        """
        self.counts["unread"] += 1
        consumed = self._resources.find(lease.terms.vhost, resource)
        if consumed is not None:
            consumed.add_unread(first, end, error)
        lease.closing = True
        self._leases.fail(lease)

    def unbound(self, lease: QueueLease) -> None:
        """The consumer's flow has ended: its contents are delivered to others, or to itself when it returns."""
        for queue, sequences in _positions(lease.unsettled.clear()).items():
            if not lease.full:
                queue.state.sent(sequences)
            elif lease.closing:
                queue.state.release(sequences, left=True)
            else:
                queue.state.return_lost(sequences)
            self._changed(queue)
        for resource in list(lease.summoned):
            self.dismiss(lease, resource)
        self._sent_now.pop(lease, None)
        self._pauses.end(lease)

    def _changed(self, queue: Queue) -> None:
        self._queues.touch(queue)
        self.wake(queue)

    # --- turns ----------------------------------------------------------------------------------------------

    def wake(self, queue: Queue) -> None:
        """There may be more to deliver, or a consumer has room."""
        if queue.consumers:
            self._ready[queue] = None

    def _wake_all(self, lease: QueueLease) -> None:
        for queue in lease.summoned.values():
            self.wake(queue)

    def retry(self) -> None:
        """Wake the queues of consumers whose pause has ended."""
        for lease in self._pauses.over():
            self._wake_all(lease)

    def wake_delayed(self) -> None:
        """Wake the queues with a backoff that has ended."""
        for queue in list(self._delayed):
            if queue.state.end_backoffs(self._outbox.now.mono):
                self.wake(queue)
            if queue.state.next_due is None:
                del self._delayed[queue]

    @property
    def busy(self) -> bool:
        """Whether a further `pump` would deliver or settle contents."""
        return bool(self._ready or self._sent_now or self._sent_before)

    @property
    def next_retry(self) -> float | None:
        """When the first pause ends, in monotonic seconds; None without a pause."""
        return self._pauses.next

    def pump(self) -> None:
        """Give every ready queue one turn of bounded length."""
        self._settle_sent()
        for queue in list(self._ready):
            if queue.resource.log is None or not self._deliver_turn(queue):
                self._ready.pop(queue, None)

    def _settle_sent(self) -> None:
        """Contents handed to the sockets two turns ago and not reported as unsent were sent: settle them."""
        sent, self._sent_before, self._sent_now = self._sent_before, self._sent_now, {}
        for lease in sent:
            for queue, sequences in _positions(lease.unsettled.clear()).items():
                queue.state.sent(sequences)
            self._wake_all(lease)

    def _deliver_turn(self, queue: Queue) -> bool:
        """Deliver up to one turn's octets. Returns whether more contents may be deliverable at once."""
        octets = 0
        for _ in range(broker_limits.TURN_SENDS):
            sent = self._round(queue)
            octets += sent
            if not sent or octets >= broker_limits.TURN_OCTETS:
                return bool(sent)
        return True

    def _round(self, queue: Queue) -> int:
        """Deliver one run to each consumer with room, in turn. Returns the octets; 0 without contents or without
        room.
        """
        queue.state.trim(queue.resource.earliest)
        if queue.state.upcoming() >= queue.ahead and queue.resource.end > queue.ahead:
            self._queues.raise_ahead(queue)
        able = [x for x in queue.consumers.values() if self._is_able(x)]
        if not able:
            return 0
        share = max(1, queue.state.waiting(queue.end) // len(able))
        octets = 0
        for lease in able:
            sent = self._deliver_run(queue, lease, share, [x for x in able if x is not lease])
            if sent:  # the others come first in the next round
                queue.consumers[lease.terms.token] = queue.consumers.pop(lease.terms.token)
            octets += sent
        return octets

    def _is_able(self, lease: QueueLease) -> bool:
        """Whether a content may be sent to this consumer now."""
        if not lease.flow or lease in self._pauses or not lease.room(0):
            return False
        if lease.refused and not self._has_room(lease.flow.peer, lease.terms.principal, lease.refused):
            self._pauses.pause(lease, lease.delivered + 1)
            return False
        lease.refused = 0
        return True

    def _deliver_run(self, queue: Queue, lease: QueueLease, share: int, others: Sequence[QueueLease]) -> int:
        """Deliver one run of contents to a consumer. Returns the octets; 0 if no content for it is in memory."""

        def others_take(sequence: int) -> bool:
            chunk = self._chunk(queue, lease, sequence) if others else None
            return chunk is not None and any(x.room(_share(chunk)) for x in others)

        first = queue.state.peek(queue.end, lease.terms.token, others_take)
        chunk = self._chunk(queue, lease, first) if first is not None else None
        if first is None or chunk is None:
            return 0
        ref, size = chunk.ref, _share(chunk)
        most = min(share, lease.room(size), broker_limits.TURN_CONTENTS)
        last = min(first + most, ref.base + ref.count, queue.end) - 1
        if last < first:
            return 0
        handed = queue.state.hand_out(first, last, QueueEvent.DELIVER if lease.full else QueueEvent.CLAIM)
        if lease.full:
            self._deliver(queue, lease, chunk, handed)
        else:
            run(self._claim(queue, lease, chunk, handed))
        return size * (handed.last - handed.first + 1)

    def _chunk(self, queue: Queue, lease: QueueLease, sequence: int) -> Chunk | None:
        """The chunk with a content. None if it is not in memory; a read for this consumer is then under way."""
        log = queue.resource.log
        chunk = queue.chunks.find(sequence) or (log.tail(sequence) if log is not None else None)
        if chunk is None:
            self._read(queue, lease, sequence)
        return chunk

    def _read(self, queue: Queue, lease: QueueLease, first: int) -> None:
        """Read contents from `first` on, unless a read for this queue is under way."""
        if not queue.chunks.reading:
            run(self._read_ahead(queue, lease, first))

    async def _read_ahead(self, queue: Queue, lease: QueueLease, first: int) -> None:
        resource, share = queue.resource, lease.terms.principal
        try:
            chunks = await self._aheads.read(queue.chunks, resource, first, queue.end, share)
        except StorageError as error:
            if queue.consumers.get(lease.terms.token) is lease:
                self.unread(lease, resource.name, first, first + 1, error)
            chunks = ()
        if queue.consumers:
            self._aheads.add(queue.chunks, chunks, first)
            self.wake(queue)

    async def _claim(self, queue: Queue, lease: QueueLease, chunk: Chunk, claimed: Run) -> None:
        """Settle contents durably before they are sent to a consumer without confirmation: at most once."""
        lease.claiming = True
        is_saved = True
        try:
            await self._queues.save(queue)
        except StorageError:
            is_saved = False
        lease.claiming = False
        consumes = queue in lease.summoned.values()
        if consumes and is_saved:
            self._deliver(queue, lease, chunk, claimed)
            self._sent_now[lease] = None
            return
        if consumes:
            self._pauses.pause(lease)
        else:
            self._wake_all(lease)  # its other queues had to wait
        queue.state.release(range(claimed.first, claimed.last + 1), left=False)
        self._changed(queue)

    def _deliver(self, queue: Queue, lease: QueueLease, chunk: Chunk, handed: Run) -> None:
        assert lease.flow is not None
        number = lease.delivered + 1
        size = _share(chunk)
        for sequence in range(handed.first, handed.last + 1):
            lease.delivered += 1
            lease.unsettled.add(Sent(lease.delivered, lease.delivered, size, (queue, sequence)))
        self.counts["delivered"] += handed.last - handed.first + 1
        self._outbox.actions.append(
            actions.Deliver(
                lease.flow.peer,
                lease.terms.token,
                lease.terms.principal,
                queue.resource.name,
                chunk,
                handed.first,
                handed.last,
                packed=False,
                number=number,
                again=handed.again,
            )
        )


def _share(chunk: Chunk) -> int:
    """The octets of one content of a chunk, on average. Not 0 for empty contents: a pack has the offset of each."""
    return chunk.ref.size // chunk.ref.count


def _positions(settled: Iterable[Sent[QueueEntry]]) -> dict[Queue, list[int]]:
    """Contents by queue, in the order of their delivery."""
    by_queue: dict[Queue, list[int]] = {}
    for sent in settled:
        queue, sequence = sent.item
        by_queue.setdefault(queue, []).append(sequence)
    return by_queue

"""Moves dead letters: contents that a queue no longer delivers are appended to another resource, once each.

PROTOCOL.md 6.3. Three steps, each of them durable, prevent duplicates. First the record of the queue gets the
number of the dead letter. Then the content is appended under this number; a log has the last number of each of its
writers. Then the content is settled in the queue. After a crash between two steps the number shows the missing
ones.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mtl import limits
from mtl.broker.leases.lease import LeaseTerms
from mtl.broker.queues import limits as queue_limits
from mtl.broker.queues.queue import Queue
from mtl.broker.queues.queue_state import Letter
from mtl.broker.queues.queues import Queues
from mtl.broker.reading.ahead import Ahead
from mtl.broker.reading.reads import Reads
from mtl.broker.reading.stored import stored_pack
from mtl.broker.steps import run
from mtl.broker.writing.free_space import FreeSpace
from mtl.broker.writing.intake import AcceptedContents, InboundBudget, Intake
from mtl.broker.writing.intakes import Intakes
from mtl.broker.writing.opening import LogOpening
from mtl.broker.writing.resources import Resources
from mtl.broker.writing.writers import WriterLease
from mtl.errors import Refused, StorageError
from mtl.profiles import QUEUE
from mtl.storage.api import Chunk, Contents
from mtl.wire import control
from mtl.wire.fields import Value, decode_table, encode_table, join_tables
from mtl.wire.packs import unpack

log = logging.getLogger("mtl.broker")

PREFIX = "dead-letter-"
"""Prefix of the properties with the origin and the reason of a dead letter. They replace the properties of an
earlier dead letter."""


class DeadLetters:
    """Moves the dead letters of all queues."""

    def __init__(
        self,
        opening: LogOpening,
        resources: Resources,
        queues: Queues,
        inbound: InboundBudget,
        free_space: FreeSpace,
        intakes: Intakes,
        reads: Reads,
    ) -> None:
        self._opening = opening
        self._resources = resources
        self._queues = queues
        self._inbound = inbound
        self._free_space = free_space
        self._intakes = intakes
        self._reads = reads
        self._chunks: dict[Queue, Ahead] = {}
        """For each queue with dead letters, the chunk that was read last."""
        self._leases: dict[Queue, WriterLease] = {}
        self._reported: dict[Queue, str] = {}

    def move_all(self) -> None:
        """Handle every queue with dead letters: settle those that were appended, append the others."""
        queues = self._queues.burying()
        self._leases = {q: lease for q, lease in self._leases.items() if q in queues}
        self._reported = {q: why for q, why in self._reported.items() if q in queues}
        self._chunks = {q: chunks for q, chunks in self._chunks.items() if q in queues}
        for queue in queues:
            self._move(queue)

    def _move(self, queue: Queue) -> None:
        try:
            self._move_letters(queue)
            if queue not in self._chunks or not self._chunks[queue].reading:
                self._reported.pop(queue, None)
        except (Refused, StorageError) as e:
            self._trouble(queue, str(e))

    def _move_letters(self, queue: Queue) -> None:
        vhost = queue.resource.record.vhost
        target = self._resources.find(vhost, queue.dead_letter)
        if target is None:
            request = control.ResourceCreate(resource=queue.dead_letter, exist_ok=True)
            owner = queue.resource.record.owner
            run(self._create(queue, vhost, request, owner))
            return
        if any([self._opening.request(queue.resource.intake), self._opening.request(target.intake)]):
            return
        target.writable()
        intake = target.intake
        arrived = intake.numbers.durable(queue.id)
        accepted = intake.numbers.accepted(queue.id)
        for sequence, letter in list(queue.state.letters.items()):
            if letter.number <= arrived:
                queue.state.letter_stored(sequence)
                self._queues.touch(queue)
        ready = [x for x in queue.state.letters.items() if accepted < x[1].number <= queue.buried]
        for sequence, letter in ready[: queue_limits.QUEUE_BURY]:
            if self._inbound.full or self._free_space.is_low:
                return
            if sequence < queue.resource.earliest:
                continue  # retention has just removed it
            chunk = self._chunk(queue, sequence)
            if chunk is None:
                return
            self._append(queue, intake, chunk, sequence, letter)

    def _chunk(self, queue: Queue, sequence: int) -> Chunk | None:
        """The chunk with a content. None if it is not in memory; a read is then under way."""
        chunks = self._chunks.setdefault(queue, Ahead())
        chunk = chunks.find(sequence) or queue.resource.readable().tail(sequence)
        if chunk is None and not chunks.reading:
            chunks.reading = True
            run(self._read(queue, chunks, sequence))
        return chunk

    async def _read(self, queue: Queue, chunks: Ahead, sequence: int) -> None:
        error: StorageError | None = None
        read: Sequence[Chunk] = ()
        try:
            read = await self._reads.read(queue.resource, Contents(sequence, sequence + 1, octets=0, most=1))
        except StorageError as e:
            error = e
        chunks.reading = False
        if self._chunks.get(queue) is not chunks:
            return
        if error is not None:
            queue.resource.add_unread(sequence, sequence + 1, error)
            self._trouble(queue, str(error))
        elif read:
            chunks.append(read, sequence)
            self._move(queue)

    def _append(self, queue: Queue, intake: Intake, chunk: Chunk, sequence: int, letter: Letter) -> None:
        try:
            pack = stored_pack(chunk.ref, chunk.body)
        except StorageError as e:
            queue.resource.add_unread(chunk.ref.base, chunk.ref.end, e)
            raise
        properties, content = next(unpack(pack.slice(sequence - chunk.ref.base)))
        table = _labelled(properties, queue, sequence, letter)
        intake.add(AcceptedContents(self._lease(queue), letter.number, 1, (bytes(content),), table))
        self._intakes.wait(intake)

    def _lease(self, queue: Queue) -> WriterLease:
        """The writer of a queue's dead letters: a named writer of its own, without a data flow."""
        lease = self._leases.get(queue)
        if lease is None:
            terms = LeaseTerms(
                "", "", "", queue.resource.record.vhost, QUEUE, (), "full", 0.0, (), lambda _: True
            )
            lease = WriterLease(terms, queue.id, queue.dead_letter, lambda _: None, packed=False)
            self._leases[queue] = lease
        return lease

    async def _create(self, queue: Queue, vhost: str, request: control.ResourceCreate, owner: str) -> None:
        try:
            await self._resources.create(vhost, request, owner=owner)
        except (Refused, StorageError) as e:
            self._trouble(queue, str(e))

    def _trouble(self, queue: Queue, why: str) -> None:
        """Log an error once: the move is tried again ten times a second."""
        if self._reported.get(queue) != why:
            self._reported[queue] = why
            log.error("queue %r of %r, dead letters: %s", queue.name, queue.resource.name, why)


def _labelled(properties: bytes, queue: Queue, sequence: int, letter: Letter) -> bytes:
    """A dead letter's properties: those of the content and its origin, or only its origin if both are too large for
    a field table.
    """
    origin: dict[str, Value] = {
        f"{PREFIX}resource": queue.resource.name,
        f"{PREFIX}incarnation": queue.resource.record.incarnation,
        f"{PREFIX}sequence": sequence,
        f"{PREFIX}queue": queue.name,
        f"{PREFIX}reason": letter.reason,
        f"{PREFIX}deliveries": letter.deliveries,
    }
    if PREFIX.encode() in properties:
        own = decode_table(properties)
        properties = encode_table({k: v for k, v in own.items() if not k.startswith(PREFIX)})
    table = join_tables(properties, encode_table(origin))
    return table if len(table) <= limits.MAX_TABLE else encode_table(origin)

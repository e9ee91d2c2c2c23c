"""Queues: what their records say, when they are written, and which there are.

PROTOCOL.md 6. A queue is made by the first consumer that asks for it, and lives until it or its resource is deleted.
What was settled is written lazily, many contents at a time: losing the last writes means that those contents are
delivered again, with a mark. For that mark `ahead` is written before: how far contents may have been delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mtl import limits
from mtl.broker.outbox import Outbox, Result, refusal
from mtl.broker.queue_state import At, Letter, QueueState
from mtl.broker.records import LetterEntry, QueueRecord
from mtl.broker.resources import Resource, Resources
from mtl.broker.settled import Settled
from mtl.errors import Refused, StorageError
from mtl.wire import control as w

if TYPE_CHECKING:
    from mtl.broker.consumers import QueueLease

_ID_MASK = (1 << 63) - 1


class Queue:
    """One queue of a resource at work: the state of its contents, and who consumes.

    `ahead`, `low` and `buried` are what a crash would leave: nothing new is delivered at or above `ahead`, retention
    may rely on `low`, and dead letters up to the number `buried` may be appended.
    """

    def __init__(self, resource: Resource, name: str, number: int, state: QueueState) -> None:
        self.resource = resource
        self.name = name
        self.id = number
        self.state = state
        self.consumers: dict[str, QueueLease] = {}
        self.ahead = 0
        self.low = state.settled.low
        self.buried = 0
        self.saving_ahead = 0

    @property
    def there(self) -> bool:
        """Whether it was not deleted meanwhile."""
        return self.resource.queues.get(self.name) is self

    @property
    def dead_letter(self) -> str:
        """The resource that its dead letters go to."""
        return self.resource.dead_letter

    @property
    def end(self) -> int:
        """The end (exclusive) of what may be delivered now."""
        return min(self.resource.end, self.ahead)

    def record(self, ahead: int) -> QueueRecord:
        """What is to be written."""
        state = self.state
        settled = state.claimed()
        return QueueRecord(
            self.resource.record.vhost,
            self.resource.name,
            self.name,
            self.resource.record.incarnation,
            self.id,
            settled.low,
            max(ahead, state.next, state.doubtful),
            list(settled),
            sorted(state.deliveries().items()),
            [LetterEntry(s, *letter) for s, letter in state.letters.items()],
            state.buried,
        )

    def describe(self) -> w.QueueInfo:
        """What Queue.Describe tells."""
        state, end = self.state, self.resource.end
        unsettled = state.unsettled(end)
        delivered, delayed, dead = (state.count(x) for x in (At.DELIVERED, At.DELAYED, At.DEAD))
        return w.QueueInfo(
            group=self.name,
            resource=self.resource.name,
            incarnation=self.resource.record.incarnation,
            position=state.settled.low,
            next=end,
            unsettled=unsettled,
            ready=max(0, unsettled - delivered - delayed - dead - state.count(At.CLAIMED)),
            delivered=delivered,
            delayed=delayed,
            dead=state.buried,
            consumers=len(self.consumers),
            dead_letter=self.dead_letter,
            max_deliveries=state.max_deliveries,
        )


class Queues:
    """Every queue. `ready` is told that a queue may deliver more than before."""

    def __init__(
        self,
        outbox: Outbox,
        random: Callable[[int], bytes],
        resources: Resources,
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._resources = resources
        self._queues: dict[Queue, None] = {}
        self._dirty: dict[Queue, None] = {}
        self._burying: dict[Queue, None] = {}
        self._ahead = limits.QUEUE_AHEAD
        self.ready: Callable[[Queue], None] = lambda _: None

    # --- finding and making ---------------------------------------------------------------------------------

    def restore(self, records: Iterable[QueueRecord]) -> None:
        """The queues of before. Those of another incarnation of their resource are over."""
        over: list[QueueRecord] = []
        for record in records:
            resource = self._resources.find(record.vhost, record.resource)
            if resource is None or resource.record.incarnation != record.incarnation:
                over.append(record)
                continue
            state = QueueState(
                Settled(record.low, record.settled),
                max_deliveries=resource.max_deliveries,
                doubtful=record.ahead,
                deliveries=dict(record.deliveries),
                letters={x.sequence: Letter(x.number, x.reason, x.deliveries) for x in record.letters},
                buried=record.buried,
            )
            queue = self._keep(Queue(resource, record.queue, record.id, state))
            queue.ahead, queue.buried = record.ahead, record.buried
            if state.letters:
                self._burying[queue] = None
        if over:
            self._outbox.save((), over, lambda _: None)  # should it fail, the next start finds them again

    def open(self, resource: Resource, name: str, start: int) -> Queue:
        """The queue of this name, made to begin at `start` if need be; nothing is delivered before that is durable.

        Raises `Refused` 503 for too many.
        """
        found = resource.queues.get(name)
        if found is not None:
            return found
        if len(self._queues) >= limits.MAX_QUEUES:
            raise Refused(503, w.OVERLOADED, f"there are {limits.MAX_QUEUES} queues, which is the limit")
        number = int.from_bytes(self._random(8), "big") & _ID_MASK or 1
        state = QueueState(Settled(start), max_deliveries=resource.max_deliveries)
        return self._keep(Queue(resource, name, number, state))

    def _keep(self, queue: Queue) -> Queue:
        self._queues[queue] = None
        queue.resource.queues[queue.name] = queue
        return queue

    # --- writing --------------------------------------------------------------------------------------------

    def touch(self, queue: Queue) -> None:
        """Something was settled, or came back: it is written with the next `flush`."""
        self._dirty[queue] = None
        if queue.state.letters:
            self._burying[queue] = None

    def flush(self) -> None:
        """Write what changed, in one transaction."""
        dirty, self._dirty = self._dirty, {}
        queues = [q for q in dirty if q.there]
        if queues:
            self._write(queues, lambda _: None)

    def save(self, queue: Queue, then: Callable[[Refused | None], None]) -> None:
        """Write one queue as it is now."""
        self._dirty.pop(queue, None)
        self._write([queue], then)

    def go_ahead(self, queue: Queue) -> None:
        """More is to be delivered than the record allows for; `ready` is told when it does."""
        if self._ahead and queue.saving_ahead <= queue.ahead:
            self.save(queue, lambda _: None)

    def close(self) -> None:
        """Write what changed and how far contents were delivered indeed; from now on nothing new is."""
        self._ahead = 0
        for queue in self._queues:
            if queue.ahead > queue.state.next:
                queue.ahead = queue.state.next
                self.touch(queue)
        self.flush()

    def burying(self) -> Mapping[Queue, None]:
        """Those with dead letters under way."""
        self._burying = {q: None for q in self._burying if q.there and q.state.letters}
        return self._burying

    @property
    def any(self) -> bool:
        """Whether there is a queue."""
        return bool(self._queues)

    @property
    def dirty(self) -> bool:
        """Whether something is to be written."""
        return bool(self._dirty)

    def _write(self, queues: Sequence[Queue], then: Callable[[Refused | None], None]) -> None:
        records = [q.record(q.state.next + self._ahead if self._ahead else 0) for q in queues]
        for queue, record in zip(queues, records, strict=True):
            queue.saving_ahead = record.ahead

        def saved(result: Result) -> None:
            for queue, record in zip(queues, records, strict=True):
                if isinstance(result, StorageError):
                    queue.saving_ahead = queue.ahead
                    self.touch(queue)
                else:
                    queue.ahead = record.ahead if self._ahead else min(queue.ahead, record.ahead)
                    queue.low, queue.buried = record.low, record.buried
                    self.ready(queue)
            then(refusal(result))

        self._outbox.save(records, (), saved)

    # --- the end --------------------------------------------------------------------------------------------

    def delete(self, queues: Sequence[Queue], then: Callable[[Refused | None], None]) -> None:
        """Forget queues, durably. What their consumers have in hand is theirs; they are sent nothing more."""
        if not queues:
            then(None)
            return
        for queue in queues:
            self._let_go(queue)

        def saved(result: Result) -> None:
            if isinstance(result, StorageError):
                for queue in queues:
                    self._keep(queue)
            then(refusal(result))

        self._outbox.save((), [q.record(0) for q in queues], saved)

    def _let_go(self, queue: Queue) -> None:
        for lease in queue.consumers.values():
            lease.summoned.pop(queue.resource.name, None)
        queue.consumers.clear()
        self._dirty.pop(queue, None)
        self._queues.pop(queue, None)
        queue.resource.queues.pop(queue.name, None)

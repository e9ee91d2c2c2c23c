"""One queue of a resource, and the leases that consume from it.

PROTOCOL.md 6. `Queues` creates and writes queues, `Consumers` delivers their contents.
"""

from __future__ import annotations

import logging

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.leases.lease import Flow, Lease, LeaseTerms
from mtl.broker.queues.queue_state import At, Letter, QueueState
from mtl.broker.queues.settled import Settled
from mtl.broker.reading.ahead import Ahead
from mtl.broker.writing.resource import Resource
from mtl.protocol.settlement import Unsettled
from mtl.storage.records import LetterEntry, QueueRecord
from mtl.wire import control

log = logging.getLogger("mtl.broker")

QueueEntry = tuple["Queue", int]
"""A content: its queue and its position in the resource's log."""


class Queue:
    """One queue of a resource: the state of its contents, its consumers, and the chunks that were read for them.

    `owner` is the user that created it, whose quotas count it. `ahead`, `low` and `buried` have the values on the disk.
    No content at or above `ahead` is delivered. Retention may rely on `low`. Dead letters up to the number `buried` may
    be appended.
    """

    def __init__(self, resource: Resource, name: str, number: int, state: QueueState, owner: str) -> None:
        self.resource = resource
        self.owner = owner
        self.name = name
        self.id = number
        self.state = state
        self.consumers: dict[str, QueueLease] = {}
        self.chunks = Ahead()
        self.ahead = 0
        self.low = state.settled.low
        self.buried = 0
        self.saving_ahead = 0
        self.deleted = False
        """The queue was deleted."""
        self.deleting = False
        """The queue is about to be deleted: it has no consumers, and is not written any more."""
        self.restored: QueueRecord | None = None
        """The record of the queue until the log is open. The log shows which part of the record is valid
        (`as_of`)."""

    @property
    def exists(self) -> bool:
        """Whether the queue exists and its deletion has not begun."""
        return not self.deleted and not self.deleting

    @property
    def dead_letter(self) -> str:
        """The resource for its dead letters."""
        return self.resource.dead_letter

    @property
    def end(self) -> int:
        """The end (exclusive) of the contents that may be delivered now."""
        return min(self.resource.end, self.ahead)

    def record(self, ahead: int) -> QueueRecord:
        """The record to be written while the log is open; otherwise only its key is valid."""
        state, log = self.state, self.resource.log
        end = log.next if log is not None else 0
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
            end,
            self.resource.epoch_of(end),
            self.owner,
        )

    def describe(self) -> control.QueueInfo:
        """The description for Queue.Describe."""
        state, log = self.state, self.resource.log
        unsettled = state.unsettled(log.next) if log is not None else None
        delivered, delayed, dead = (state.count(x) for x in (At.DELIVERED, At.DELAYED, At.DEAD))
        return control.QueueInfo(
            group=self.name,
            resource=self.resource.name,
            incarnation=self.resource.record.incarnation,
            position=state.settled.low,
            next=log.next if log is not None else None,
            unsettled=unsettled,
            ready=None
            if unsettled is None
            else max(0, unsettled - delivered - delayed - dead - state.count(At.CLAIMED)),
            delivered=delivered,
            delayed=delayed,
            dead=state.buried,
            consumers=len(self.consumers),
            dead_letter=self.dead_letter,
            max_deliveries=state.max_deliveries,
        )


def as_of(record: QueueRecord, resource: Resource) -> QueueRecord:
    """The part of a record that is valid for the present log. If the log is another copy or has lost its end
    (PROTOCOL.md 5.1.1), it has other contents from some sequence on. They are delivered as new ones.
    """
    reached = record.end
    diverges_at = resource.diverges_at(reached, record.log_epoch)
    if diverges_at is None:
        return record
    log.warning(
        "resource %r has other contents than the queue %r settled, from %d on: its data is another copy, or a crash "
        "lost contents. The settlements from there up to %d are dropped",
        resource.name,
        record.queue,
        diverges_at,
        reached - 1,
    )
    return msgspec.structs.replace(
        record,
        low=min(record.low, diverges_at),
        ahead=min(record.ahead, diverges_at),
        settled=[(first, min(end, diverges_at)) for first, end in record.settled if first < diverges_at],
        deliveries=[delivery for delivery in record.deliveries if delivery[0] < diverges_at],
        letters=[letter for letter in record.letters if letter.sequence < diverges_at],
    )


def state_of(record: QueueRecord, resource: Resource) -> QueueState:
    return QueueState(
        Settled(record.low, record.settled),
        max_deliveries=resource.max_deliveries,
        doubtful=record.ahead,
        deliveries=dict(record.deliveries),
        letters={x.sequence: Letter(x.number, x.reason, x.deliveries) for x in record.letters},
        buried=record.buried,
    )


class QueueLease(Lease):
    """One Connection.Reader of a profile with competing readers: a consumer of the queue `queue` of its resources.

    `start` is the position at which the queue begins if this is its first consumer. `delivered` is the last
    delivery number.
    """

    def __init__(self, terms: LeaseTerms, queue: str, start: str | int, window: tuple[int, int]) -> None:
        super().__init__(terms)
        self.queue = queue
        self.start = start
        self.window_contents, self.window_octets = window
        self.full = terms.confirm == "full"
        self.closing = False
        """The consumer ends the lease: its unsettled contents do not count as failed deliveries."""
        self.claiming = False
        """Without confirmation: contents are being settled, and will then be sent."""
        self.summoned: dict[str, Queue] = {}
        self.unsettled: Unsettled[QueueEntry] = Unsettled()
        self.delivered = 0
        self.refused = 0
        """Octets of the last content, if its peer's queue had no room for it; nothing is sent until there is room."""

    def rebound(self, flow: Flow) -> None:
        """A new data flow. The contents of the former flow have returned to their queues."""
        self.flow = flow

    def room(self, size: int) -> int:
        """The number of contents of `size` octets that may be sent now; at least one if no content is
        outstanding.
        """
        if not self.full:
            return 0 if self.claiming or self.unsettled else broker_limits.TURN_CONTENTS
        held = self.unsettled
        octets = (self.window_octets - held.octets) // max(1, size)
        room = min(self.window_contents - held.contents, octets)
        return max(room, 0 if held else 1)

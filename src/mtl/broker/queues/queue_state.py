"""The state of each content of a resource in one queue. Pure: no log, no consumers, time is an argument.

Every content is in exactly one state. `MOVES` has all transitions:

    READY ──deliver──► DELIVERED ──confirm──────────────────────────► SETTLED
      ▲                   │ │ │ └──reject, exhaust──► DEAD ──kept────────▲
      │◄──lost, release───┘ │                                            │
      │◄──due── DELAYED ◄───┘ recycle                                    │
      └─claim──► CLAIMED ──sent (confirm "none")─────────────────────────┘
          ◄──release──┘

    retention removes a content in any state: it is SETTLED then

A content that was never delivered is READY and has no record. A settled one is part of a range (`settled`). A
content has its own record (`Held`) only while it is with a consumer, after it came back, or on its way to the dead
letters.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from mtl.broker.queues import limits as queue_limits
from mtl.broker.queues.settled import Settled
from mtl.protocol.backoff import pause


class At(Enum):
    """The state of a content in a queue."""

    READY = "ready"
    CLAIMED = "claimed"
    DELIVERED = "delivered"
    DELAYED = "delayed"
    DEAD = "dead"
    SETTLED = "settled"


class QueueEvent(Enum):
    """An event of a content."""

    DELIVER = "deliver"  # given to a consumer that confirms
    CLAIM = "claim"  # reserved for a consumer that does not confirm: recorded as settled before it is sent
    SENT = "sent"  # a claimed content was sent
    RELEASE = "release"  # it was not sent, or its consumer's lease was closed
    CONFIRM = "confirm"
    REJECT = "reject"  # without recycle
    RECYCLE = "recycle"  # rejected with recycle, and may be delivered again
    LOST = "lost"  # its consumer has ended, and it may be delivered again
    EXHAUST = "exhaust"  # its last permitted delivery failed
    DUE = "due"  # its backoff is over
    KEPT = "kept"  # its dead letter is durable
    GONE = "gone"  # retention removed it


_GONE: Final = {QueueEvent.GONE: At.SETTLED}

MOVES: Final[dict[At, dict[QueueEvent, At]]] = {
    At.READY: {QueueEvent.DELIVER: At.DELIVERED, QueueEvent.CLAIM: At.CLAIMED, **_GONE},
    At.CLAIMED: {QueueEvent.SENT: At.SETTLED, QueueEvent.RELEASE: At.READY, **_GONE},
    At.DELIVERED: {
        QueueEvent.CONFIRM: At.SETTLED,
        QueueEvent.REJECT: At.DEAD,
        QueueEvent.RECYCLE: At.DELAYED,
        QueueEvent.LOST: At.READY,
        QueueEvent.RELEASE: At.READY,
        QueueEvent.EXHAUST: At.DEAD,
        **_GONE,
    },
    At.DELAYED: {QueueEvent.DUE: At.READY, **_GONE},
    At.DEAD: {QueueEvent.KEPT: At.SETTLED, **_GONE},
    At.SETTLED: {},
}
"""An event without a transition has no effect: retention has settled the content before."""

_COUNTED: Final = frozenset({QueueEvent.REJECT, QueueEvent.RECYCLE, QueueEvent.LOST, QueueEvent.EXHAUST})
"""Events that count a delivery towards the limit."""


class Letter(NamedTuple):
    """A content on its way to the dead letters: its number there, the reason, and its number of deliveries."""

    number: int
    reason: str
    deliveries: int


class Run(NamedTuple):
    """Contents first..last, to be sent at once; `again`: they may have been delivered before."""

    first: int
    last: int
    again: bool


class Held:
    """The record of one content. `avoid` is the consumer that sent the content back."""

    __slots__ = ("again", "at", "avoid", "deliveries")

    def __init__(self, deliveries: int = 0, *, again: bool = False) -> None:
        self.at = At.READY
        self.deliveries = deliveries
        self.again = again
        self.avoid = ""


class QueueState:
    """The states of all contents in one queue.

    `next` is the lowest content that this run of the broker has not delivered. Contents below `doubtful` may have
    been delivered by an earlier run. `deliveries` counts the ended deliveries of unsettled contents. `letters` has
    the contents on their way to the dead letters. `buried` is the number of dead letters so far; they are numbered
    from 1.
    """

    def __init__(
        self,
        settled: Settled,
        *,
        max_deliveries: int = queue_limits.QUEUE_DELIVERIES,
        doubtful: int = 0,
        deliveries: dict[int, int] | None = None,
        letters: dict[int, Letter] | None = None,
        buried: int = 0,
    ) -> None:
        self.settled = settled
        self.next = settled.low
        self.max_deliveries = max_deliveries
        self.doubtful = doubtful
        self.letters: dict[int, Letter] = dict(letters or {})
        self.buried = buried
        self._earlier = dict(deliveries or {})
        self._held: dict[int, Held] = {}
        self._counts: Counter[At] = Counter()
        self._ready: list[int] = []
        self._delays: list[tuple[float, int]] = []
        for sequence, letter in self.letters.items():
            held = self._held[sequence] = Held(letter.deliveries, again=True)
            held.at = At.DEAD
            self._counts[At.DEAD] += 1

    # --- counts ---------------------------------------------------------------------------------------------

    def count(self, at: At) -> int:
        """The number of contents with a record in this state."""
        return self._counts[at]

    @property
    def held(self) -> int:
        """The number of contents with a record."""
        return len(self._held)

    def waiting(self, end: int) -> int:
        """The number of contents before `end` that could be delivered, as an upper bound: some of them may be
        settled already.
        """
        return len(self._ready) + max(0, end - self.next)

    def unsettled(self, end: int) -> int:
        """The number of contents before `end` that are not settled."""
        return max(0, end - self.settled.low - self.settled.above)

    @property
    def open(self) -> bool:
        """Whether new contents may be delivered: the number of records is bounded (`limits`).

        At the bound on ranges, contents between the ranges may still be delivered: after a restart no consumer has
        them.
        """
        returned = self._counts[At.READY] + self._counts[At.DELAYED]
        return (
            len(self.settled) < queue_limits.QUEUE_RANGES
            and returned < queue_limits.QUEUE_RETURNED
            and len(self._held) - returned < queue_limits.QUEUE_OUTSTANDING
        )

    @property
    def next_due(self) -> float | None:
        """When the first backoff ends; None without a backoff."""
        return self._delays[0][0] if self._delays else None

    def claimed(self) -> Settled:
        """The settled contents, including claimed ones, for the queue's record."""
        settled = self.settled.copy()
        if self._counts[At.CLAIMED]:
            for sequence, held in self._held.items():
                if held.at is At.CLAIMED:
                    settled.add(sequence, sequence + 1)
        return settled

    def deliveries(self) -> dict[int, int]:
        """The number of deliveries of each content that was delivered and is not settled, claimed or a dead letter."""
        over = (At.CLAIMED, At.DEAD)
        held = {s: h.deliveries for s, h in self._held.items() if h.deliveries and h.at not in over}
        return self._earlier | held

    # --- out ------------------------------------------------------------------------------------------------

    def upcoming(self) -> int:
        """The lowest content that was not delivered and is deliverable. Settled contents and dead letters are
        skipped.
        """
        self.next = self._skip(self.next)
        return self.next

    def peek(self, end: int, consumer: str, others_take: Callable[[int], bool]) -> int | None:
        """The next content for a consumer: the lowest one that came back, else a new one before `end`.

        A consumer gets a content that it sent back only if no other consumer has room for it.
        """
        for sequence in self._ready[: queue_limits.QUEUE_LOOK]:
            if self._held[sequence].avoid != consumer or not others_take(sequence):
                return sequence
        self.upcoming()
        if not self.open and self.next > self.settled.low:
            return None  # the oldest content may always be delivered: all others may depend on it
        return self.next if self.next < end else None

    def _skip(self, sequence: int) -> int:
        while True:
            sequence = self.settled.after(sequence)
            if sequence not in self._held:
                return sequence
            sequence += 1

    def hand_out(self, first: int, last: int, event: QueueEvent) -> Run:
        """Deliver `first`, which `peek` returned, and the contents after it with the same history, up to `last`."""
        if first in self._held:
            return self._hand_out_returned(first, last, event)
        again = first < self.doubtful
        sequence = first
        while sequence <= last and self._untouched(sequence) and (sequence < self.doubtful) == again:
            held = self._held[sequence] = Held(self._earlier.pop(sequence, 0), again=again)
            self._counts[At.READY] += 1
            self._move(sequence, held, event)
            sequence += 1
        self.next = sequence
        return Run(first, sequence - 1, again)

    def _untouched(self, sequence: int) -> bool:
        return sequence not in self._held and sequence not in self.settled

    def _hand_out_returned(self, first: int, last: int, event: QueueEvent) -> Run:
        begin = at = bisect_left(self._ready, first)
        run_start = self._held[first]
        sequence = first
        while at < len(self._ready) and self._ready[at] == sequence <= last:
            held = self._held[sequence]
            if (held.again, held.avoid) != (run_start.again, run_start.avoid):
                break
            self._move(sequence, held, event)
            at, sequence = at + 1, sequence + 1
        del self._ready[begin:at]
        return Run(first, sequence - 1, run_start.again)

    # --- back -----------------------------------------------------------------------------------------------

    def confirm(self, sequences: Iterable[int]) -> None:
        """A consumer has processed these contents."""
        for sequence in sequences:
            self._happen(sequence, QueueEvent.CONFIRM)

    def sent(self, sequences: Iterable[int]) -> None:
        """These contents were sent to a consumer that does not confirm."""
        for sequence in sequences:
            self._happen(sequence, QueueEvent.SENT)

    def reject(self, sequences: Iterable[int], words: str = "") -> None:
        """These contents were rejected without recycle: they become dead letters."""
        for sequence in sequences:
            if self._happen(sequence, QueueEvent.REJECT):
                self._bury(sequence, f"rejected: {words}" if words else "rejected")

    def recycle(self, sequences: Iterable[int], consumer: str, now: float) -> None:
        """These contents were rejected with recycle: they are delivered again after a pause that doubles, to
        another consumer if possible.
        """
        for sequence in sequences:
            held = self._held.get(sequence)
            if held is None or self._exhausted(sequence, held):
                continue
            if self._happen(sequence, QueueEvent.RECYCLE):
                held.avoid = consumer
                heapq.heappush(self._delays, (now + backoff(held.deliveries), sequence))

    def return_lost(self, sequences: Iterable[int]) -> None:
        """The consumer of these contents has ended: other consumers can get them at once."""
        self._return([s for s in sequences if not self._exhausted(s, self._held.get(s))], QueueEvent.LOST)

    def release(self, sequences: Sequence[int], *, left: bool) -> None:
        """These contents are returned without a failure. `left`: the consumer may have seen them."""
        for sequence in sequences:
            held = self._held.get(sequence)
            if held is not None and left:
                held.again = True
        self._return(sequences, QueueEvent.RELEASE)

    def end_backoffs(self, now: float) -> bool:
        """Make the contents ready whose backoff has ended. Returns whether there were any."""
        over: list[int] = []
        while self._delays and self._delays[0][0] <= now:
            over.append(heapq.heappop(self._delays)[1])
        return self._return(over, QueueEvent.DUE)

    def letter_stored(self, sequence: int) -> None:
        """The dead letter of a content is durable."""
        if self._happen(sequence, QueueEvent.KEPT):
            self.letters.pop(sequence, None)

    def trim(self, earliest: int) -> None:
        """Retention removed all contents below `earliest`."""
        if earliest <= self.settled.low:
            return
        for sequence in [s for s in self._held if s < earliest]:
            self._happen(sequence, QueueEvent.GONE)
            self.letters.pop(sequence, None)
        self._ready = self._ready[bisect_left(self._ready, earliest) :]
        self._earlier = {s: n for s, n in self._earlier.items() if s >= earliest}
        self.settled.raise_low(earliest)
        self.next = max(self.next, earliest)

    # --- inside ---------------------------------------------------------------------------------------------

    def _happen(self, sequence: int, event: QueueEvent) -> bool:
        held = self._held.get(sequence)
        return held is not None and self._move(sequence, held, event)

    def _move(self, sequence: int, held: Held, event: QueueEvent) -> bool:
        """Make the transition of `MOVES` for an event. Returns whether there is one."""
        after = MOVES[held.at].get(event)
        if after is None:
            return False
        self._counts[held.at] -= 1
        held.at = after
        if event in _COUNTED:
            held.deliveries += 1
            held.again = True
        if after is At.SETTLED:
            del self._held[sequence]
            self.settled.add(sequence, sequence + 1)
        else:
            self._counts[after] += 1
        return True

    def _exhausted(self, sequence: int, held: Held | None) -> bool:
        """Whether this was the last permitted delivery, so that the content becomes a dead letter."""
        if held is None or held.deliveries + 1 < self.max_deliveries:
            return False
        if self._move(sequence, held, QueueEvent.EXHAUST):
            self._bury(sequence, "deliveries")
        return True

    def _bury(self, sequence: int, reason: str) -> None:
        self.buried += 1
        self.letters[sequence] = Letter(self.buried, reason, self._held[sequence].deliveries)

    def _return(self, sequences: Sequence[int], event: QueueEvent) -> bool:
        """Make contents ready again. Contents that are returned together are inserted together, in order."""
        back = [s for s in sequences if self._happen(s, event)]
        self._ready += back
        self._ready.sort()
        return bool(back)


def backoff(deliveries: int) -> float:
    """The pause in seconds after this number of deliveries."""
    return pause(queue_limits.QUEUE_BACKOFF_S, queue_limits.QUEUE_BACKOFF_TOP_S, deliveries)

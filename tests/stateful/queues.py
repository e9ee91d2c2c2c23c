"""The profile queue in the model (PROTOCOL.md 6): allowed and required deliveries of a queue.

The document does not say which consumer gets which content, so there is no prediction: `Queue.handed_out` checks sent
contents, and `Queue.waiting` gives those that should have been sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

PAUSE_S = 0.1
"""After a Reject with recycle; doubled with each delivery."""

OVERHEAD = 1_000
"""The octets of a stored content besides its body are fewer. Their number is not specified."""


class Handed(NamedTuple):
    """A delivered content: its number on the lease, its position in the resource, its redelivered mark."""

    number: int
    position: int
    again: bool
    body: bytes


@dataclass(eq=False)
class Queue:
    """One queue. Contents that were never delivered begin at `fresh`; returned ones are in `back`, with the consumer
    that returned them with recycle; `delayed` also has the end of the pause.
    """

    stored: list[bytes]
    most: int
    fresh: int = 1
    back: dict[int, Consumer | None] = field(default_factory=dict)
    delayed: dict[int, tuple[float, Consumer]] = field(default_factory=dict)
    dead: list[int] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    ended: Counter[int] = field(default_factory=Counter)
    ever_delivered: set[int] = field(default_factory=set)
    avoided: dict[int, Consumer] = field(default_factory=dict)

    def handed_out(self, given: dict[Consumer, list[Handed]]) -> None:
        """Check the contents sent to consumers after one command. AssertionError for a forbidden delivery."""
        new = sorted(
            delivery.position
            for deliveries in given.values()
            for delivery in deliveries
            if delivery.position >= self.fresh
        )
        assert new == list(range(self.fresh, self.fresh + len(new))), f"not in order, or twice: {new}"
        to_the_same = []
        for consumer, deliveries in given.items():
            self._in_order(consumer, [delivery.position for delivery in deliveries])
            for delivery in deliveries:
                assert delivery.position in self.back or delivery.position >= self.fresh, (
                    f"it was not to be had: {delivery}"
                )
                assert delivery.body == self.stored[delivery.position - 1]
                assert delivery.again is (delivery.position in self.ever_delivered), f"the mark of {delivery}"
                if self.back.pop(delivery.position, None) is consumer:
                    to_the_same.append((consumer, delivery))
                self.ever_delivered.add(delivery.position)
                consumer.record_delivery(delivery)
        self.fresh += len(new)
        for consumer, delivery in to_the_same:
            others = [x for x in self.consumers if x is not consumer]
            assert not any(x.takes(delivery.body) for x in others), f"it has to go to another one: {delivery}"

    def _in_order(self, consumer: Consumer, positions: list[int]) -> None:
        """Returned contents go first, unless this consumer returned them; then positions ascend."""
        first_time = [p for p in positions if p >= self.fresh]
        assert first_time == sorted(first_time)
        if first_time:
            late = positions[positions.index(first_time[0]) :]
            assert all(p >= self.fresh or self.back.get(p) is consumer for p in late), f"came back: {late}"

    def waiting(self) -> bool:
        """Whether the first content waits although a consumer has room for it."""
        first = min(self.back, default=self.fresh)
        return first <= len(self.stored) and any(x.takes(self.stored[first - 1]) for x in self.consumers)

    def wait(self, now: float) -> None:
        """Time has passed: some pauses are over."""
        for position, (until, consumer) in list(self.delayed.items()):
            if until <= now:
                del self.delayed[position]
                self.back[position] = consumer

    # --- results of a delivery ------------------------------------------------------------------------------

    def rejected(self, position: int) -> None:
        self.ended[position] += 1
        self.dead.append(position)

    def recycled(self, position: int, consumer: Consumer, now: float) -> None:
        self.avoided[position] = consumer
        if self._counted(position):
            pause = PAUSE_S * 2.0 ** (self.ended[position] - 1)
            self.delayed[position] = now + pause, consumer

    def lost(self, position: int) -> None:
        """With the consumer's data flow."""
        if self._counted(position):
            self.returned(position)

    def returned(self, position: int) -> None:
        """Returned without a fault of the content: it does not count as a delivery."""
        self.back[position] = self.avoided.get(position)

    def _counted(self, position: int) -> bool:
        """Whether another delivery is allowed after this one; otherwise the content is dead."""
        self.ended[position] += 1
        if self.ended[position] >= self.most:
            self.dead.append(position)
        return self.ended[position] < self.most

    # --- descriptions ---------------------------------------------------------------------------------------

    @property
    def numbers(self) -> dict[str, int]:
        """The answer of Queue.Describe after all dead letters are moved."""
        delivered = [p for consumer in self.consumers for p in consumer.having.values()]
        unsettled = {*self.back, *self.delayed, *delivered, *range(self.fresh, len(self.stored) + 1)}
        return {
            "position": min(unsettled, default=len(self.stored) + 1),
            "next": len(self.stored) + 1,
            "unsettled": len(unsettled),
            "ready": len(unsettled) - len(delivered) - len(self.delayed),
            "delivered": len(delivered),
            "delayed": len(self.delayed),
            "dead": len(self.dead),
            "consumers": sum(consumer.taking for consumer in self.consumers),
        }


@dataclass(eq=False)
class Consumer:
    """A reading lease of the profile: `having` are the positions of delivered contents that it did not settle."""

    resource: str
    full: bool
    window: int
    octets: int
    queue: Queue
    profile: str = "queue"
    next: int = 1
    flow: int | None = None
    summoned: bool = False
    having: dict[int, int] = field(default_factory=dict)
    """By number of the delivery."""

    def __post_init__(self) -> None:
        self.queue.consumers.append(self)

    @property
    def unsettled(self) -> Collection[int]:
        """The numbers that can be settled."""
        return list(self.having)

    @property
    def taking(self) -> bool:
        """Whether the consumer takes part in the queue."""
        return self.flow is not None and self.summoned

    def takes(self, body: bytes) -> bool:
        """Whether the consumer surely has room for this content. One without contents has room for any."""
        if not self.taking or not self.full or not self.having:
            return self.taking
        octets = sum(len(held) + OVERHEAD for held in [*self._bodies, body])
        return len(self.having) < self.window and octets <= self.octets

    @property
    def _bodies(self) -> list[bytes]:
        return [self.queue.stored[position - 1] for position in self.having.values()]

    def record_delivery(self, delivery: Handed) -> None:
        """Record a delivery: with confirm "none" the content is settled, otherwise it is held by the consumer."""
        assert self.taking
        assert delivery.number == self.next, "deliveries are counted by the lease"
        self.next += 1
        if self.full:
            self.having[delivery.number] = delivery.position
            assert len(self.having) <= self.window
            assert len(self.having) == 1 or sum(map(len, self._bodies)) <= self.octets

    def settle(self, sequence: int, *, multiple: bool, how: str, now: float) -> None:
        """Contents that were never sent, or are settled, cannot be settled."""
        if multiple and self.having and sequence <= max(self.having):
            numbers = [n for n in self.having if n <= sequence]
        else:
            numbers = [sequence] if not multiple and sequence in self.having else []
        for position in [self.having.pop(n) for n in numbers]:
            if how == "reject":
                self.queue.rejected(position)
            elif how == "recycle":
                self.queue.recycled(position, self, now)

    def bound(self, flow: int) -> None:
        """Bind to another flow: contents held on the former one are lost, and no resource is summoned."""
        self.flow = flow
        self.summoned = False
        having, self.having = list(self.having.values()), {}
        for position in having:
            self.queue.lost(position)

    def close(self) -> None:
        self.queue.consumers.remove(self)
        for position in self.having.values():
            self.queue.returned(position)

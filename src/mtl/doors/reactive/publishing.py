"""The publishing side of a connection: a stream for each subscription of the peer, and its demand.

    (no stream) ──subscribe──► ASKED ──we accept──► ACTIVE ──cancel, or we complete or fail──► (no stream)
                                 └──cancel: `subscribed` is sent too, so that the Id can be used again───────────┘

A stream that has ended is removed, so later messages for it are ignored, as Reactive Streams requires (RS-45).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mtl.doors.limits import RS_PACKED, RS_PART, RS_STREAMS
from mtl.doors.reactive import codec
from mtl.errors import Malformed
from mtl.wire.fields import Buffer

UNBOUNDED = (1 << 63) - 1
"""The demand that counts as unbounded (RS-48)."""

_LONGEST_ERROR = 1_000
"""Maximum of characters of an error."""


@dataclass(frozen=True, slots=True)
class Demanded:
    """The demand of a stream is above 0 again."""

    subscriber: int


class SendMessage(Protocol):
    """Sends a message of this side."""

    def __call__(self, message: codec.Message, *, fixed: bool = False) -> None:
        """Send a message; `fixed`: it belongs to a stream of fixed element size."""


@dataclass(slots=True, eq=False)
class _PublishedStream:
    """One stream. `size` is the size of its elements, None until the subscription is accepted."""

    demand: int
    size: int | None = None
    parts: int = 0
    """The number of the next element that is split."""

    def add(self, demand: int) -> bool:
        """Add demand (RS-46). Returns whether there was none before."""
        before, self.demand = self.demand, min(self.demand + demand, UNBOUNDED)
        return not before and bool(demand)

    def use(self, count: int) -> None:
        if self.demand < UNBOUNDED:
            self.demand -= count


class Publishing:
    """See the module. Methods have no effect on a stream that has ended: possibly only one side knows its end."""

    def __init__(self, send: SendMessage) -> None:
        self._send = send
        self._streams: dict[int, _PublishedStream] = {}

    # --- messages of the subscriber -------------------------------------------------------------------------

    def received(
        self, message: codec.Subscribe | codec.RequestMore | codec.Cancel
    ) -> codec.Subscribe | Demanded | codec.Cancel | None:
        """Handle a message; returns the event for the publisher. Raises `Malformed` for an Id that is in use."""
        match message:
            case codec.Subscribe():
                return self._handle_subscribe(message)
            case codec.RequestMore(subscriber, demand):
                return self._handle_request(subscriber, demand)
        return self._handle_cancel(message)

    def _handle_subscribe(self, message: codec.Subscribe) -> codec.Subscribe | None:
        if message.subscriber in self._streams:
            raise Malformed(f"Id {message.subscriber} is in use by another subscription of yours")
        stream = self._streams[message.subscriber] = _PublishedStream(0)
        stream.add(message.demand)
        if len(self._streams) > RS_STREAMS:
            self.fail(message.subscriber, f"{RS_STREAMS} subscriptions are the most for one connection")
            return None
        return message

    def _handle_request(self, subscriber: int, demand: int) -> Demanded | codec.Cancel | None:
        stream = self._streams.get(subscriber)
        if stream is None:
            return None
        if not demand:
            self.fail(subscriber, "request: the demand has to be above 0 (Reactive Streams 3.9)")
            return codec.Cancel(subscriber)
        return Demanded(subscriber) if stream.add(demand) else None

    def _handle_cancel(self, message: codec.Cancel) -> codec.Cancel | None:
        stream = self._streams.pop(message.subscriber, None)
        if stream is None:
            return None
        if stream.size is None:
            self._send(codec.Subscribed(message.subscriber))
        return message

    # --- messages to the subscriber -------------------------------------------------------------------------

    def demand(self, subscriber: int) -> int:
        """The number of elements that may be published now."""
        stream = self._streams.get(subscriber)
        return 0 if stream is None or stream.size is None else stream.demand

    def accept(self, subscriber: int, element_size: int = 0) -> None:
        """Begin the stream (RS-20); its elements have `element_size` octets each, 0: any number."""
        stream = self._streams.get(subscriber)
        if stream is not None and stream.size is None:
            stream.size = element_size
            self._send(codec.Subscribed(subscriber, element_size))

    def publish(self, subscriber: int, element: Buffer) -> Iterator[None]:
        """Publish one element, for which there has to be demand; in parts where it is large (RS-34).

        Every step of the iteration sends one message. Between two steps other streams can send.
        """
        stream = self._streams.get(subscriber)
        if stream is None:
            return
        assert stream.size is not None
        assert stream.demand > 0, "published without demand (RS-41)"
        assert not stream.size or stream.size == len(element)
        stream.use(1)
        if len(element) <= RS_PART:
            self._send(codec.OnNext(subscriber, element), fixed=stream.size > 0)
            yield
            return
        number, stream.parts = stream.parts, stream.parts + 1
        for first in range(0, len(element), RS_PART):
            if self._streams.get(subscriber) is not stream:
                return
            data, last = element[first : first + RS_PART], first + RS_PART >= len(element)
            part = codec.OnNextLastPart if last else codec.OnNextPart
            self._send(part(subscriber, number, data))
            yield

    def publish_all(self, subscriber: int, elements: Sequence[bytes]) -> None:
        """Publish elements of at most RS_PART each, within the demand, in order."""
        stream = self._streams.get(subscriber)
        if stream is None:
            return
        assert stream.size is not None
        assert len(elements) <= stream.demand, "published without demand (RS-41)"
        stream.use(len(elements))
        self._send(codec.OnNexts(subscriber, tuple(elements)), fixed=stream.size > 0)

    def publish_packed(self, subscriber: int, elements: Sequence[bytes]) -> None:
        """Publish elements of a stream of fixed size, within its demand, in few messages (RS-31, RS-33)."""
        stream = self._streams.get(subscriber)
        if stream is None:
            return
        assert stream.size
        assert len(elements) <= stream.demand, "published without demand (RS-41)"
        stream.use(len(elements))
        for first in range(0, len(elements), RS_PACKED):
            pack = tuple(elements[first : first + RS_PACKED])
            if len(pack) == 1:
                self._send(codec.OnNext(subscriber, pack[0]), fixed=True)
            else:
                self._send(codec.OnNextPacked(subscriber, pack))

    def complete(self, subscriber: int) -> None:
        """End the stream: all elements were sent."""
        if self._end(subscriber):
            self._send(codec.OnComplete(subscriber))

    def fail(self, subscriber: int, error: str) -> None:
        """End the stream with an error. If it has not begun, `subscribed` is sent first (RS-43)."""
        if self._end(subscriber):
            self._send(codec.OnError(subscriber, error[:_LONGEST_ERROR]))

    def end(self) -> None:
        """End all streams, with the connection."""
        self._streams.clear()

    def _end(self, subscriber: int) -> bool:
        """Remove a stream. Returns whether it was there."""
        if subscriber not in self._streams:
            return False
        self.accept(subscriber)
        del self._streams[subscriber]
        return True

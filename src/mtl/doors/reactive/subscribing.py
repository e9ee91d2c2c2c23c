"""The subscribing side of a connection: a stream for each of its Ids, and its demand.

    (free) ──subscribe──► ASKED ──subscribed──► ACTIVE ──our cancel, onComplete, onError──► (free)
                            └──our cancel──► DROPPED ──subscribed──► (free)

Ids are reused, the lowest first (RS-29). An Id is free only after `subscribed`, so a `subscribed` always belongs to the
last subscription. A message for an Id before its `subscribed` belongs to an older subscription and is dropped, as is
every message for a free Id (RS-30, RS-44).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import Enum

from mtl.doors.limits import RS_ELEMENT, RS_JOINED, RS_STREAMS
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.reactive import codec
from mtl.doors.reactive.publishing import UNBOUNDED, SendMessage
from mtl.errors import Malformed


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of one stream, in order; split elements are reassembled (RS-37)."""

    subscriber: int
    elements: tuple[bytes, ...]


class _StreamState(Enum):
    ASKED = "asked"
    ACTIVE = "active"
    DROPPED = "dropped"


@dataclass(slots=True)
class _Stream:
    due: int
    """Requested elements that have not begun to arrive."""
    state: _StreamState = _StreamState.ASKED
    parts: dict[int, bytearray] = field(default_factory=dict)
    """Element to its parts so far."""


class Subscribing:
    """See the module. Methods for a stream that is over do nothing: its end may be known to one side only."""

    def __init__(self, send: SendMessage) -> None:
        self._send = send
        self._streams: dict[int, _Stream] = {}
        self._free = list(range(RS_STREAMS))  # sorted, so a heap
        self.buffered = 0
        """Octets of elements in parts that are not complete."""

    # --- messages to the publisher --------------------------------------------------------------------------

    def subscribe(self, publisher: str, demand: int = 0) -> int:
        """Request a stream; returns its Id. Raises `Refused` for more than RS_STREAMS."""
        if not self._free:
            raise DoorRefusal(503, "too-many", f"{RS_STREAMS} subscriptions are the most for one connection")
        subscriber = self._free[0]
        self._send(codec.Subscribe(publisher, subscriber, demand))
        heapq.heappop(self._free)
        self._streams[subscriber] = _Stream(demand)
        return subscriber

    def request(self, subscriber: int, demand: int) -> None:
        """Request `demand` more elements; at least 1."""
        stream = self._streams.get(subscriber)
        if stream is None or stream.state is _StreamState.DROPPED:
            return
        assert demand > 0
        stream.due = min(stream.due + demand, UNBOUNDED)
        self._send(codec.RequestMore(subscriber, min(demand, UNBOUNDED)))

    def cancel(self, subscriber: int) -> None:
        """End a stream from our side."""
        stream = self._streams.get(subscriber)
        if stream is None or stream.state is _StreamState.DROPPED:
            return
        self._send(codec.Cancel(subscriber))
        if stream.state is _StreamState.ASKED:
            stream.state = _StreamState.DROPPED
        else:
            self._end(subscriber)

    # --- messages of the publisher --------------------------------------------------------------------------

    def received(
        self, message: codec.Message
    ) -> codec.Subscribed | Elements | codec.OnComplete | codec.OnError | None:
        """Handle a message; None if it belongs to no stream. Raises `Malformed` for elements beyond the demand."""
        assert isinstance(
            message,
            (
                codec.Subscribed,
                codec.OnNext,
                codec.OnNexts,
                codec.OnNextPacked,
                codec.OnNextPart,
                codec.OnNextLastPart,
                codec.OnComplete,
                codec.OnError,
            ),
        )
        subscriber = message.subscriber
        stream = self._streams.get(subscriber)
        if stream is None:
            return None
        if isinstance(message, codec.Subscribed):
            return self._handle_subscribed(message, stream)
        if stream.state is not _StreamState.ACTIVE:
            return None
        match message:
            case codec.OnNext(_, element):
                self._count_elements(subscriber, stream, 1)
                return Elements(subscriber, (bytes(element),))
            case codec.OnNexts(_, elements) | codec.OnNextPacked(_, elements):
                self._count_elements(subscriber, stream, len(elements))
                return Elements(subscriber, elements) if elements else None
            case codec.OnNextPart() | codec.OnNextLastPart():
                return self._handle_part(message, stream)
        self._end(subscriber)
        assert isinstance(message, (codec.OnComplete, codec.OnError))
        return message

    def _handle_subscribed(self, message: codec.Subscribed, stream: _Stream) -> codec.Subscribed | None:
        if stream.state is _StreamState.ACTIVE:
            raise Malformed(f"subscribed twice for Id {message.subscriber}")
        if stream.state is _StreamState.DROPPED:
            self._end(message.subscriber)
            return None
        stream.state = _StreamState.ACTIVE
        return message

    def _count_elements(self, subscriber: int, stream: _Stream, count: int) -> None:
        """Elements count when they begin (RS-41)."""
        if count > stream.due:
            raise Malformed(f"more elements than were requested, for Id {subscriber}")
        if stream.due < UNBOUNDED:
            stream.due -= count

    def _handle_part(
        self, message: codec.OnNextPart | codec.OnNextLastPart, stream: _Stream
    ) -> Elements | None:
        """Append a part, in the order of arrival (RS-36). Returns the element when it is complete."""
        parts = stream.parts.get(message.element)
        if parts is None:
            self._count_elements(message.subscriber, stream, 1)
            if len(stream.parts) >= RS_STREAMS:
                raise Malformed(f"more than {RS_STREAMS} elements in parts at once")
            parts = stream.parts[message.element] = bytearray()
        parts += message.data
        self.buffered += len(message.data)
        if self.buffered > RS_JOINED:
            raise Malformed(f"the parts of incomplete elements have more than {RS_JOINED} octets together")
        if isinstance(message, codec.OnNextPart):
            return None
        del stream.parts[message.element]
        self.buffered -= len(parts)
        if len(parts) > RS_ELEMENT:
            raise Malformed(f"an element of {len(parts)} octets; {RS_ELEMENT} are the most")
        return Elements(message.subscriber, (bytes(parts),))

    def end(self) -> None:
        """End all streams, with the connection."""
        self._streams.clear()

    def _end(self, subscriber: int) -> None:
        stream = self._streams.pop(subscriber)
        self.buffered -= sum(map(len, stream.parts.values()))
        heapq.heappush(self._free, subscriber)

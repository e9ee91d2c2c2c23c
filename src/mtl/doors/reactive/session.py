"""Reactive Streams over a stream of octets: one side of one connection. Sans IO; the sides differ in the hello only.

    OPENING ──hello──► OPEN ──our goodbye──► LEAVING ──goodbye──► CLOSED
       │                └───goodbye (it is answered), or an invalid message (we say why)─────────► CLOSED
       └──────a goodbye, another version, anything else─────────────────────────────────────────────┘

Octets of the peer go into `received`, which returns events; `pop_output` returns the octets to send. Either side may
publish (`publishing`) and subscribe (`subscribing`). The Ids of the two directions are separate, since each side
chooses the Ids of its own subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.reactive import codec
from mtl.doors.reactive.publishing import Demanded, Publishing
from mtl.doors.reactive.subscribing import Elements, Subscribing
from mtl.errors import Malformed

_LONGEST_REASON = 1_000
"""Maximum of characters of our goodbye; the codec limits the peer's."""


class ReactiveRole(Enum):
    """The side of the connection: the client opened it (RS-05, RS-06)."""

    CLIENT = "client"
    SERVER = "server"


class ReactiveState(Enum):
    """The state of a connection."""

    OPENING = "opening"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class HelloArrived:
    """The hello of the peer, with the extensions that it supports; we support none."""

    extensions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The connection is over with all its streams: send the rest of `pop_output`, then close it. `malformed`: the peer
    did not keep to the protocol.
    """

    reason: str
    malformed: bool = False


Event: TypeAlias = (
    HelloArrived
    | codec.Subscribe
    | Demanded
    | codec.Cancel
    | codec.Subscribed
    | Elements
    | codec.OnComplete
    | codec.OnError
    | ConnectionEnded
)
"""Events of the peer. `Subscribe`, `Demanded` and `Cancel` concern the streams that we publish, the others those
that we subscribed to. `Cancel`, `OnComplete` and `OnError` end a stream."""

_HELLO: Final = {ReactiveRole.CLIENT: codec.ServerHello, ReactiveRole.SERVER: codec.ClientHello}
"""The hello that is expected of the peer."""


class ReactiveSession:
    """See the module. All streams end with the connection; a later `subscribe` raises `Refused`."""

    def __init__(self, role: ReactiveRole) -> None:
        self.state = ReactiveState.OPENING
        self._role = role
        self._decoder = codec.ReactiveDecoder()
        self._out = bytearray()
        self.publishing = Publishing(self._queue_message)
        self.subscribing = Subscribing(self._queue_message)
        # Neither side waits for the other's (RS-07, RS-14).
        self._queue_message(codec.ClientHello() if role is ReactiveRole.CLIENT else codec.ServerHello())

    # --- octets ---------------------------------------------------------------------------------------------

    def pop_output(self) -> bytes:
        """Remove and return the octets to send."""
        out, self._out = self._out, bytearray()
        return bytes(out)

    @property
    def waiting(self) -> int:
        """Octets that are to be sent."""
        return len(self._out)

    @property
    def incomplete(self) -> int:
        """Octets of the peer's message and elements that have not arrived as a whole."""
        return self._decoder.waiting + self.subscribing.buffered

    def received(self, octets: bytes) -> Iterator[Event]:
        """Parse octets of the peer into events. `ConnectionEnded` is the last one."""
        try:
            for message in self._decoder.feed(octets):
                event = _STEPS[self.state](self, message)
                if event is not None:
                    yield event
                if self.state is ReactiveState.CLOSED:
                    return
        except Malformed as wrong:
            yield self._fail(str(wrong))

    def _queue_message(self, message: codec.Message, *, fixed: bool = False) -> None:
        if self.state in {ReactiveState.LEAVING, ReactiveState.CLOSED}:
            raise DoorRefusal(503, "left", "the connection is over")
        self._out += codec.encode(message, fixed=fixed)

    # --- the end --------------------------------------------------------------------------------------------

    def send_goodbye(self, reason: str) -> None:
        """End all streams. The peer's goodbye yields `ConnectionEnded` (RS-39, RS-40). Harmless when repeated."""
        if self.state in {ReactiveState.OPENING, ReactiveState.OPEN}:
            self._queue_message(codec.Goodbye(reason[:_LONGEST_REASON]))
            self._end(ReactiveState.LEAVING)

    def _end(self, state: ReactiveState) -> None:
        self.state = state
        self.publishing.end()
        self.subscribing.end()

    def _fail(self, reason: str) -> ConnectionEnded:
        """End after malformed input, without waiting for the peer's goodbye."""
        self.send_goodbye(reason)
        self._end(ReactiveState.CLOSED)
        return ConnectionEnded(reason, malformed=True)

    # --- one per state --------------------------------------------------------------------------------------

    def _handle_opening(self, message: codec.Message) -> Event | None:
        if isinstance(message, (codec.Goodbye, codec.GoodbyeAck)):
            return self._handle_open(message)
        if not isinstance(message, _HELLO[self._role]):
            raise Malformed(f"{type(message).__name__} before {_HELLO[self._role].__name__}")
        assert isinstance(message, (codec.ClientHello, codec.ServerHello))
        if message.version != codec.VERSION:
            # RS-09; it also shows a client that its messages were discarded (RS-15).
            raise Malformed(f"version {message.version}; this is version {codec.VERSION}")
        self.state = ReactiveState.OPEN
        return HelloArrived(message.extensions)

    def _handle_open(self, message: codec.Message) -> Event | None:
        match message:
            case codec.Subscribe() | codec.RequestMore() | codec.Cancel():
                return self.publishing.received(message)
            case codec.Goodbye(reason):
                self._queue_message(codec.Goodbye())
                self._end(ReactiveState.CLOSED)
                return ConnectionEnded(reason)
            case codec.GoodbyeAck():
                raise Malformed("goodbyeAck without a goodbye")
            case codec.ClientHello() | codec.ServerHello():
                raise Malformed("a second hello")
        return self.subscribing.received(message)

    def _handle_leaving(self, message: codec.Message) -> Event | None:
        """Every stream has ended; messages under way still arrive. Crossing goodbyes answer each other."""
        if isinstance(message, (codec.Goodbye, codec.GoodbyeAck)):
            self._end(ReactiveState.CLOSED)
            return ConnectionEnded(message.reason if isinstance(message, codec.Goodbye) else "")
        return None

    def _handle_closed(self, _: codec.Message) -> None:
        """The message is ignored."""


_STEPS: Final = {
    ReactiveState.OPENING: ReactiveSession._handle_opening,  # noqa: SLF001 the table of this class's own methods
    ReactiveState.OPEN: ReactiveSession._handle_open,  # noqa: SLF001
    ReactiveState.LEAVING: ReactiveSession._handle_leaving,  # noqa: SLF001
    ReactiveState.CLOSED: ReactiveSession._handle_closed,  # noqa: SLF001
}

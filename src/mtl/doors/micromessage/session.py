"""MicroMessage2, one connection, either end. Sans IO: octets in and events out, octets to send in `to_send`.

    server    LISTENING ──proposal──► ANSWERED ──final──► OPEN
    client    PROPOSED  ──reply────────────────────────► OPEN          any state ──ERROR, either way──► CLOSED

Input that is malformed or not in the table ends the connection: an ERROR is sent and `Ended` is the last event. ERROR
is the only negative answer of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from mtl.doors.limits import MM2_FRAGMENT
from mtl.doors.micromessage.codec import (
    SEQUENCE,
    CommandFrame,
    Error,
    ExtensionFrame,
    Frame,
    Handshake,
    MessageFrame,
    MicroDecoder,
    encode,
    encode_handshake,
    encode_head,
    encode_message,
)
from mtl.doors.micromessage.negotiation import (
    DOTNET,
    JSON,
    PUB_SUB,
    Agreed,
    ExtensionOffer,
    agreed,
    check_known,
    common_minor,
    final,
)
from mtl.doors.micromessage.values import FilterValue
from mtl.doors.micromessage.windows import IncomingWindow, OutgoingWindow
from mtl.doors.peer_messages import DoorRefusal
from mtl.errors import FieldError, Malformed, Refused
from mtl.limits import MAX_CONTENT

_FURTHER: Final = encode_head("", "")
"""The head of every piece of a message but its first."""

ERROR_TEXT = 1_000
"""Maximum of characters of an ERROR of this side."""


class MicroState(Enum):
    """The state of a connection."""

    LISTENING = "listening"
    ANSWERED = "answered"
    PROPOSED = "proposed"
    OPEN = "open"
    CLOSED = "closed"


class MicroRole(Enum):
    """The side that connects is the client (MM2-02)."""

    CLIENT = "client"
    SERVER = "server"


STEPS: Final[dict[tuple[MicroRole, MicroState], dict[type, MicroState]]] = {
    (MicroRole.SERVER, MicroState.LISTENING): {Handshake: MicroState.ANSWERED, Error: MicroState.CLOSED},
    (MicroRole.SERVER, MicroState.ANSWERED): {Handshake: MicroState.OPEN, Error: MicroState.CLOSED},
    (MicroRole.SERVER, MicroState.OPEN): {
        MessageFrame: MicroState.OPEN,
        CommandFrame: MicroState.OPEN,
        ExtensionFrame: MicroState.OPEN,
        Error: MicroState.CLOSED,
    },
    (MicroRole.CLIENT, MicroState.PROPOSED): {Handshake: MicroState.OPEN, Error: MicroState.CLOSED},
    (MicroRole.CLIENT, MicroState.OPEN): {
        MessageFrame: MicroState.OPEN,
        ExtensionFrame: MicroState.OPEN,
        Error: MicroState.CLOSED,
    },
}
"""The input that a peer may send, and the next state; a missing entry ends the connection."""

_IN_HANDSHAKE = {MicroState.LISTENING, MicroState.ANSWERED, MicroState.PROPOSED}


class HandshakeDone(msgspec.Struct, frozen=True):
    """The handshake is complete."""

    identity: str
    agreed: Agreed


class MessageArrived(msgspec.Struct, frozen=True):
    """A whole message. `type` is the .NET type of its payload, where the dotnet extension is used.

    Consecutive messages with equal properties share them.
    """

    destination: str
    properties: Mapping[str, FilterValue]
    payload: bytes
    type: str | None = None


class CommandArrived(msgspec.Struct, frozen=True):
    """A command of the client."""

    command: CommandFrame


class Acked(msgspec.Struct, frozen=True):
    """The peer acknowledged the first `count` outstanding messages."""

    count: int


class Ended(msgspec.Struct, frozen=True):
    """The connection ended. `by_peer`: the peer sent the ERROR."""

    text: str
    by_peer: bool


Event = HandshakeDone | MessageArrived | CommandArrived | Acked | Ended


class MicroSession:
    """See the module. `offer` has the extensions of this side."""

    def __init__(self, role: MicroRole, offer: ExtensionOffer, identity: str) -> None:
        self._role = role
        self._decoder = MicroDecoder()
        self._enter(MicroState.LISTENING if role is MicroRole.SERVER else MicroState.PROPOSED)
        self.agreed: Agreed | None = None
        self._offer = offer
        self._identity = identity
        self._out: list[bytes] = []
        self._outgoing = OutgoingWindow(None)
        self._incoming = IncomingWindow(None)
        self._first: MessageFrame | None = None
        self._payload = bytearray()
        self._minor = 0
        self._type: str | None = None
        if role is MicroRole.CLIENT:
            self._out.append(encode_handshake(offer.handshake(identity)))

    def _enter(self, state: MicroState) -> None:
        """Enter a state. The table is read here and not for every frame, since hashing an enum is slow."""
        self.state = state
        self._steps = STEPS.get((self._role, state), {})
        self._next = self._decoder.handshake if state in _IN_HANDSHAKE else self._decoder.frame

    # --- output ---------------------------------------------------------------------------------------------

    def to_send(self) -> bytes:
        """Remove and return the octets to send."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    @property
    def incomplete(self) -> int:
        """Octets of the peer's message that has not arrived as a whole."""
        return self._decoder.undecoded + len(self._payload)

    @property
    def room(self) -> bool:
        """Whether a message may be sent (MM2-33 to 35)."""
        return self.state is MicroState.OPEN and self._outgoing.room

    def send(
        self,
        destination: str,
        payload: bytes,
        properties: str = "",
        type: str | None = None,  # noqa: A002 the extension's word
    ) -> None:
        """Send a message, in pieces where it is large (MM2-41). Only where there is room.

        `properties` as encoded by `encode_properties`. Raises `FieldError` if it does not fit a frame; then nothing is
        sent.
        """
        assert self.room
        assert self.agreed is not None
        if len(payload) > MAX_CONTENT:
            raise FieldError(f"a message of {len(payload)} octets; {MAX_CONTENT} are the most")
        head = encode_head(destination, properties)  # raises before a number is spent
        sequence = self._outgoing.send()
        if DOTNET in self.agreed:
            self._append(ExtensionFrame(self.agreed.ids[DOTNET], (type or "").encode()))
        begin, last = 0, len(payload) - MM2_FRAGMENT
        while begin < last:
            piece = payload[begin : begin + MM2_FRAGMENT]
            self._out.append(encode_message(sequence, head, piece, continued=True))
            head = _FURTHER
            begin += MM2_FRAGMENT
        self._out.append(encode_message(sequence, head, payload[begin:] if begin else payload))

    def ack(self, count: int) -> None:
        """Acknowledge the first `count` unacknowledged messages; does nothing without agreed acknowledgements."""
        sequence = self._incoming.ack(count) if self.state is MicroState.OPEN else None
        if sequence is not None:
            assert self.agreed is not None
            assert self.agreed.ack_id is not None
            self._append(ExtensionFrame(self.agreed.ack_id, SEQUENCE.pack(sequence)))

    def command(self, name: str, arguments: Mapping[str, str]) -> None:
        """Send a command, as the client. Raises `FieldError`."""
        self._append(CommandFrame(name, arguments))

    def fail(self, text: str) -> None:
        """Send ERROR; the caller closes the connection after it."""
        if self.state is not MicroState.CLOSED:
            self._enter(MicroState.CLOSED)
            self._append(Error(text[:ERROR_TEXT]))

    def _append(self, frame: Frame) -> None:
        self._out.append(encode(frame))

    # --- input ----------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> list[Event]:
        """Parse octets of the peer. Never raises for invalid input."""
        events: list[Event] = []
        self._decoder.feed(data)
        try:
            while self.state is not MicroState.CLOSED:
                value = self._next()
                if value is None:
                    break
                event = self._step(value)
                if event is not None:
                    events.append(event)
        except (Malformed, Refused) as wrong:
            words = wrong.message if isinstance(wrong, Refused) else str(wrong)
            self.fail(words)
            events.append(Ended(words, by_peer=False))
        return events

    def _step(self, value: Handshake | Frame) -> Event | None:
        following = self._steps.get(type(value))
        if following is None:
            raise Malformed(f"a {self._role.value} does not expect {type(value).__name__.upper()} frames")
        event = self._event(value)
        if following is not self.state:
            self._enter(following)
        return event

    def _event(self, value: Handshake | Frame) -> Event | None:
        match value:
            case Handshake():
                return self._handshake(value)
            case MessageFrame():
                return self._message(value)
            case ExtensionFrame():
                return self._extension(value)
            case CommandFrame():
                return self._command(value)
            case Error(text):
                return Ended(text, by_peer=True)

    def _handshake(self, peer: Handshake) -> Event | None:
        """One of the three steps (MM2-14)."""
        minor = common_minor(peer, proposes=self.state is MicroState.LISTENING)
        offer = ExtensionOffer.of(peer)
        if self.state is MicroState.LISTENING:
            check_known(offer.required)
            self._minor = minor
            self._out.append(encode_handshake(self._offer.handshake(self._identity, minor)))
            return None
        if self._role is MicroRole.CLIENT:
            last, server = final(self._offer, offer), offer
            self._out.append(encode_handshake(last.handshake(self._identity, minor)))
        else:
            last, server, minor = offer, self._offer, min(minor, self._minor)
        self.agreed = agreed(last, server, minor)
        self._outgoing = OutgoingWindow(self.agreed.window)
        self._incoming = IncomingWindow(self.agreed.window)
        return HandshakeDone(peer.identity, self.agreed)

    def _message(self, piece: MessageFrame) -> Event | None:
        """Handle a message, or a piece of one: the last piece completes it (MM2-31)."""
        assert self.agreed is not None
        first = self._first
        if first is None:
            self._incoming.received(piece.sequence)
            first = piece
        elif (
            piece.sequence != first.sequence
            or piece.destination not in {"", first.destination}
            or piece.properties not in ({}, first.properties)
        ):
            raise Malformed("a message began before the last piece of the previous message")
        if len(self._payload) + len(piece.payload) > MAX_CONTENT:
            raise Malformed(f"a message of more than {MAX_CONTENT} octets")
        if piece.continued:
            self._payload += piece.payload
            self._first = first
            return None
        payload = piece.payload
        if self._first is not None:
            payload, self._payload = bytes(self._payload) + payload, bytearray()
            self._first = None
        if JSON in self.agreed:
            check_json(payload)
        return MessageArrived(first.destination, first.properties, payload, self._type)

    def _extension(self, frame: ExtensionFrame) -> Event | None:
        assert self.agreed is not None
        if frame.id == self.agreed.ack_id:
            if len(frame.payload) != SEQUENCE.size:
                raise Malformed(f"an acknowledgement of {len(frame.payload)} octets; it has 2")
            return Acked(self._outgoing.acked(*SEQUENCE.unpack(frame.payload)))
        if frame.id == self.agreed.ids.get(DOTNET):
            try:
                self._type = frame.payload.decode() or None
            except UnicodeDecodeError:
                raise Malformed("a type name is UTF-8 text") from None
            return None
        raise Malformed(f"no extension with frames has the id {frame.id}")

    def _command(self, command: CommandFrame) -> Event:
        assert self.agreed is not None
        if PUB_SUB not in self.agreed:
            raise DoorRefusal(501, "command", f"{command.name!r}: there are no commands without {PUB_SUB}")
        return CommandArrived(command)


def check_json(payload: bytes) -> None:
    """Raises `Malformed` if the payload is not a JSON text in UTF-8 (MM2-53)."""
    try:
        msgspec.json.decode(payload.decode(), type=msgspec.Raw)
    except (ValueError, RecursionError):
        raise Malformed("the payload is not JSON, which was agreed on") from None

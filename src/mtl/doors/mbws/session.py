"""One WebSocket session without IO: which frames each side may send when, in which form. MBLWS: without recovery.

    MBWS     server  WAITING ──Connect──► OPEN ──Connect──► OPEN, with another connection
             client  WAITING ──Connect──► OPEN
    MBLWS            OPEN from the beginning; Connect and Acknowledge are ignored (MBWS-33, 35)

In OPEN each side sends Message and, with MBWS, Acknowledge. Everything else is `Malformed` and ends the session.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from mtl.doors.limits import MBWS_HEADER
from mtl.doors.mbws.codec import Acknowledge, CachingDecoder, Connect, Frame, Kind, Message, encode
from mtl.doors.mbws.contents import MessageEncoder
from mtl.errors import Malformed
from mtl.limits import MAX_CONTENT

MBWS: Final = "MBWS.huawei.com"
MBLWS: Final = "MBLWS.huawei.com"
"""The values of Sec-WebSocket-Protocol (MBWS-03)."""

LARGEST: Final = MAX_CONTENT + MBWS_HEADER
"""Maximum of octets of one WebSocket message."""


class MbwsState(Enum):
    """The state of a session."""

    WAITING = "waiting"
    OPEN = "open"


class MbwsRole(Enum):
    """The side that opened the WebSocket is the client."""

    CLIENT = "client"
    SERVER = "server"


STEPS: Final[dict[tuple[MbwsRole, MbwsState], dict[type[Frame], MbwsState]]] = {
    (MbwsRole.SERVER, MbwsState.WAITING): {Connect: MbwsState.OPEN},
    (MbwsRole.SERVER, MbwsState.OPEN): {
        Connect: MbwsState.OPEN,
        Acknowledge: MbwsState.OPEN,
        Message: MbwsState.OPEN,
    },
    (MbwsRole.CLIENT, MbwsState.WAITING): {Connect: MbwsState.OPEN},
    (MbwsRole.CLIENT, MbwsState.OPEN): {Acknowledge: MbwsState.OPEN, Message: MbwsState.OPEN},
}
"""The frames that the peer may send, and the next state; a missing entry ends the session."""


class MbwsSession:
    """See the module. `kind` is the initial form: a server switches to the form of its client's Connect."""

    def __init__(self, role: MbwsRole, subprotocol: str, kind: Kind, *, characters: bool = False) -> None:
        self.light = subprotocol == MBLWS
        self.state = MbwsState.OPEN if self.light else MbwsState.WAITING
        self.kind = kind
        self._role = role
        self._characters = characters
        self._decode = CachingDecoder(characters=characters).decode

    def received(self, message: bytes | str) -> Frame | None:
        """Parse a message of the peer; None: it is ignored. Raises `Malformed`."""
        frame = self._decode(message)
        if self.light and not isinstance(frame, Message):
            return None
        following = STEPS[self._role, self.state].get(type(frame))
        if following is None:
            raise Malformed(f"no {type(frame).__name__} is expected by a {self._role.value} now")
        self.state = following
        if isinstance(frame, Connect) and self._role is MbwsRole.SERVER:
            self.kind = Kind.TEXT if isinstance(message, str) else Kind.BINARY
        return frame

    def to_message(self, frame: Connect | Acknowledge) -> bytes | str:
        """The WebSocket message of a frame other than Message; for these see `to_messages`."""
        return encode(frame, self.kind, characters=self._characters)

    def to_messages(self, address: str) -> MessageEncoder:
        """The encoder for the messages of one address, with their sequences."""
        return MessageEncoder(address, self.kind, characters=self._characters, numbered=True)

"""One WebSocket session without IO: what each side may say when, in which form. MBLWS is MBWS without recovery.

    MBWS     server  WAITING ──Connect──► OPEN ──Connect──► OPEN, with another connection
             client  WAITING ──Connect──► OPEN
    MBLWS            OPEN from the beginning; Connect and Acknowledge mean nothing (MBWS-33, 35)

In OPEN each side sends Message and, with MBWS, Acknowledge. Everything else is `Malformed`, and the session's end.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from mtl.doors.limits import MBWS_HEADER
from mtl.doors.mbws.codec import Acknowledge, Alike, Connect, Frame, Kind, Message, encode
from mtl.doors.mbws.contents import ToMessages
from mtl.errors import Malformed
from mtl.limits import MAX_CONTENT

MBWS: Final = "MBWS.huawei.com"
MBLWS: Final = "MBLWS.huawei.com"
"""The values of Sec-WebSocket-Protocol (MBWS-03)."""

LARGEST: Final = MAX_CONTENT + MBWS_HEADER
"""Octets of one WebSocket message."""


class State(Enum):
    """Where a session stands."""

    WAITING = "waiting"
    OPEN = "open"


class Role(Enum):
    """Who opened the WebSocket is the client."""

    CLIENT = "client"
    SERVER = "server"


STEPS: Final[dict[tuple[Role, State], dict[type[Frame], State]]] = {
    (Role.SERVER, State.WAITING): {Connect: State.OPEN},
    (Role.SERVER, State.OPEN): {Connect: State.OPEN, Acknowledge: State.OPEN, Message: State.OPEN},
    (Role.CLIENT, State.WAITING): {Connect: State.OPEN},
    (Role.CLIENT, State.OPEN): {Acknowledge: State.OPEN, Message: State.OPEN},
}
"""What the peer may say, and where it leads; a missing entry ends the session."""


class Session:
    """See the module. `kind` is the form that we begin with: a server goes on in that of its client's Connect."""

    def __init__(self, role: Role, subprotocol: str, kind: Kind, *, characters: bool = False) -> None:
        self.light = subprotocol == MBLWS
        self.state = State.OPEN if self.light else State.WAITING
        self.kind = kind
        self._role = role
        self._characters = characters
        self._decode = Alike(characters=characters).decode

    def received(self, message: bytes | str) -> Frame | None:
        """What a message of the peer says; None: nothing. Raises `Malformed`."""
        frame = self._decode(message)
        if self.light and not isinstance(frame, Message):
            return None
        following = STEPS[self._role, self.state].get(type(frame))
        if following is None:
            raise Malformed(f"no {type(frame).__name__} is expected by a {self._role.value} now")
        self.state = following
        if isinstance(frame, Connect) and self._role is Role.SERVER:
            self.kind = Kind.TEXT if isinstance(message, str) else Kind.BINARY
        return frame

    def say(self, frame: Connect | Acknowledge) -> bytes | str:
        """The WebSocket message of a frame that is no Message; for those there is `to_messages`."""
        return encode(frame, self.kind, characters=self._characters)

    def to_messages(self, address: str) -> ToMessages:
        """What puts the messages of one address together, with their sequences."""
        return ToMessages(address, self.kind, characters=self._characters, numbered=True)

"""Error messages for peers. They contain neither the broker's endpoint nor its options, users or paths."""

from __future__ import annotations

import logging
from typing import Final

from mtl.errors import ContentRefused, ContentTooLarge, FieldError, Malformed, MtlError, Refused
from mtl.wire.control import NOT_AUTHORIZED, OVERLOADED, UNKNOWN_RESOURCE

log = logging.getLogger("mtl.doors")

_AWAY: Final = "the broker cannot be reached or is overloaded; try again later"

_WORDS: Final = {
    UNKNOWN_RESOURCE: "there is no such resource",
    NOT_AUTHORIZED: "you have no right to do this",
    OVERLOADED: "the broker is overloaded; try again later",
}
"""Message by the broker's reason. The broker's own messages are for its clients, i.e. the door."""


class DoorRefusal(Refused):
    """A request that a door does not support; the message is for the peer."""


def peer_message(error: BaseException) -> str:
    """The message for a peer. A bug is logged, and the peer gets the name of its exception."""
    match error:
        case DoorRefusal() | Malformed() | FieldError() | ContentTooLarge() | ContentRefused():
            return str(error)  # contains only what the peer sent
        case Refused(status=status, reason=reason):
            words = _WORDS.get(reason)
            return f"{status} {reason}: {words}" if words else f"{status} {reason}"
        case MtlError():
            return _AWAY
    log.error("a door failed", exc_info=error)
    return f"internal error ({type(error).__name__})"

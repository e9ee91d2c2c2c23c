"""What a peer is told of an error. Of the broker it learns neither the endpoint nor options, users or paths."""

from __future__ import annotations

import logging
from typing import Final

from mtl.errors import ContentRefused, ContentTooLarge, FieldError, Malformed, MtlError, Refused
from mtl.wire.control import NOT_AUTHORIZED, OVERLOADED, UNKNOWN_RESOURCE

log = logging.getLogger("mtl.doors")

_AWAY: Final = "the broker is away, or has too much to do; try again later"

_WORDS: Final = {
    UNKNOWN_RESOURCE: "there is no such resource",
    NOT_AUTHORIZED: "you have no right to do this",
    OVERLOADED: "there is too much to do; try again later",
}
"""For the broker's reasons. What the broker says itself is for its own clients: the door."""


class Unfit(Refused):
    """Something that a door does not do for a peer; the message is for the peer."""


def told(error: BaseException) -> str:
    """The words for a peer. A bug is logged, and the peer learns its kind."""
    match error:
        case Unfit() | Malformed() | FieldError() | ContentTooLarge() | ContentRefused():
            return str(error)  # of nothing but what the peer sent
        case Refused(status=status, reason=reason):
            words = _WORDS.get(reason)
            return f"{status} {reason}: {words}" if words else f"{status} {reason}"
        case MtlError():
            return _AWAY
    log.error("a door failed", exc_info=error)
    return f"internal error ({type(error).__name__})"

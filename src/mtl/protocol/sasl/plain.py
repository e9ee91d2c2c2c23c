"""The one message of PLAIN (RFC 4616): [authzid] NUL authcid NUL password, in UTF-8."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtl.errors import Malformed
from mtl.protocol.sasl.mechanisms import text_of
from mtl.protocol.sasl.names import user_name


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """The user that logs in, its name in the normal form, and its password; `acting_as` is empty, or the user to act
    as.
    """

    user: str
    password: str = field(repr=False)
    acting_as: str = ""


def encode(message: PlainMessage) -> bytes:
    """The message's octets."""
    return f"{message.acting_as}\0{message.user}\0{message.password}".encode()


def decode(octets: bytes) -> PlainMessage:
    """Raises `Malformed` for octets that are not a message of PLAIN; the error never shows the password."""
    parts = text_of(octets).split("\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise Malformed("a PLAIN response that is not [authzid] NUL user NUL password (RFC 4616)")
    return PlainMessage(user_name(parts[1]), parts[2], user_name(parts[0]) if parts[0] else "")

"""Conversion between a content's properties and the text headers of a protocol, in both directions.

A header has the name of its property, so properties pass unchanged between producers and consumers of different
protocols. The media type of the body is the property `content-type`. Values that are not text become text as in Spark
(`mtl.wire.text`); incoming values are text and stay text. Names that begin with `mtl-` are reserved for the broker: a
door adds `mtl-sequence` if its protocol has no sequence of its own, and refuses such names from its peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mtl.doors.peer_messages import DoorRefusal
from mtl.wire.fields import RESERVED, Value
from mtl.wire.text import text

CONTENT_TYPE = "content-type"
SEQUENCE = "mtl-sequence"
BAD_PROPERTIES = "bad-properties"
"""The reason of a refusal by `from_texts`."""


_LARGEST_SEQUENCE = (1 << 63) - 1
_LONGEST_SEQUENCE = len(str(_LARGEST_SEQUENCE))
"""Digits that are converted; Python refuses thousands."""


def sequence_of(digits: str) -> int | None:
    """The sequence of a content in decimal digits; None for another text, and for a number that cannot be one."""
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _LONGEST_SEQUENCE):
        return None
    sequence = int(digits)
    return sequence if 1 <= sequence <= _LARGEST_SEQUENCE else None


def to_texts(properties: Mapping[str, Value]) -> dict[str, str]:
    """Properties as headers; a null value becomes an empty text."""
    return {name: text(value) or "" for name, value in properties.items()}


def from_texts(headers: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Headers as properties; typed values of a protocol are kept.

    Raises `Refused` for a name reserved for the broker, and for a name that occurs twice.
    """
    properties: dict[str, Value] = {}
    for name, value in headers:
        if name.startswith(RESERVED):
            raise DoorRefusal(
                400, BAD_PROPERTIES, f"{name!r}: names that begin with {RESERVED} are the broker's"
            )
        if name in properties:
            raise DoorRefusal(400, BAD_PROPERTIES, f"{name!r} is given twice")
        properties[name] = value
    return properties

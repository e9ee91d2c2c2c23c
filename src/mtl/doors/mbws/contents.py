"""Messages as contents, and back. Pure functions, for both ends.

The Content-Type is the property `content-type`, the Property List holds the others; see `mtl.doors.properties`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mtl.doors.mbws.codec import Message
from mtl.doors.properties import CONTENT_TYPE, SEQUENCE, from_texts, to_texts
from mtl.wire.fields import Value


def to_message(
    address: str, body: bytes, properties: Mapping[str, Value], sequence: int | None = None
) -> Message:
    """The message to or from one address; `sequence` is the content's place in the log, as a property."""
    texts = to_texts(properties)
    content_type = texts.pop(CONTENT_TYPE, "")
    if sequence is not None:
        texts[SEQUENCE] = str(sequence)
    return Message((address,), body, content_type, tuple(texts.items()))


def from_message(message: Message) -> dict[str, Value]:
    """The properties of the content that a message is. Raises `Refused` for what cannot be."""
    named: list[tuple[str, Value]] = [*message.properties]
    if message.content_type:
        named.append((CONTENT_TYPE, message.content_type))
    return from_texts(named)

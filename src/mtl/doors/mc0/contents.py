"""mc0 messages as contents, and back: the header X-k is the property k, the positional frame the body.

A content has one body. If a PUT has no positional frame or several, they are joined, and the property
`mc0-frames` holds their lengths, so that a MESSAGE repeats them as they were (MC0-27).
"""

from __future__ import annotations

from collections.abc import Mapping

from mtl.client.contents import Content
from mtl.doors.mc0.codec import FREE, TOPIC, Mc0Message, Verb, encode
from mtl.doors.mc0.session import Put
from mtl.doors.properties import SEQUENCE, from_texts, sequence_of, to_texts
from mtl.wire.fields import EMPTY, Value, encode_properties

FRAMES = "mc0-frames"

_SEQUENCE = f"{FREE}{SEQUENCE}".encode()


def to_content(put: Put) -> tuple[bytes, dict[str, Value]]:
    """Body and properties of a PUT. Raises `Refused` for a header that is not a valid property."""
    properties = from_texts(put.headers)
    if len(put.positional) == 1:
        return put.positional[0], properties
    properties[FRAMES] = [len(frame) for frame in put.positional]
    return b"".join(put.positional), properties


def to_message(content: Content) -> Mc0Message:
    """The MESSAGE that delivers a content (MC0-23); `X-mtl-sequence` is its place in the topic's log."""
    properties = content.properties
    positional = _split(content.body, properties)
    head = _delivering(content.resource, properties)
    sequence = {f"{FREE}{SEQUENCE}": str(content.sequence)}
    return Mc0Message(head.verb, {**head.headers, **sequence}, positional)


class PutTables:
    """Bodies and encoded properties of the PUTs of one peer; equal consecutive headers are encoded once."""

    def __init__(self) -> None:
        self._headers: tuple[tuple[str, str], ...] = ()
        self._table = EMPTY

    def of(self, put: Put) -> tuple[bytes, bytes]:
        """Body and table. Raises `Refused`, `FieldError` for headers that are not valid properties."""
        if len(put.positional) == 1 and put.headers == self._headers:
            return put.positional[0], self._table
        body, properties = to_content(put)
        table = encode_properties(properties)
        if FRAMES not in properties:
            self._headers, self._table = put.headers, table
        return body, table


class SubscriptionFrames:
    """The frames of `to_message` for one subscription's contents; equal consecutive properties are encoded once."""

    def __init__(self) -> None:
        self._table: bytes | None = None
        self._head: list[bytes] | None = None

    def frames(self, content: Content) -> list[bytes]:
        """The frames of its MESSAGE."""
        if content.table != self._table:
            properties = content.properties
            self._table = content.table
            self._head = None if FRAMES in properties else encode(_delivering(content.resource, properties))
        if self._head is None:
            return encode(to_message(content))
        return [*self._head, _SEQUENCE, b"%d" % content.sequence, b"", content.body]


def _delivering(resource: str, properties: Mapping[str, Value]) -> Mc0Message:
    headers = {f"{FREE}{name}": value for name, value in to_texts(properties).items()}
    return Mc0Message(Verb.MESSAGE, {TOPIC: resource, **headers})


def _split(body: bytes, properties: dict[str, Value]) -> tuple[bytes, ...]:
    """Split by the lengths in `mc0-frames`; the whole body if their sum is not its length."""
    lengths = properties.get(FRAMES)
    if not isinstance(lengths, list) or not all(type(n) is int and n >= 0 for n in lengths):
        return (body,)
    frames, at = [], 0
    for length in lengths:
        assert isinstance(length, int)
        frames.append(body[at : at + length])
        at += length
    if at != len(body):
        return (body,)
    del properties[FRAMES]
    return tuple(frames)


def from_message(message: Mc0Message) -> tuple[str, int | None, dict[str, str], bytes]:
    """Topic, sequence, properties and body (frames joined) of a MESSAGE, for a client."""
    headers: Mapping[str, str] = message.headers
    properties = {n.removeprefix(FREE): v for n, v in headers.items() if n.startswith(FREE)}
    sequence = sequence_of(properties.pop(SEQUENCE, ""))
    return headers.get(TOPIC, ""), sequence, properties, b"".join(message.positional or ())

"""Messages as contents, and back, for both ends.

The Content-Type is the property `content-type`, the Property List holds the others; see `mtl.doors.properties`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mtl.doors.mbws.codec import Kind, Message, encode
from mtl.doors.properties import CONTENT_TYPE, SEQUENCE, from_texts, to_texts
from mtl.wire.fields import Value, encode_properties


class MessageEncoder:
    """Encodes contents as messages to or from one address, in one form; a body that is not text is always binary.

    With `numbered` the last property of each message is its content's place in the log. `set_properties` is called
    before `message` and encodes the properties once for all contents that share them.
    """

    def __init__(self, address: str, kind: Kind, *, characters: bool = False, numbered: bool = False) -> None:
        self._address = address
        self._kind = kind
        self._characters = characters
        self._numbered = numbered
        self._octets: bytes
        self._text: str | None

    def set_properties(self, properties: Mapping[str, Value]) -> None:
        """Set the properties of the next contents. Raises `FieldError` for properties that cannot be encoded."""
        texts = to_texts(properties)
        content_type = texts.pop(CONTENT_TYPE, "")
        if self._numbered:
            texts[SEQUENCE] = ""  # whose length, a 0, is taken off
        alike = Message((self._address,), b"", content_type, tuple(texts.items()))
        octets = encode(alike, Kind.BINARY, characters=self._characters)
        text = encode(alike, Kind.TEXT) if self._kind is Kind.TEXT else None
        assert isinstance(octets, bytes)
        assert not isinstance(text, bytes)
        self._octets = octets[:-1] if self._numbered else octets
        self._text = text[:-2] if text is not None and self._numbered else text

    def message(self, body: bytes, sequence: int | None = None) -> bytes | str:
        """One message; `sequence` if messages are numbered."""
        number = "" if sequence is None else str(sequence)
        if self._text is not None and (text := _as_text(body)) is not None:
            return f"{self._text}{len(number)} {number}{text}" if number else self._text + text
        if number:
            return b"%b%c%b%b" % (self._octets, len(number), number.encode(), body)
        return self._octets + body


class TableEncoder:
    """Encodes the properties of messages as those of contents. The last result is cached."""

    def __init__(self) -> None:
        self._content_type = ""
        self._properties: tuple[tuple[str, str], ...] = ()
        self._table = encode_properties(None)

    def table(self, message: Message) -> bytes:
        """The encoded properties. Raises `Refused` and `FieldError` for invalid ones."""
        if message.properties != self._properties or message.content_type != self._content_type:
            self._table = encode_properties(from_message(message))
            self._properties, self._content_type = message.properties, message.content_type
        return self._table


def from_message(message: Message) -> dict[str, Value]:
    """A message's properties as those of a content. Raises `Refused` for invalid ones."""
    named: list[tuple[str, Value]] = [*message.properties]
    if message.content_type:
        named.append((CONTENT_TYPE, message.content_type))
    return from_texts(named)


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None

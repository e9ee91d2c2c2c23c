"""MBWS on the wire: three frames, each in a binary and in a text form. Pure functions over one WebSocket message.

               binary                                        text
    Connect      %x01 name list(number)                        "1 " name list(number)
    Acknowledge  %x02 number                                   "2 " number
    Message      %x03 list(address) content-type               "3 " list(address) content-type
                 list(name value) body                         list(name value) body

    number   a varint as in Protocol Buffers, 8 octets at most     digits and a space
    string   its length as a number, then UTF-8                    the same
    list     the count of its entries as a number, then they       the same

The length of a string is "the number of characters". In text these are code points. In binary they are octets, as in
Protocol Buffers, the origin of the varint; with `characters` the peer counts code points there, too. For ASCII both are
the same.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from msgspec import Struct

from mtl.doors.limits import MBWS_ALIKE, MBWS_ENTRIES
from mtl.errors import FieldError, Malformed

LAST_NUMBER = (1 << 56) - 1
"""The largest number in 8 octets of a varint (MBWS-53); the limit is the same in text."""

_DIGITS = len(str(LAST_NUMBER))
_CONNECT, _ACKNOWLEDGE, _MESSAGE = 1, 2, 3
_MESSAGE_OCTET = bytes((_MESSAGE,))


class Kind(Enum):
    """The two forms of the same frames (MBWS-02)."""

    BINARY = "binary"
    TEXT = "text"


class NotText(Malformed):
    """A string whose octets are not UTF-8."""


class Connect(Struct, frozen=True):
    """Requests a connection, or names it. `numbers`: none; CSLR, CSLW and CSUW of a reconnect; SSLR of its reply."""

    name: str = ""
    numbers: tuple[int, ...] = ()


class Acknowledge(Struct, frozen=True):
    """Every message up to this one, counted from 1, has arrived and is stored."""

    sequence: int


class Message(Struct, frozen=True):
    """One message. It does not carry its sequence number: both sides count (MBWS-15)."""

    addresses: tuple[str, ...]
    body: bytes
    content_type: str = ""
    properties: tuple[tuple[str, str], ...] = ()


Frame = Connect | Acknowledge | Message


# --- encoding -------------------------------------------------------------------------------------------------


def encode(frame: Frame, kind: Kind, *, characters: bool = False) -> bytes | str:
    """One WebSocket message. Raises `FieldError` for invalid values: a Message in text has a body of UTF-8."""
    to: _Writer = _BinaryWriter(characters=characters) if kind is Kind.BINARY else _TextWriter()
    match frame:
        case Connect(name, numbers):
            to.write_number(_CONNECT)
            to.write_string(name)
            to.write_number(len(numbers))
            for number in numbers:
                to.write_number(number)
        case Acknowledge(sequence):
            to.write_number(_ACKNOWLEDGE)
            to.write_number(sequence)
        case Message(addresses, body, content_type, properties):
            to.write_number(_MESSAGE)
            to.write_number(len(addresses))
            for address in addresses:
                to.write_string(address)
            to.write_string(content_type)
            to.write_number(len(properties))
            for pair in properties:
                for text in pair:
                    to.write_string(text)
            to.write_body(body)
    return to.message()


class _Writer(Protocol):
    """Builds a message."""

    def write_number(self, value: int) -> None: ...

    def write_string(self, text: str) -> None: ...

    def write_body(self, body: bytes) -> None: ...

    def message(self) -> bytes | str: ...


class _BinaryWriter:
    def __init__(self, *, characters: bool) -> None:
        self._out = bytearray()
        self._characters = characters

    def write_number(self, value: int) -> None:
        if not 0 <= value < 0x80:  # most are small, and every message has several
            _check_number(value)
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)

    def write_string(self, text: str) -> None:
        octets = _octets(text)
        self.write_number(len(text) if self._characters else len(octets))
        self._out += octets

    def write_body(self, body: bytes) -> None:
        self._out += body

    def message(self) -> bytes:
        return bytes(self._out)


class _TextWriter:
    def __init__(self) -> None:
        self._out: list[str] = []

    def write_number(self, value: int) -> None:
        _check_number(value)
        self._out.append(f"{value} ")

    def write_string(self, text: str) -> None:
        _octets(text)
        self.write_number(len(text))
        self._out.append(text)

    def write_body(self, body: bytes) -> None:
        try:
            self._out.append(body.decode())
        except UnicodeDecodeError:
            raise FieldError("the body of a text frame is UTF-8") from None

    def message(self) -> str:
        return "".join(self._out)


def _octets(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FieldError(f"{text[:40]!r} has half of a surrogate pair, which has no UTF-8") from None


def _check_number(value: int) -> None:
    if not 0 <= value <= LAST_NUMBER:
        raise FieldError(f"{value} is not a number from 0 to {LAST_NUMBER}")


# --- decoding -------------------------------------------------------------------------------------------------


def decode(message: bytes | str, *, characters: bool = False) -> Frame:
    """Parse a WebSocket message. Raises `Malformed`."""
    of: _Reader = (
        _TextReader(message) if isinstance(message, str) else _BinaryReader(message, characters=characters)
    )
    match of.read_kind():
        case 1:
            name = of.read_string()
            frame: Frame = Connect(name, tuple(of.read_number() for _ in range(_count(of, "numbers"))))
        case 2:
            frame = Acknowledge(of.read_number())
        case 3:
            return _message(of)[0]
        case other:
            raise Malformed(f"there is no frame {other!r}")
    if of.read_body():
        raise Malformed("the frame is longer than its fields")
    return frame


def _message(of: _Reader) -> tuple[Message, int]:
    """A Message, and the position of the value of its last property, or of its body without properties."""
    addresses = tuple([of.read_string() for _ in range(_count(of, "addresses"))])
    content_type = of.read_string()
    properties = []
    at = of.at
    for _ in range(_count(of, "properties")):
        name, at = of.read_string(), of.at
        properties.append((name, of.read_string()))
    return Message(addresses, of.read_body(), content_type, tuple(properties)), at if properties else of.at


class CachingDecoder:
    """Decodes messages that often differ only in the value of the last property and in the body. The octets before them
    are decoded once and cached for the next message, at most MBWS_ALIKE octets.
    """

    def __init__(self, *, characters: bool = False) -> None:
        self._characters = characters
        self._stem = b""
        self._last = Message((), b"")

    def decode(self, message: bytes | str) -> Frame:
        """As `decode`."""
        if isinstance(message, str) or not message.startswith(_MESSAGE_OCTET):
            return decode(message, characters=self._characters)
        of, last = _BinaryReader(message, characters=self._characters), self._last
        if self._stem and message.startswith(self._stem):
            of.at = len(self._stem)
            properties = last.properties
            if properties:
                properties = (*properties[:-1], (properties[-1][0], of.read_string()))
            return Message(last.addresses, of.read_body(), last.content_type, properties)
        of.read_kind()
        frame, at = _message(of)
        if at <= MBWS_ALIKE:
            properties = frame.properties
            if properties:
                properties = (*properties[:-1], (properties[-1][0], ""))
            self._stem, self._last = (
                message[:at],
                Message(frame.addresses, b"", frame.content_type, properties),
            )
        return frame


def _count(of: _Reader, noun: str) -> int:
    count = of.read_number()
    if count > MBWS_ENTRIES:
        raise Malformed(f"{count} {noun}; {MBWS_ENTRIES} are the most")
    return count


class _Reader(Protocol):
    """Parses a message; `at` is the current position."""

    at: int

    def read_kind(self) -> int | str | None: ...

    def read_number(self) -> int: ...

    def read_string(self) -> str: ...

    def read_body(self) -> bytes: ...


class _BinaryReader:
    def __init__(self, message: bytes, *, characters: bool) -> None:
        self._data = message
        self.at = 0
        self._characters = characters

    def read_kind(self) -> int | None:
        """The first octet; None for an empty message."""
        self.at = 1
        return self._data[0] if self._data else None

    def read_number(self) -> int:
        if self.at < len(self._data) and (value := self._data[self.at]) < 0x80:  # most are small
            self.at += 1
            return value
        value = 0
        for place in range(8):
            if self.at >= len(self._data):
                raise Malformed("the frame ends in the middle of a number")
            octet = self._data[self.at]
            self.at += 1
            value |= (octet & 0x7F) << 7 * place
            if octet < 0x80:
                return value
        raise Malformed("a number has 8 octets at most")

    def read_string(self) -> str:
        length = self.read_number()
        end = self._after(length) if self._characters else self.at + length
        if end > len(self._data):
            raise Malformed("the frame ends in the middle of a string")
        octets, self.at = self._data[self.at : end], end
        try:
            return octets.decode()
        except UnicodeDecodeError:
            raise NotText("a string is UTF-8 text") from None

    def read_body(self) -> bytes:
        return self._data[self.at :]

    def _after(self, characters: int) -> int:
        """The position after the given number of characters: the next octet that is not a continuation
        (10xxxxxx).
        """
        at = self.at
        while characters:
            at += 1
            while at < len(self._data) and self._data[at] & 0xC0 == 0x80:
                at += 1
            if at > len(self._data):
                break
            characters -= 1
        return at


class _TextReader:
    def __init__(self, message: str) -> None:
        self._text = message
        self.at = 0

    def read_kind(self) -> int | str:
        """The number of the frame, if it is one digit and a space (MBWS-50 to 52)."""
        self.at = 2
        first = self._text[:2]
        return int(first[0]) if first in {"1 ", "2 ", "3 "} else first

    def read_number(self) -> int:
        end = self._text.find(" ", self.at, self.at + _DIGITS + 1)
        digits = self._text[self.at : end] if end >= 0 else ""
        if not (digits.isascii() and digits.isdecimal()) or int(digits) > LAST_NUMBER:
            raise Malformed(f"a number is 1 to {_DIGITS} digits and a space, {LAST_NUMBER} at most")
        self.at = end + 1
        return int(digits)

    def read_string(self) -> str:
        end = self.read_number() + self.at
        if end > len(self._text):
            raise Malformed("the frame ends in the middle of a string")
        text, self.at = self._text[self.at : end], end
        return text

    def read_body(self) -> bytes:
        return self._text[self.at :].encode()

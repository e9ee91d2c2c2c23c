"""MicroMessage2 on the wire: handshakes, then frames. Pure functions over octets; all numbers big-endian (MM2-61).

    handshake   major(1) minor(1) flags(1) identity-length(1) identity
                required-length(2) required optional-length(2) optional       (MM2-17)
    MESSAGE     flags(1) sequence(2) destination-length(1) destination
                properties-length(2) properties payload-length(1|4) payload   (MM2-36)
    COMMAND     flags(1) payload-length(1|4) payload                          (MM2-42)
    EXTENSION   flags(1) id(1) payload-length(1|4) payload                    (MM2-45)
    ERROR       flags(1) payload-length(1|4) text                             (MM2-65)

An ERROR may come instead of a handshake: its first octet is 4 or 12, which are therefore not major versions. A MESSAGE
of a client is called SEND; it is the same frame (MM2-03).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from mtl.doors.limits import MM2_TEXT
from mtl.doors.micromessage.values import (
    FilterValue,
    ascii_text,
    decode_arguments,
    decode_properties,
    encode_arguments,
    encode_properties,
    read_field,
)
from mtl.errors import FieldError, Malformed
from mtl.limits import MAX_CONTENT

MAJOR, MINOR = 1, 0
"""The version of this implementation (MM2-18)."""

LAST_SEQUENCE = 65_535
"""1 follows it (MM2-37, MM2-66)."""


COMMAND: Final = 1
EXTENSION: Final = 2
ERROR: Final = 4
LARGE_PAYLOAD: Final = 8
CONTINUED: Final = 16
"""Flags in the first octet of every frame (MM2-28). Plain numbers: combining enum flags costs a microsecond."""

_KIND: Final = COMMAND | EXTENSION | ERROR
_KNOWN: Final = _KIND | LARGE_PAYLOAD | CONTINUED

_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_NUMBERED = struct.Struct(">HB")
"""A message's sequence, and the length of its destination."""


class Handshake(msgspec.Struct, frozen=True):
    """One of the three steps. The lists are texts here (`negotiation` reads them); `flags` are reserved."""

    identity: str
    required: str = ""
    optional: str = ""
    major: int = MAJOR
    minor: int = MINOR
    flags: int = 0


class MessageFrame(msgspec.Struct, frozen=True):
    """MESSAGE or SEND, or with `continued` a piece of one: more of the same payload follows (MM2-31).

    Consecutive messages of one `MicroDecoder` with equal properties share them.
    """

    sequence: int
    destination: str
    payload: bytes
    properties: Mapping[str, FilterValue] = {}
    continued: bool = False


class CommandFrame(msgspec.Struct, frozen=True):
    """A command of the client."""

    name: str
    arguments: Mapping[str, str] = {}


class ExtensionFrame(msgspec.Struct, frozen=True):
    """A frame of the extension with this id; the payload is the extension's."""

    id: int
    payload: bytes


class Error(msgspec.Struct, frozen=True):
    """The reason why the sender disconnects."""

    text: str


Frame = MessageFrame | CommandFrame | ExtensionFrame | Error


# --- encoding -------------------------------------------------------------------------------------------------


def encode_handshake(handshake: Handshake) -> bytes:
    """The octets of a handshake. Raises `FieldError` for values that are too long."""
    h = handshake
    return b"".join(
        (
            bytes((h.major, h.minor, h.flags)),
            _sized(h.identity, 1, "an identity"),
            _sized(h.required, 2, "a list of extensions"),
            _sized(h.optional, 2, "a list of extensions"),
        )
    )


def encode(frame: Frame) -> bytes:
    """The octets of a frame. Raises `FieldError` for values that are too long."""
    match frame:
        case MessageFrame(sequence, destination, payload, properties, continued):
            head = encode_head(destination, encode_properties(properties))
            return encode_message(sequence, head, payload, continued=continued)
        case CommandFrame(name, arguments):
            words = f"{name};{encode_arguments(arguments)}" if arguments else name
            return _framed(COMMAND, b"", words.encode())
        case ExtensionFrame(id_, payload):
            return _framed(EXTENSION, bytes((id_,)), payload)
        case Error(text):
            return _framed(ERROR, b"", text.encode())


def encode_head(destination: str, properties: str) -> bytes:
    """The part of a MESSAGE between its number and its payload; `properties` as encoded by `encode_properties`.

    Raises `FieldError` for values that are too long.
    """
    return _sized(destination, 1, "a destination") + _sized(properties, 2, "properties")


def encode_message(sequence: int, head: bytes, payload: bytes, *, continued: bool = False) -> bytes:
    """A MESSAGE with a head of `encode_head`."""
    return _framed(CONTINUED if continued else 0, _U16.pack(sequence) + head, payload)


def _framed(flags: int, head: bytes, payload: bytes) -> bytes:
    """The payload's length has four octets where one is not enough (MM2-30)."""
    if len(payload) > 255:
        return b"%c%b%b%b" % (flags | LARGE_PAYLOAD, head, _U32.pack(len(payload)), payload)
    return b"%c%b%c%b" % (flags, head, len(payload), payload)


def _sized(text: str, octets: int, what: str) -> bytes:
    data = text.encode()
    try:
        return len(data).to_bytes(octets, "big") + data
    except OverflowError:
        raise FieldError(f"{what} of {len(data)} octets; {256**octets - 1} are the most") from None


# --- decoding -------------------------------------------------------------------------------------------------


class _Short(Exception):
    """There are not enough octets yet; for an incomplete number the exception is struct.error."""


class MicroDecoder:
    """Octets in, values out. A length that is too long is refused when it is read, before its octets are kept."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0
        self._last_properties = b""
        self._values: Mapping[str, FilterValue] = {}

    def feed(self, data: bytes) -> None:
        """Add received octets."""
        del self._data[: self._at]
        self._at = 0
        self._data += data

    def handshake(self) -> Handshake | Error | None:
        """The handshake, or the ERROR in its place; None while it is not whole. Raises `Malformed`."""
        if self.undecoded and self._data[self._at] in {ERROR, ERROR | LARGE_PAYLOAD}:
            frame = self.frame()
            assert frame is None or isinstance(frame, Error)
            return frame
        begin = self._at
        try:
            return self._handshake()
        except (_Short, struct.error):
            self._at = begin
            return None

    def frame(self) -> Frame | None:
        """The next frame; None while it is not whole. Raises `Malformed`."""
        begin = self._at
        if begin == len(self._data):
            return None
        try:
            return self._frame()
        except (_Short, struct.error):
            self._at = begin
            return None

    @property
    def undecoded(self) -> int:
        """Octets that are not decoded yet."""
        return len(self._data) - self._at

    def _handshake(self) -> Handshake:
        major, minor, flags = self._octets(3)
        identity = ascii_text(self._octets(self._number(_U8)), "an identity")
        required = ascii_text(self._octets(self._number(_U16)), "a list of extensions")
        optional = ascii_text(self._octets(self._number(_U16)), "a list of extensions")
        return Handshake(identity, required, optional, major, minor, flags)

    def _frame(self) -> Frame:
        flags = self._number(_U8)
        kind = flags & _KIND
        if flags & ~_KNOWN or kind.bit_count() > 1:
            raise Malformed(f"there is no frame with flags {flags}")
        if kind and flags & CONTINUED:
            raise Malformed("only messages come in pieces")
        width = _U32 if flags & LARGE_PAYLOAD else _U8
        if not kind:
            return self._message(width, continued=bool(flags & CONTINUED))
        if kind == EXTENSION:
            return ExtensionFrame(self._number(_U8), self._payload(width, MM2_TEXT))
        payload = self._payload(width, MM2_TEXT)
        return _command(payload) if kind == COMMAND else _error(payload)

    def _message(self, width: struct.Struct, *, continued: bool) -> MessageFrame:
        """Parsed without helper calls, since there is one for every content."""
        data = self._data
        sequence, length = _NUMBERED.unpack_from(data, self._at)
        named = self._at + _NUMBERED.size
        measured = named + length
        properties_at = measured + _U16.size
        sized = properties_at + _U16.unpack_from(data, measured)[0]
        length = width.unpack_from(data, sized)[0]
        if length > MAX_CONTENT:
            raise _too_long(length, MAX_CONTENT)
        begin = sized + width.size
        end = self._at = begin + length
        if end > len(data):
            raise _Short
        if not sequence:
            raise Malformed("sequence numbers begin with 1")
        try:
            destination = data[named:measured].decode()
        except UnicodeDecodeError:
            raise Malformed("a destination is UTF-8 text") from None
        if data[properties_at:sized] != self._last_properties:
            properties = bytes(data[properties_at:sized])
            self._values = decode_properties(ascii_text(properties, "the properties"))
            self._last_properties = properties
        return MessageFrame(sequence, destination, bytes(data[begin:end]), self._values, continued)

    def _payload(self, width: struct.Struct, most: int) -> bytes:
        length = self._number(width)
        if length > most:
            raise _too_long(length, most)
        return self._octets(length)

    def _number(self, width: struct.Struct) -> int:
        number: int = width.unpack_from(self._data, self._at)[0]
        self._at += width.size
        return number

    def _octets(self, count: int) -> bytes:
        begin = self._at
        end = self._at = begin + count
        if end > len(self._data):
            raise _Short
        return bytes(memoryview(self._data)[begin:end])


def _too_long(length: int, most: int) -> Malformed:
    return Malformed(f"a payload of {length} octets; {most} are the most in one frame of this kind")


def _command(payload: bytes) -> CommandFrame:
    name, _, arguments = ascii_text(payload, "a command").partition(";")
    return CommandFrame(read_field(name), decode_arguments(arguments))


def _error(payload: bytes) -> Error:
    try:
        return Error(payload.decode())
    except UnicodeDecodeError:
        raise Malformed("the text of an ERROR is UTF-8") from None


SEQUENCE: Final = struct.Struct(">H")
"""The payload of an acknowledgement (MM2-47)."""

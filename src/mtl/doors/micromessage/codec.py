"""MicroMessage2 on the wire: handshakes, then frames. Pure functions over octets; all numbers big-endian (MM2-61).

    handshake   major(1) minor(1) flags(1) identity-length(1) identity
                required-length(2) required optional-length(2) optional       (MM2-17)
    MESSAGE     flags(1) sequence(2) destination-length(1) destination
                properties-length(2) properties payload-length(1|4) payload   (MM2-36)
    COMMAND     flags(1) payload-length(1|4) payload                          (MM2-42)
    EXTENSION   flags(1) id(1) payload-length(1|4) payload                    (MM2-45)
    ERROR       flags(1) payload-length(1|4) text                             (MM2-65)

An ERROR may come instead of a handshake: a first octet of 4 or 12 is one, so those are no major versions. A MESSAGE of
a client is called SEND; it is the same frame (MM2-03).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Final

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
"""The version that is spoken here (MM2-18)."""

LAST_SEQUENCE = 65_535
"""1 follows it (MM2-37, MM2-66)."""


class Flag(IntFlag):
    """The first octet of every frame (MM2-28)."""

    COMMAND = 1
    EXTENSION = 2
    ERROR = 4
    LARGE_PAYLOAD = 8
    CONTINUED = 16


_KIND: Final = int(Flag.COMMAND | Flag.EXTENSION | Flag.ERROR)
_KNOWN: Final = int(_KIND | Flag.LARGE_PAYLOAD | Flag.CONTINUED)


@dataclass(frozen=True, slots=True)
class Handshake:
    """One of the three steps. The lists are texts here (`negotiation` reads them); `flags` are reserved."""

    identity: str
    required: str = ""
    optional: str = ""
    major: int = MAJOR
    minor: int = MINOR
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """MESSAGE or SEND, or with `continued` a piece of one: more of the same payload follows (MM2-31)."""

    sequence: int
    destination: str
    payload: bytes
    properties: Mapping[str, FilterValue] = field(default_factory=dict)
    continued: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the client."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Extension:
    """A frame of the extension with this id; the payload is the extension's."""

    id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Error:
    """Why the sender disconnects."""

    text: str


Frame = Message | Command | Extension | Error


# --- encoding -------------------------------------------------------------------------------------------------


def encode_handshake(handshake: Handshake) -> bytes:
    """Raises `FieldError` for what does not fit."""
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
    """The octets of a frame. Raises `FieldError` for what does not fit."""
    match frame:
        case Message(sequence, destination, payload, properties, continued):
            head = b"".join(
                (
                    sequence.to_bytes(2, "big"),
                    _sized(destination, 1, "a destination"),
                    _sized(encode_properties(properties), 2, "properties"),
                )
            )
            return _framed(Flag.CONTINUED if continued else Flag(0), head, payload)
        case Command(name, arguments):
            words = f"{name};{encode_arguments(arguments)}" if arguments else name
            return _framed(Flag.COMMAND, b"", words.encode())
        case Extension(id_, payload):
            return _framed(Flag.EXTENSION, bytes((id_,)), payload)
        case Error(text):
            return _framed(Flag.ERROR, b"", text.encode())


def _framed(flags: Flag, head: bytes, payload: bytes) -> bytes:
    """The payload's length has four octets where one is not enough (MM2-30)."""
    if len(payload) > 255:
        return b"%c%b%b%b" % (flags | Flag.LARGE_PAYLOAD, head, len(payload).to_bytes(4, "big"), payload)
    return b"%c%b%c%b" % (flags, head, len(payload), payload)


def _sized(text: str, octets: int, what: str) -> bytes:
    data = text.encode()
    try:
        return len(data).to_bytes(octets, "big") + data
    except OverflowError:
        raise FieldError(f"{what} of {len(data)} octets; {256**octets - 1} are the most") from None


# --- decoding -------------------------------------------------------------------------------------------------


class _Short(Exception):
    """There are not enough octets yet."""


class Decoder:
    """Octets in, values out. A length that is too long is refused when it is read, before its octets are kept."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Octets that came."""
        self._data += data

    def handshake(self) -> Handshake | Error | None:
        """The handshake, or the ERROR in its place; None while it is not whole. Raises `Malformed`."""
        if self._data and self._data[0] in {Flag.ERROR, Flag.ERROR | Flag.LARGE_PAYLOAD}:
            frame = self.frame()
            assert frame is None or isinstance(frame, Error)
            return frame
        try:
            found = self._handshake()
        except _Short:
            self._at = 0
            return None
        self._taken()
        return found

    def frame(self) -> Frame | None:
        """The next frame; None while it is not whole. Raises `Malformed`."""
        try:
            found = self._frame()
        except _Short:
            self._at = 0
            return None
        self._taken()
        return found

    @property
    def left(self) -> int:
        """Octets that are not decoded yet."""
        return len(self._data)

    def _taken(self) -> None:
        del self._data[: self._at]
        self._at = 0

    def _handshake(self) -> Handshake:
        major, minor, flags = self._octets(3)
        identity = ascii_text(self._octets(self._number(1)), "an identity")
        required = ascii_text(self._octets(self._number(2)), "a list of extensions")
        optional = ascii_text(self._octets(self._number(2)), "a list of extensions")
        return Handshake(identity, required, optional, major, minor, flags)

    def _frame(self) -> Frame:
        flags = self._number(1)
        kind = flags & _KIND
        if flags & ~_KNOWN or kind.bit_count() > 1:
            raise Malformed(f"there is no frame with flags {flags}")
        if kind and flags & Flag.CONTINUED:
            raise Malformed("only messages come in pieces")
        width = 4 if flags & Flag.LARGE_PAYLOAD else 1
        if not kind:
            return self._message(width, continued=bool(flags & Flag.CONTINUED))
        if kind == Flag.EXTENSION:
            return Extension(self._number(1), self._payload(width, MM2_TEXT))
        payload = self._payload(width, MM2_TEXT)
        return _command(payload) if kind == Flag.COMMAND else _error(payload)

    def _message(self, width: int, *, continued: bool) -> Message:
        sequence = self._number(2)
        destination = self._octets(self._number(1))
        properties = self._octets(self._number(2))
        payload = self._payload(width, MAX_CONTENT)
        if not sequence:
            raise Malformed("sequence numbers begin with 1")
        try:
            named = destination.decode()
        except UnicodeDecodeError:
            raise Malformed("a destination is UTF-8 text") from None
        values = decode_properties(ascii_text(properties, "the properties"))
        return Message(sequence, named, payload, values, continued)

    def _payload(self, width: int, most: int) -> bytes:
        length = self._number(width)
        if length > most:
            raise Malformed(f"a payload of {length} octets; {most} are the most in one frame of this kind")
        return self._octets(length)

    def _number(self, width: int) -> int:
        return int.from_bytes(self._octets(width), "big")

    def _octets(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise _Short
        taken = bytes(memoryview(self._data)[self._at : end])
        self._at = end
        return taken


def _command(payload: bytes) -> Command:
    name, _, arguments = ascii_text(payload, "a command").partition(";")
    return Command(read_field(name), decode_arguments(arguments))


def _error(payload: bytes) -> Error:
    try:
        return Error(payload.decode())
    except UnicodeDecodeError:
        raise Malformed("the text of an ERROR is UTF-8") from None


SEQUENCE: Final = struct.Struct(">H")
"""The payload of an acknowledgement (MM2-47)."""

"""Reactive Streams over a stream of octets, version 0: messages, both ways. No IO.

A message is its type and its fields, one after the other, each of which shows its own end (RS-03, RS-04):

    varint   LEB128, below 2^64, in at most ten octets
    text     varint length, UTF-8             octets   varint length, octets
    Ids      varint count, varints            element  octets; in a stream of fixed size without the length (RS-28)

The document leaves the types' numbers open; they are ours (docs/reference/doors-protocol.md 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from mtl.doors.limits import RS_ELEMENT, RS_PACKED, RS_STREAMS, RS_TEXT
from mtl.errors import FieldError, Malformed
from mtl.wire.fields import Buffer

VERSION = 0
"""The only version (RS-08)."""

# --- messages -----------------------------------------------------------------------------------------------


class ClientHello(Struct, frozen=True):
    """The first message of the side that opened the connection (RS-05)."""

    version: int = VERSION
    extensions: tuple[int, ...] = ()


class ServerHello(Struct, frozen=True):
    """The first message of the other side (RS-06)."""

    version: int = VERSION
    extensions: tuple[int, ...] = ()


class Goodbye(Struct, frozen=True):
    """The end of the connection and of all its streams, and the answer to it (RS-39, RS-40)."""

    reason: str = ""


class GoodbyeAck(Struct, frozen=True):
    """The answer to a goodbye in later drafts; understood, never sent. The octets after it are not read."""


class Subscribe(Struct, frozen=True):
    """Begin a stream; `subscriber` is its Id from now on, of its subscriber's choosing (RS-17, RS-26)."""

    publisher: str
    subscriber: int
    demand: int = 0


class RequestMore(Struct, frozen=True):
    """Demand for `demand` more elements (RS-18)."""

    subscriber: int
    demand: int


class Cancel(Struct, frozen=True):
    """Ends a stream from the subscriber's side (RS-19)."""

    subscriber: int


class Subscribed(Struct, frozen=True):
    """The stream has begun; its elements have `element_size` octets each, or with 0 any number (RS-20)."""

    subscriber: int
    element_size: int = 0


class OnNext(Struct, frozen=True):
    """One element (RS-21)."""

    subscriber: int
    element: Buffer


class OnNexts(Struct, frozen=True):
    """Several consecutive onNext of one stream; on the wire they are separate messages."""

    subscriber: int
    elements: tuple[bytes, ...]


class OnComplete(Struct, frozen=True):
    """The end (RS-22)."""

    subscriber: int


class OnError(Struct, frozen=True):
    """The end, and the reason (RS-23)."""

    subscriber: int
    error: str


class OnNextPacked(Struct, frozen=True):
    """Several elements of a stream of fixed size (RS-31)."""

    subscriber: int
    elements: tuple[bytes, ...]


class OnNextPart(Struct, frozen=True):
    """A part of an element, and not the last one; `element` is its number in the stream (RS-35)."""

    subscriber: int
    element: int
    data: Buffer


class OnNextLastPart(Struct, frozen=True):
    """The last part of an element."""

    subscriber: int
    element: int
    data: Buffer


Message: TypeAlias = (
    ClientHello
    | ServerHello
    | Goodbye
    | GoodbyeAck
    | Subscribe
    | RequestMore
    | Cancel
    | Subscribed
    | OnNext
    | OnNexts
    | OnComplete
    | OnError
    | OnNextPacked
    | OnNextPart
    | OnNextLastPart
)

# --- fields -------------------------------------------------------------------------------------------------

_VARINT_OCTETS = 10


class _CutOff(Exception):
    """A message is incomplete."""


Sizes: TypeAlias = Mapping[int, int]
"""Subscriber -> octets of each element, of the streams of fixed size."""

_Read: TypeAlias = Callable[[memoryview, int, list[Any], Sizes], tuple[Any, int]]
"""The field at a place, and the place behind it; `list` are the message's fields before it."""


class _Field(NamedTuple):
    read: _Read
    write: Callable[[Any, bool], bytes]
    """The octets of a value; the flag is whether the stream has a fixed size."""


def _read_varint(buf: memoryview, at: int, *_: object) -> tuple[int, int]:
    value = 0
    for index, octet in enumerate(buf[at : at + _VARINT_OCTETS]):
        value |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            if value >> 64:
                raise Malformed("a varint above 2^64 - 1")
            return value, at + index + 1
    if at + _VARINT_OCTETS <= len(buf):
        raise Malformed(f"a varint of more than {_VARINT_OCTETS} octets")
    raise _CutOff


def _write_varint(value: int, _: bool = False) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def _slice(buf: memoryview, at: int, size: int, most: int, noun: str) -> tuple[memoryview, int]:
    """Take `size` octets. A size above the limit is refused before the octets arrive."""
    if size > most:
        raise Malformed(f"{noun} of {size} octets; {most} are the most")
    if at + size > len(buf):
        raise _CutOff
    return buf[at : at + size], at + size


def _read_text(buf: memoryview, at: int, *_: object) -> tuple[str, int]:
    size, at = _read_varint(buf, at)
    raw, at = _slice(buf, at, size, RS_TEXT, "a text")
    try:
        return str(raw, "utf-8"), at
    except UnicodeDecodeError:
        raise Malformed("a text that is not UTF-8") from None


def _write_text(text: str, _: bool) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(f"{text!r} is not valid Unicode: {error.reason}") from error
    if len(raw) > RS_TEXT:
        raise FieldError(f"a text of {len(raw)} octets; {RS_TEXT} are the most")
    return _write_varint(len(raw)) + raw


def _read_ids(buf: memoryview, at: int, *_: object) -> tuple[tuple[int, ...], int]:
    count, at = _read_varint(buf, at)
    if count > RS_STREAMS:
        raise Malformed(f"{count} extensions; {RS_STREAMS} are the most")
    ids = []
    for _number in range(count):
        id_, at = _read_varint(buf, at)
        ids.append(id_)
    return tuple(ids), at


def _write_ids(ids: Sequence[int], _: bool) -> bytes:
    return b"".join(map(_write_varint, (len(ids), *ids)))


def _read_octets(buf: memoryview, at: int, *_: object) -> tuple[bytes, int]:
    size, at = _read_varint(buf, at)
    raw, at = _slice(buf, at, size, RS_ELEMENT, "an element")
    return bytes(raw), at


def _write_octets(octets: Buffer, _: bool) -> bytes:
    return _write_varint(len(octets)) + bytes(octets)


def _read_element(buf: memoryview, at: int, before: list[Any], sizes: Sizes) -> tuple[bytes, int]:
    size = sizes.get(before[0])
    if size is None:
        return _read_octets(buf, at)
    raw, at = _slice(buf, at, size, RS_ELEMENT, "an element")
    return bytes(raw), at


def _write_element(element: Buffer, fixed: bool) -> bytes:
    return bytes(element) if fixed else _write_octets(element, fixed)


def _read_packed(buf: memoryview, at: int, before: list[Any], sizes: Sizes) -> tuple[tuple[bytes, ...], int]:
    size = sizes.get(before[0])
    if size is None:
        raise Malformed("packed elements in a stream without a fixed size: their ends are unknown")
    count, at = _read_varint(buf, at)
    if count > RS_PACKED:
        raise Malformed(f"{count} packed elements; {RS_PACKED} are the most")
    raw, end = _slice(buf, at, count * size, RS_ELEMENT, "packed elements")
    return tuple(bytes(raw[first : first + size]) for first in range(0, count * size, size)), end


def _write_packed(elements: Sequence[bytes], _: bool) -> bytes:
    return _write_varint(len(elements)) + b"".join(elements)


# --- the messages' layouts ----------------------------------------------------------------------------------

_VARINT = _Field(_read_varint, _write_varint)
_TEXT = _Field(_read_text, _write_text)
_IDS = _Field(_read_ids, _write_ids)
_OCTETS = _Field(_read_octets, _write_octets)
_ELEMENT = _Field(_read_element, _write_element)
_PACKED = _Field(_read_packed, _write_packed)

_ON_NEXT: Final = 33

_LAYOUTS: Final[dict[int, tuple[type[Message], tuple[_Field, ...]]]] = {
    0: (ClientHello, (_VARINT, _IDS)),
    1: (ServerHello, (_VARINT, _IDS)),
    2: (Goodbye, (_TEXT,)),
    3: (GoodbyeAck, ()),
    16: (Subscribe, (_TEXT, _VARINT, _VARINT)),
    17: (RequestMore, (_VARINT, _VARINT)),
    18: (Cancel, (_VARINT,)),
    32: (Subscribed, (_VARINT, _VARINT)),
    _ON_NEXT: (OnNext, (_VARINT, _ELEMENT)),
    34: (OnComplete, (_VARINT,)),
    35: (OnError, (_VARINT, _TEXT)),
    36: (OnNextPacked, (_VARINT, _PACKED)),
    37: (OnNextPart, (_VARINT, _VARINT, _OCTETS)),
    38: (OnNextLastPart, (_VARINT, _VARINT, _OCTETS)),
}
"""Type -> message and its fields, in the order of the message's attributes."""

_TYPES: Final = {message: (number, fields) for number, (message, fields) in _LAYOUTS.items()}

# --- encoding and decoding ----------------------------------------------------------------------------------


def encode(message: Message, *, fixed: bool = False) -> bytes:
    """The octets of a message; `fixed` where it belongs to a stream of fixed size.

    Raises `FieldError` for a text that is too long or not Unicode.
    """
    if isinstance(message, OnNexts):
        return _encode_all(message, fixed)
    number, fields = _TYPES[type(message)]
    values = [getattr(message, name) for name in type(message).__match_args__]
    return b"".join(
        (
            _write_varint(number),
            *(field.write(value, fixed) for field, value in zip(fields, values, strict=True)),
        )
    )


def _encode_all(message: OnNexts, fixed: bool) -> bytes:
    head = _write_varint(_ON_NEXT) + _write_varint(message.subscriber)
    parts: list[Buffer] = []
    for element in message.elements:
        parts += (head, element) if fixed else (head, _write_varint(len(element)), element)
    return b"".join(parts)


class ReactiveDecoder:
    """Octets as they come, in any pieces; messages as they are complete.

    The size of an element may be given by the stream's `subscribed` only, so it keeps those sizes, at most RS_STREAMS.
    It holds at most one message in addition to the last octets fed.
    """

    def __init__(self) -> None:
        self._octets = bytearray()
        self._sizes: dict[int, int] = {}

    def feed(self, octets: Buffer) -> Iterator[Message]:
        """The messages that these octets complete. Raises `Malformed`, after which nothing more can be read."""
        self._octets += octets
        at = 0
        try:
            with memoryview(self._octets) as buf:
                while at < len(buf):
                    message, at = (self._read_all if buf[at] == _ON_NEXT else self._read)(buf, at)
                    yield message
        except _CutOff:
            pass
        del self._octets[:at]

    @property
    def waiting(self) -> int:
        """Octets of a message that is not complete."""
        return len(self._octets)

    def _read_all(self, buf: memoryview, at: int) -> tuple[Message, int]:
        """An onNext and those of its stream that follow it: the most frequent messages, decoded without the table."""
        subscriber, first = _read_varint(buf, at + 1)
        head, end, fixed = bytes(buf[at:first]), len(buf), self._sizes.get(subscriber)
        elements: list[bytes] = []
        behind = at
        while first < end and len(elements) < RS_PACKED:
            if fixed is not None:
                size = fixed
            elif buf[first] < 0x80:
                size, first = buf[first], first + 1
            else:
                try:
                    size, first = _read_varint(buf, first)
                except _CutOff:
                    break
            if size > RS_ELEMENT or first + size > end:
                break
            behind = first + size
            elements.append(bytes(buf[first:behind]))
            first = behind + len(head)
            if buf[behind:first] != head:
                break
        match elements:
            case []:  # it is cut off, or not a message
                return self._read(buf, at)
            case [element]:
                return OnNext(subscriber, element), behind
        return OnNexts(subscriber, tuple(elements)), behind

    def _read(self, buf: memoryview, at: int) -> tuple[Message, int]:
        number, at = _read_varint(buf, at)
        layout = _LAYOUTS.get(number)
        if layout is None:
            raise Malformed(f"there is no message type {number}")
        kind, fields = layout
        values: list[Any] = []
        for field in fields:
            value, at = field.read(buf, at, values, self._sizes)
            values.append(value)
        message: Message = kind(*values)
        if isinstance(message, Subscribed):
            self._remember(message)
        return message, at

    def _remember(self, subscribed: Subscribed) -> None:
        self._sizes.pop(subscribed.subscriber, None)
        if not subscribed.element_size:
            return
        if subscribed.element_size > RS_ELEMENT:
            raise Malformed(f"elements of {subscribed.element_size} octets; {RS_ELEMENT} are the most")
        if len(self._sizes) >= RS_STREAMS:
            raise Malformed(f"more than {RS_STREAMS} Ids with streams of fixed size")
        self._sizes[subscribed.subscriber] = subscribed.element_size

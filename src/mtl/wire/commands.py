"""The nine data commands and their two frames (RFC 11 "Data Flow", MTL-57..63, 67, 73, 78, 89, 94, 99, 101, 105..111).

    0x01 Lease    sequence, lease                     0x05 Content  sequence, resource, properties | body
    0x02 Response sequence | code                     0x06 Confirm  sequence, multiple
    0x03 Summon   sequence, resource                  0x07 Reject   sequence, multiple, recycle
    0x04 Dismiss  sequence, resource                  0x08 Ping     0x09 Pong

`encode` and `decode` are pure and exact: decode(*encode(command)) == command, and other frames are
Malformed. Bodies that the RFC calls unused are sent empty and ignored on receipt (PROTOCOL.md 1), except that of the
Pong to a holder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat, takewhile
from operator import eq
from typing import Any, TypeAlias

import msgspec

from mtl.errors import FieldError, Malformed
from mtl.wire.fields import (
    EMPTY,
    RESERVED,
    Buffer,
    cached_table,
    decode_table,
    encode_short,
    encode_table,
    is_printable,
    read_short,
)
from mtl.wire.limits import MAX_HEADER, MAX_SEQUENCE, REJECT_WORDS


class Lease(msgspec.Struct, frozen=True, gc=False):
    """0x01, the first command of a data flow: `lease` is the token of the 202. Answered by a Response (MTL-60..62)."""

    sequence: int
    lease: str


class Response(msgspec.Struct, frozen=True, gc=False):
    """0x02: the answer to the command `sequence` of the peer; `code` is 200, 400 or 403 (MTL-63, 64, 71, 76), or 201
    for a Lease (PROTOCOL.md 3).
    """

    sequence: int
    code: int


class Summon(msgspec.Struct, frozen=True, gc=False):
    """0x03: start to send contents of `resource`. Answered by a Response (MTL-67..72)."""

    sequence: int
    resource: str


class Dismiss(msgspec.Struct, frozen=True, gc=False):
    """0x04: stop sending contents of `resource`. Answered by a Response (MTL-73..77)."""

    sequence: int
    resource: str


class Content(msgspec.Struct, frozen=True, gc=False):
    """0x05, either way (MTL-78..83): `properties` is the encoded field table, known to be well-formed after decode.

    `resource` may be empty where the lease names only one. The profile defines what `sequence` counts (PROTOCOL.md 5).
    """

    sequence: int
    resource: str
    properties: bytes
    body: Buffer


class Confirm(msgspec.Struct, frozen=True, gc=False):
    """0x06: contents up to `sequence`, or only that one without `multiple`, are safe. No answer (MTL-89..93).
    `resource` says which resource of a lease that holds several is meant: UTF-8 in the body (PROTOCOL.md 5.3).
    """

    sequence: int
    multiple: bool
    resource: str = ""


class Reject(msgspec.Struct, frozen=True, gc=False):
    """0x07: as Confirm, but refused; `recycle` asks for another delivery. No answer (MTL-94..98). `reason` is an
    explanation from the consumer of a queue: UTF-8 in the body (PROTOCOL.md 6.1), REJECT_WORDS octets at most.
    """

    sequence: int
    multiple: bool
    recycle: bool
    reason: str = ""


class Ping(msgspec.Struct, frozen=True, gc=False):
    """0x08: asks the peer for a Pong (MTL-99)."""


class Pong(msgspec.Struct, frozen=True, gc=False):
    """0x09: the answer to a Ping (MTL-100, 101). For the holder of a group the body has the group's present `position`
    in decimal digits (PROTOCOL.md 5.3); None for any other body.
    """

    position: int | None = None


Command: TypeAlias = Lease | Response | Summon | Dismiss | Content | Confirm | Reject | Ping | Pong

_U64 = struct.Struct(">Q")
_I64 = struct.Struct(">q")
_NUMBERED = struct.Struct(">BQ")
_NAMED = struct.Struct(">BQB")
_CONFIRM = struct.Struct(">BQ?")
_REJECT = struct.Struct(">BQ??")
_SEQUENCE_AND_LENGTH = struct.Struct(">QB").unpack_from

_COMPARED = 128
"""Headers that are compared at a time. The header that ends a run costs at most this number of comparisons."""

_PING = Ping()
_PONG = Pong()
_MAX_DIGITS = 20
"""Digits of a number below 2^64."""


# --- the property that makes a content a pack ---------------------------------------------------------------

COUNT = "mtl-count"
"""Number of contents in the pack (i64, `l`). Only on leases that were granted `packed`."""

TIMESTAMP = "mtl-timestamp"
"""Append time in µs since 1970, UTC (i64, `l`): on every content that the broker delivers in `log` and `queue`."""

SEQUENCE = "mtl-sequence"
"""Position in the resource's log (i64, `l`), where the content's own sequence is a delivery number (`queue`)."""

REDELIVERED = "mtl-redelivered"
"""TRUE (`t`) when the content was delivered before (`queue`)."""

_COUNT_HEAD = encode_table({COUNT: 0})[:-8]
_COUNT_SIZE = len(_COUNT_HEAD) + 8
_BOTH_SIZE = _COUNT_SIZE + len(encode_table({TIMESTAMP: 0})) - 4
_BOTH_HEAD = encode_table({COUNT: 0, TIMESTAMP: 0})[: len(_COUNT_HEAD)]
_TIMESTAMP_HEAD = encode_table({TIMESTAMP: 0})[4:-8]
_TIMESTAMP_AT = _COUNT_SIZE + len(_TIMESTAMP_HEAD)
_STAMP_HEAD = encode_table({TIMESTAMP: 0})[:-8]


@lru_cache(maxsize=4096)
def _count_properties(count: int) -> bytes:
    return _COUNT_HEAD + _I64.pack(count)


def packed_properties(count: int, timestamp_us: int | None = None) -> bytes:
    """The properties of a pack of `count` contents: as a writer sends it or, with its append time, as delivered."""
    if timestamp_us is None:
        return _count_properties(count)
    return _BOTH_HEAD + _I64.pack(count) + _TIMESTAMP_HEAD + _I64.pack(timestamp_us)


def packed_count(properties: bytes) -> int | None:
    """The number of contents in a pack; None for a plain content. Malformed when `mtl-count` is not positive."""
    if properties == EMPTY:
        return None
    if _is_packed(properties):
        count: object = _I64.unpack_from(properties, _COUNT_SIZE - 8)[0]
    elif b"mtl-count" in properties:
        table = cached_table(properties)
        if COUNT not in table:
            return None
        count = table[COUNT]
    else:
        return None
    if type(count) is not int or count < 1:  # type(), since a bool is an int to isinstance
        raise Malformed(f"{COUNT} is {count!r}")
    return count


def delivery_timestamp(properties: bytes) -> int | None:
    """`mtl-timestamp` of a delivered content in µs; None when the sender gave none (another server, `test`)."""
    if len(properties) == _BOTH_SIZE and _is_packed(properties):
        stamp: object = _I64.unpack_from(properties, _TIMESTAMP_AT)[0]
    elif b"mtl-timestamp" in properties:
        stamp = cached_table(properties).get(TIMESTAMP)
    else:
        return None
    return stamp if type(stamp) is int else None


def reserved(properties: bytes) -> bool:
    """Whether well-formed properties hold a name of the broker (`mtl-...`), which plain contents must not send."""
    # Nearly always the four octets occur nowhere, and then nothing has to be decoded.
    return b"mtl-" in properties and any(name.startswith(RESERVED) for name in decode_table(properties))


def _is_packed(properties: bytes) -> bool:
    """Whether the table is exactly one of packed_properties, and so well-formed without being decoded."""
    size = len(properties)
    if size == _COUNT_SIZE:
        return properties.startswith(_COUNT_HEAD)
    return (
        size == _BOTH_SIZE
        and properties.startswith(_BOTH_HEAD)
        and properties.startswith(_TIMESTAMP_HEAD, _COUNT_SIZE)
    )


def _is_stamp(properties: bytes) -> bool:
    """Whether the table is a time stamp and nothing else, as on most plain contents that a broker delivers."""
    return len(properties) == len(_STAMP_HEAD) + 8 and properties.startswith(_STAMP_HEAD)


# --- encoding -----------------------------------------------------------------------------------------------


def encode(command: Command) -> tuple[bytes, Buffer]:
    """The header and body frames of `command`. The body of a Content is passed on as it is, and so are its properties.

    FieldError for a sequence outside u64, a name above 255 octets or with control characters, a code that is not
    three digits.
    """
    try:
        return _ENCODERS[type(command)](command)
    except (struct.error, UnicodeEncodeError) as error:
        raise FieldError(f"{command!r:.200} does not fit its encoding: {error}") from error


def _encode_content(command: Content) -> tuple[bytes, Buffer]:
    name = command.resource.encode()
    # The check of encode_short, spelt out: this runs for every content.
    if len(name) > 255 or not is_printable(command.resource):
        encode_short(command.resource)
    return _NAMED.pack(5, command.sequence, len(name)) + name + command.properties, command.body


def content_tail(resource: str, properties: bytes) -> bytes:
    """The part of a Content's header after the sequence; FieldError as `encode`."""
    return encode_short(resource) + properties


def content_headers(tail: bytes, first: int, count: int) -> list[bytes]:
    """The headers of `count` Contents with this tail and the sequences from `first` on."""
    return list(map(_headers_of(len(tail)), repeat(5, count), range(first, first + count), repeat(tail)))


def encode_contents(contents: Sequence[Content]) -> list[bytes]:
    """The headers of many Contents, as `encode` makes them; fast for Contents with the same resource and properties as
    the one before.
    """
    headers: list[bytes] = []
    resource, properties, tail, pack = "", b"", b"", None
    for content in contents:
        if pack is None or content.resource != resource or content.properties != properties:
            resource, properties = content.resource, content.properties
            tail = content_tail(resource, properties)
            pack = _headers_of(len(tail))
        headers.append(pack(5, content.sequence, tail))
    return headers


def content_run(headers: Sequence[bytes], at: int, tail: bytes, first: int, most: int = MAX_SEQUENCE) -> int:
    """The number of `headers` from `at` on, at most `most`, that are those of Contents first, first + 1, ... with this
    tail.
    """
    end, stop = at, min(len(headers), at + most, at + MAX_SEQUENCE + 1 - first)
    size = 9 + len(tail)
    while end < stop:
        compared = headers[end : min(end + _COMPARED, stop)]
        # Only headers of the right length are compared: the expected ones take no more memory than those received.
        as_long = sum(map(len, compared)) == size * len(compared)
        alike = len(compared) if as_long else sum(takewhile(bool, map(size.__eq__, map(len, compared))))
        expected = content_headers(tail, first + end - at, alike)
        same = alike if compared[:alike] == expected else sum(takewhile(bool, map(eq, compared, expected)))
        end += same
        if same < len(compared):
            break
    return end - at


@lru_cache(maxsize=1024)
def _headers_of(tail: int) -> Callable[[int, int, bytes], bytes]:
    return struct.Struct(f">BQ{tail}s").pack


def _encode_response(command: Response) -> tuple[bytes, Buffer]:
    if not 0 <= command.code <= 999:
        raise FieldError(f"{command.code} is not a three-digit code")
    return _NUMBERED.pack(2, command.sequence), b"%03d" % command.code


_ENCODERS: dict[type, Callable[[Any], tuple[bytes, Buffer]]] = {
    Lease: lambda c: (_NUMBERED.pack(1, c.sequence) + encode_short(c.lease), b""),
    Response: _encode_response,
    Summon: lambda c: (_NUMBERED.pack(3, c.sequence) + encode_short(c.resource), b""),
    Dismiss: lambda c: (_NUMBERED.pack(4, c.sequence) + encode_short(c.resource), b""),
    Content: _encode_content,
    Confirm: lambda c: (_CONFIRM.pack(6, c.sequence, c.multiple), c.resource.encode()),
    Reject: lambda c: (
        _REJECT.pack(7, c.sequence, c.multiple, c.recycle),
        _words(c.reason.encode(errors="replace")).encode(),
    ),
    Ping: lambda _: (b"\x08", b""),
    Pong: lambda c: (b"\x09", b"" if c.position is None else b"%d" % c.position),
}


# --- decoding -----------------------------------------------------------------------------------------------


def decode(header: Buffer, body: Buffer) -> Command:
    """The command in two frames; a Content keeps `body` as it is, so a view of the frame is not copied.

    Malformed for an unknown type, a field that is cut off, anything after the last field, a Boolean other than 0 or 1,
    a name that is not printable UTF-8, a malformed field table, a Response without three digits.
    """
    raw = header if type(header) is bytes else bytes(header)
    if len(raw) > MAX_HEADER:
        raise Malformed(f"a header of {len(raw)} octets")
    try:
        return _DECODERS[raw[0]](raw, body)
    except (IndexError, KeyError) as error:
        raise Malformed(f"no command has the type {raw[:1].hex() or 'of an empty header'}") from error
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed("a header is cut off or its name is not UTF-8") from error


def _decode_content(header: bytes, body: Buffer) -> Command:
    sequence, length = _SEQUENCE_AND_LENGTH(header, 1)
    end = 10 + length
    resource = str(header[10:end], "utf-8")
    if not is_printable(resource):
        raise Malformed("the name of a resource holds control characters")
    if len(header) < end:
        raise Malformed("the name of a resource is cut off")
    properties = header[end:] or EMPTY  # the RFC defines no encoding of a table, so peers may send none
    if properties != EMPTY and not _is_packed(properties) and not _is_stamp(properties):
        (cached_table if b"mtl-count" in properties else decode_table)(properties)
    return Content(sequence, resource, properties, body)


def _named(kind: Callable[[int, str], Command]) -> Callable[[bytes, Buffer], Command]:
    def decode_named(header: bytes, _body: Buffer) -> Command:
        name, end = read_short(header, 9)
        _check_end(header, end)
        return kind(_U64.unpack_from(header, 1)[0], name)

    return decode_named


def _decode_response(header: bytes, body: Buffer) -> Command:
    _check_end(header, 9)
    code = bytes(memoryview(body)[:4])
    if len(code) != 3 or not code.isdigit():
        raise Malformed("a Response without a three-digit code")
    return Response(_U64.unpack_from(header, 1)[0], int(code))


def _decode_confirm(header: bytes, body: Buffer) -> Command:
    _check_end(header, 10)
    return Confirm(_U64.unpack_from(header, 1)[0], _boolean(header[9]), _words(body))


def _decode_reject(header: bytes, body: Buffer) -> Command:
    _check_end(header, 11)
    return Reject(_U64.unpack_from(header, 1)[0], _boolean(header[9]), _boolean(header[10]), _words(body))


def _words(body: Buffer) -> str:
    """The beginning of a body that the RFC leaves unused, as text; other octets are not an error."""
    return bytes(memoryview(body)[:REJECT_WORDS]).decode(errors="ignore")


def _decode_pong(header: bytes, body: Buffer) -> Command:
    _check_end(header, 1)
    digits = bytes(memoryview(body)[: _MAX_DIGITS + 1])
    return Pong(int(digits)) if digits.isdigit() and len(digits) <= _MAX_DIGITS else _PONG


def _bare(command: Command) -> Callable[[bytes, Buffer], Command]:
    def decode_bare(header: bytes, _body: Buffer) -> Command:
        _check_end(header, 1)
        return command

    return decode_bare


def _check_end(header: bytes, end: int) -> None:
    if len(header) != end:
        raise Malformed(f"a header of type {header[0]} has {len(header)} octets instead of {end}")


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise Malformed(f"a Boolean of {octet}")
    return octet == 1


_DECODERS: dict[int, Callable[[bytes, Buffer], Command]] = {
    1: _named(Lease),
    2: _decode_response,
    3: _named(Summon),
    4: _named(Dismiss),
    5: _decode_content,
    6: _decode_confirm,
    7: _decode_reject,
    8: _bare(_PING),
    9: _decode_pong,
}

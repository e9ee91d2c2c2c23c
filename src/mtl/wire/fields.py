"""Field encodings: short strings, and the field table that RFC 11 leaves "to be defined" (MTL-105..109).

The table is AMQP 0-9-1's with RabbitMQ's tags (PROTOCOL.md 1): a u32 with the octets that follow, then entries of short
string name, tag octet and value, everything big-endian. The types in Python and their tags:

    bool t   int l   float d   str S   bytes x   datetime T (whole seconds, UTC)   Decimal D   list A   dict F   None V

A boolean octet other than 0 is true. A time after the year 9999, which no datetime holds, is a `LateTime`.

Decoding accepts every tag of RabbitMQ's and raises only Malformed; encoding raises only FieldError.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

from mtl.errors import FieldError, Malformed
from mtl.limits import MAX_SHORT_STRING, MAX_TABLE
from mtl.wire.limits import MAX_FIELD_NAME, MAX_TABLE_DEPTH, RESERVED_FIELDS

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Octets of a frame. At run time any object with the buffer protocol works (an Arrow buffer, a mapping)."""

Value: TypeAlias = (
    "bool | int | float | str | bytes | datetime | Decimal | list[Value] | dict[str, Value] | None"
)
"""The types of a field's value in Python."""

EMPTY = b"\0\0\0\0"
"""The encoded table without entries."""

RESERVED = "mtl-"
"""Prefix of the broker's own names: it adds them to delivered contents and refuses them from plain writers."""

CACHED_TABLES = 256
"""Decoded field tables in the cache: more than a reader's window has packs."""

KNOWN_TABLE = 1 << 10
"""Octets of the largest table in the cache: the broker's own have a tenth of that, and large ones take much memory."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S = (datetime.max.replace(microsecond=0, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
"""The last second that Python's datetime holds."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_U32 = struct.Struct(">I")
_DECIMAL = struct.Struct(">BI")
_U64 = struct.Struct(">Q")


# --- short strings ------------------------------------------------------------------------------------------


def is_printable(text: str) -> bool:
    """Whether `text` has no control characters (U+0000..1F, 7F..9F): the RFC's "printable" (PROTOCOL.md 1)."""
    # isprintable() is fast but too strict (no-break spaces, private use), so only a False is checked again.
    return text.isprintable() or _CONTROL.search(text) is None


def encode_short(text: str) -> bytes:
    """A short string with its length octet: 0 to 255 octets of UTF-8 without control characters (MTL-105). TypeError
    for other types than str.
    """
    raw = _utf8(text)
    if len(raw) > MAX_SHORT_STRING:
        raise FieldError(
            f"{text[:40]!r}... has {len(raw)} octets; a short string has at most {MAX_SHORT_STRING}"
        )
    if not is_printable(text):
        raise FieldError(f"{text!r} holds control characters, which a short string must not")
    return bytes((len(raw),)) + raw


def read_short(buf: bytes, at: int) -> tuple[str, int]:
    """The short string at `at` of `buf`, and the place after it. Malformed when it is cut off or not printable."""
    try:
        end = at + 1 + buf[at]
        text = str(buf[at + 1 : end], "utf-8")
    except (IndexError, UnicodeDecodeError) as error:
        raise Malformed("a short string is cut off or not UTF-8") from error
    if end > len(buf):
        raise Malformed("a short string is cut off")
    if not is_printable(text):
        raise Malformed("a short string holds control characters")
    return text, end


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(f"{text!r} is not valid Unicode: {error.reason}") from error
    except AttributeError:
        raise TypeError(f"a str is needed, not {type(text).__name__}: {text!r:.80}") from None


# --- tables: decoding ---------------------------------------------------------------------------------------

_FIXED: dict[int, tuple[Callable[[bytes, int], tuple[Any, ...]], int]] = {
    ord(tag): (struct.Struct(layout).unpack_from, struct.calcsize(layout))
    for tag, layout in {
        "t": ">?",
        "b": ">b",
        "B": ">B",
        "s": ">h",
        "u": ">H",
        "I": ">i",
        "i": ">I",
        "l": ">q",
        "L": ">q",
        "f": ">f",
        "d": ">d",
    }.items()
}
"""Tag -> (reader, octets) of the values that Python's struct knows."""


def decode_table(buf: Buffer) -> dict[str, Value]:
    """The table that fills `buf` exactly; a new dict, in the order of the entries.

    Malformed for a cut-off or trailing octet, an unknown tag, a name twice or above 128 octets, nesting deeper than
    MAX_TABLE_DEPTH, a string (S) that is not UTF-8, and above MAX_TABLE + RESERVED_FIELDS.
    """
    raw = buf if isinstance(buf, bytes) else bytes(buf)
    if raw == EMPTY:
        return {}
    if len(raw) > MAX_TABLE + RESERVED_FIELDS:
        raise Malformed(f"a field table of {len(raw)} octets")
    try:
        table, at = _read_table(raw, 0, len(raw), 1)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise Malformed("a field table is cut off or holds an impossible value") from error
    if at != len(raw):
        raise Malformed(f"{len(raw) - at} octets after a field table")
    return table


def cached_table(buf: bytes) -> Mapping[str, Value]:
    """As `decode_table`, read-only and cached, for tables that are decoded several times: that of a pack with a
    `FileRange` five times on its way.
    """
    return _cached(buf) if len(buf) <= KNOWN_TABLE else decode_table(buf)


@lru_cache(maxsize=CACHED_TABLES)
def _cached(buf: bytes) -> Mapping[str, Value]:
    return MappingProxyType(decode_table(buf))


def _read_block(buf: bytes, at: int, end: int) -> tuple[int, int]:
    """Begin and end (exclusive) of the block after the u32 length at `at`; the block must not go beyond `end`."""
    first = at + 4
    stop = first + int(_U32.unpack_from(buf, at)[0])
    if stop > end:
        raise Malformed("a length in a field table points beyond its end")
    return first, stop


def _read_table(buf: bytes, at: int, end: int, depth: int) -> tuple[dict[str, Value], int]:
    if depth > MAX_TABLE_DEPTH:
        raise Malformed(f"field tables nested deeper than {MAX_TABLE_DEPTH}")
    at, stop = _read_block(buf, at, end)
    table: dict[str, Value] = {}
    while at < stop:
        if buf[at] > MAX_FIELD_NAME:
            raise Malformed(f"a field name of {buf[at]} octets")
        name, at = read_short(buf, at)
        if name in table:
            raise Malformed("a field name occurs twice")
        table[name], at = _read_value(buf, at, stop, depth)
    if at > stop:
        raise Malformed("an entry runs over the end of its field table")
    return table, at


def _read_array(buf: bytes, at: int, end: int, depth: int) -> tuple[list[Value], int]:
    if depth > MAX_TABLE_DEPTH:
        raise Malformed(f"field tables nested deeper than {MAX_TABLE_DEPTH}")
    at, stop = _read_block(buf, at, end)
    array: list[Value] = []
    while at < stop:
        value, at = _read_value(buf, at, stop, depth)
        array.append(value)
    if at > stop:
        raise Malformed("a value runs over the end of its array")
    return array, at


def _read_value(buf: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    """The value whose tag is at `at`. Callers check that the returned place is not beyond their end."""
    tag = buf[at]
    at += 1
    fixed = _FIXED.get(tag)
    if fixed is not None:
        unpack, size = fixed
        return unpack(buf, at)[0], at + size
    match tag:
        case 0x53:  # S
            first, stop = _read_block(buf, at, end)
            return str(buf[first:stop], "utf-8"), stop
        case 0x78:  # x
            first, stop = _read_block(buf, at, end)
            return buf[first:stop], stop
        case 0x54:  # T
            return _time(_U64.unpack_from(buf, at)[0]), at + 8
        case 0x44:  # D
            scale, digits = _DECIMAL.unpack_from(buf, at)
            return Decimal((0, tuple(map(int, str(digits))), -scale)), at + 5
        case 0x41:  # A
            return _read_array(buf, at, end, depth + 1)
        case 0x46:  # F
            return _read_table(buf, at, end, depth + 1)
        case 0x56:  # V
            return None, at
    raise Malformed(f"field tag {tag:#04x} is unknown")


class LateTime(int):
    """A time after the year 9999, which no datetime holds: its seconds since 1970."""


def _time(seconds: int) -> datetime | LateTime:
    return _EPOCH + timedelta(seconds=seconds) if seconds <= _LAST_S else LateTime(seconds)


# --- tables: encoding ---------------------------------------------------------------------------------------

_I64 = struct.Struct(">cq")
_F64 = struct.Struct(">cd")
_TIME = struct.Struct(">cQ")
_SCALED = struct.Struct(">cBI")
_MAX_U32 = 0xFFFF_FFFF


def encode_table(table: Mapping[str, Value]) -> bytes:
    """`table` encoded, in its own order. FieldError for a name or value that no field can hold, or above MAX_TABLE."""
    if not table:
        return EMPTY
    raw = _encode_table(table, 1)
    if len(raw) > MAX_TABLE:
        raise FieldError(
            f"a field table of {len(raw)} octets; {MAX_TABLE} is the limit, larger data belongs in the body"
        )
    return raw


def encode_properties(properties: Mapping[str, Value] | None) -> bytes:
    """As encode_table, for the properties of a content that is to be sent: names of the broker are refused."""
    if not properties:
        return EMPTY
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties have to be a mapping, not {type(properties).__name__}")
    raw = encode_table(properties)  # first, since it checks that every name is a string
    for name in properties:
        if name.startswith(RESERVED):
            raise FieldError(f"property {name!r}: names that begin with {RESERVED!r} are the broker's")
    return raw


def join_tables(table: bytes, more: bytes) -> bytes:
    """One encoded table with the entries of both. No name may be in both."""
    if table == EMPTY:
        return more
    return _U32.pack(len(table) + len(more) - 8) + table[4:] + more[4:]


def _encode_table(table: Mapping[str, Value], depth: int) -> bytes:
    _check_depth(depth)
    parts: list[bytes] = []
    for name, value in table.items():
        if not isinstance(name, str):
            raise FieldError(f"field name {name!r} is not a string")
        short = encode_short(name)
        if len(short) > MAX_FIELD_NAME + 1:
            raise FieldError(f"field name {name!r} is longer than {MAX_FIELD_NAME} octets")
        parts += (short, _encode_value(value, depth))
    return _block(b"".join(parts))


def _check_depth(depth: int) -> None:
    if depth > MAX_TABLE_DEPTH:
        raise FieldError(f"field tables and arrays nest at most {MAX_TABLE_DEPTH} deep")


def _block(raw: bytes) -> bytes:
    if len(raw) > _MAX_U32:
        raise FieldError(f"a field of {len(raw)} octets")
    return _U32.pack(len(raw)) + raw


def _encode_int(value: int, _depth: int) -> bytes:
    try:
        return _I64.pack(b"l", value)
    except struct.error as error:
        raise FieldError(f"{value} does not fit into 64 bits; send it as a string or as bytes") from error


def _encode_datetime(value: datetime, _depth: int) -> bytes:
    if value.tzinfo is None:
        raise FieldError(f"{value!r} has no time zone; a field holds UTC")
    seconds = (value - _EPOCH) // timedelta(seconds=1)  # AMQP's timestamps count whole seconds
    if seconds < 0:
        raise FieldError(f"{value} is before 1970, which a timestamp field cannot hold")
    return _TIME.pack(b"T", seconds)


def _encode_decimal(value: Decimal, _depth: int) -> bytes:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or value < 0:
        raise FieldError(
            f"{value} is not a decimal that a field can hold (finite and not negative); send a string"
        )
    whole = int("".join(map(str, digits)))
    # The exponent is checked before the power is computed: that of Decimal("1e999999999") would fill the memory.
    if 0 <= exponent <= len(str(_MAX_U32)):
        whole, exponent = whole * 10**exponent, 0
    if exponent > 0 or exponent < -255 or whole > _MAX_U32:
        raise FieldError(f"{value} does not fit: a decimal field has 32 bits of digits and a scale up to 255")
    return _SCALED.pack(b"D", -exponent, whole)


def _encode_array(value: Iterable[Value], depth: int) -> bytes:
    _check_depth(depth + 1)
    return b"A" + _block(b"".join([_encode_value(item, depth + 1) for item in value]))


def _encode_bytes(value: Buffer, _depth: int) -> bytes:
    return b"x" + _block(bytes(value))


_ENCODERS: dict[type, Callable[[Any, int], bytes]] = {
    bool: lambda value, _: b"t\x01" if value else b"t\x00",
    int: _encode_int,
    float: lambda value, _: _F64.pack(b"d", value),
    str: lambda value, _: b"S" + _block(_utf8(value)),
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
    datetime: _encode_datetime,
    LateTime: lambda value, _: _TIME.pack(b"T", value),
    Decimal: _encode_decimal,
    list: _encode_array,
    tuple: _encode_array,
    dict: lambda value, depth: b"F" + _encode_table(value, depth + 1),
    type(None): lambda *_: b"V",
}


def _encode_value(value: Value, depth: int) -> bytes:
    encoder = _ENCODERS.get(type(value))
    if encoder is None:  # a subclass (an IntEnum, a pandas Timestamp), or another type
        encoder = next((_ENCODERS[kind] for kind in _ENCODERS if isinstance(value, kind)), None)
        if encoder is None:
            raise FieldError(f"a field cannot hold a {type(value).__name__}: {value!r:.80}")
    return encoder(value, depth)

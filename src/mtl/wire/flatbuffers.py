"""Reads a peer's flatbuffers without trusting their offsets, as far as Arrow's metadata needs it.

Fields of a table have the numbers of its schema (.fbs). Malformed for an offset that points outside of the buffer.
"""

from __future__ import annotations

import struct

from mtl.errors import Malformed

U8 = struct.Struct("<B")
U16 = struct.Struct("<H")
I16 = struct.Struct("<h")
U32 = struct.Struct("<I")
I32 = struct.Struct("<i")
I64 = struct.Struct("<q")


def field(buffer: bytes, table: int, number: int) -> int:
    """The place of field `number` of the table at `table`; 0 when it is absent."""
    vtable = table - read(I32, buffer, table)
    size = read(U16, buffer, vtable)
    slot = 4 + 2 * number
    if size % 2:
        raise Malformed("a broken flatbuffer")
    offset = read(U16, buffer, vtable + slot) if slot < size else 0
    return table + offset if offset else 0


def scalar(kind: struct.Struct, buffer: bytes, table: int, number: int) -> int:
    """The number in a field; 0 when it is absent."""
    at = field(buffer, table, number)
    return read(kind, buffer, at) if at else 0


def follow(buffer: bytes, at: int) -> int:
    """The place that the offset at `at` points to: a table or a vector."""
    return at + read(U32, buffer, at)


def length(buffer: bytes, table: int, number: int) -> int:
    """The number of elements of the vector in a field; 0 when it is absent."""
    at = field(buffer, table, number)
    return read(U32, buffer, follow(buffer, at)) if at else 0


def read(kind: struct.Struct, buffer: bytes, at: int) -> int:
    """The number at `at`."""
    if not 0 <= at <= len(buffer) - kind.size:
        raise Malformed("a flatbuffer that points outside of itself")
    return int(kind.unpack_from(buffer, at)[0])

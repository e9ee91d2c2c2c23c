"""Flatbuffers as in the metadata of an Arrow message: Message {1 header type, 2 header}, Schema {1 fields}."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mtl.errors import Malformed
from mtl.wire.flatbuffers import I64, U8, U16, U32, field, follow, length, read, scalar

MESSAGE = bytes(pa.schema([("a", pa.int8()), ("b", pa.int8())]).serialize())[8:]
TABLE = read(U32, MESSAGE, 0)
SCHEMA = 1


def test_fields_of_a_table_are_found_by_number() -> None:
    assert scalar(U8, MESSAGE, TABLE, 1) == SCHEMA
    assert length(MESSAGE, follow(MESSAGE, field(MESSAGE, TABLE, 2)), 1) == 2


def test_an_absent_field_is_zero() -> None:
    assert field(MESSAGE, TABLE, 9) == scalar(I64, MESSAGE, TABLE, 9) == length(MESSAGE, TABLE, 9) == 0


@pytest.mark.parametrize("at", [-1, len(MESSAGE) - 3, 1 << 40])
def test_offsets_outside_of_the_buffer_are_malformed(at: int) -> None:
    with pytest.raises(Malformed, match="points outside of itself"):
        read(U32, MESSAGE, at)


def test_a_vtable_of_odd_size_is_malformed() -> None:
    vtable = 4
    table = vtable + 8
    broken = bytes(vtable) + U16.pack(7) + bytes(6) + U32.pack(table - vtable)
    with pytest.raises(Malformed, match="broken flatbuffer"):
        field(broken, table, 0)

"""Computes how many octets an Arrow body takes after decompression and cast, before they are allocated.

A few octets can stand for gigabytes: a compressed buffer, a dictionary value or view that is used many times, a null
column, a fixed-size list of nulls. The stream states the sizes that Arrow would allocate; this module adds them up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from mtl.errors import Malformed
from mtl.wire.flatbuffers import I64, U32, field, follow, length, read
from pyspark_mtl.limits import MAX_BODY_ROWS

_BUFFER = 16
"""Octets of a buffer's place in the metadata: its offset and its length."""

_OFFSET = 4
"""Octets of an offset in Spark's strings, lists and maps."""

# --- decompressing ------------------------------------------------------------------------------------------


def decompressed(body: Any, names: Collection[str]) -> int:
    """Octets of the columns `names`, and of all dictionaries, after decompression, as the stream states them.

    Decompresses nothing, and allocates only the stream's schema. Raises Arrow's errors for a damaged stream, and
    Malformed for damaged metadata, also for more buffers than a batch has.
    """
    total = 0
    schema: Any = None
    messages = pa.ipc.MessageReader.open_stream(body)
    while (message := _next(messages)) is not None:
        if message.type == "schema":
            schema = pa.ipc.read_schema(message)
        elif message.type in {"record batch", "dictionary"}:
            meta = message.metadata.to_pybytes()
            batch = follow(meta, field(meta, read(U32, meta, 0), 2))
            wanted = None
            if message.type == "dictionary":
                batch = follow(meta, field(meta, batch, 1))
            _check_counts(meta, batch)
            if message.type == "record batch" and schema is not None:
                wanted = _selected(schema, names, _variadic(meta, batch))
            total += sum(_stated(meta, batch, memoryview(message.body), wanted))
    return total


def _next(messages: Any) -> Any:
    try:
        return messages.read_next_message()
    except StopIteration:
        return None


def _stated(meta: bytes, batch: int, body: memoryview, wanted: list[bool] | None) -> Iterator[int]:
    """The decompressed length of each `wanted` buffer of a batch; of all buffers if `wanted` does not fit their number.

    RecordBatch {2 buffers [{offset, length}], 3 compression}; a buffer of a compressed batch begins with its
    decompressed length, or with -1 if this buffer is not compressed.
    """
    if not field(meta, batch, 3):
        return
    count, first = length(meta, batch, 2), follow(meta, field(meta, batch, 2)) + 4
    if wanted is None or len(wanted) != count:
        wanted = [True] * count
    for number, is_wanted in enumerate(wanted):
        at, size = read(I64, meta, first + _BUFFER * number), read(I64, meta, first + _BUFFER * number + 8)
        if is_wanted and size >= I64.size:
            yield max(0, read(I64, bytes(body[at : at + I64.size]), 0))


def _check_counts(meta: bytes, batch: int) -> None:
    """Malformed unless the buffers of a batch, and those of each column of views, have a place in its metadata. Arrow
    allocates a reference for each before it finds out.
    """
    count = length(meta, batch, 2)
    if count > len(meta) // _BUFFER or length(meta, batch, 4) > len(meta) // I64.size:
        raise Malformed("a batch that states more buffers than its metadata describes")
    views = list(_variadic(meta, batch))
    if any(buffers < 0 for buffers in views) or sum(views) > count:
        raise Malformed("columns of views that state more buffers than their batch has")


def _variadic(meta: bytes, batch: int) -> Iterator[int]:
    """The number of data buffers of each column of views, in column order (RecordBatch field 4)."""
    for number in range(length(meta, batch, 4)):
        yield read(I64, meta, follow(meta, field(meta, batch, 4)) + 4 + 8 * number)


def _selected(schema: Any, names: Collection[str], variadic: Iterator[int]) -> list[bool]:
    """For each buffer of a batch whether it belongs to a column of these names."""
    selected: list[bool] = []
    for column in schema:
        selected += [column.name in names] * _buffers(column.type, variadic)
    return selected


def _buffers(kind: Any, variadic: Iterator[int]) -> int:
    """The number of buffers of a column in a message (Columnar.rst, "RecordBatch message")."""
    if isinstance(kind, pa.BaseExtensionType):
        return _buffers(kind.storage_type, variadic)
    if types.is_null(kind):
        return 0
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return 2 + next(variadic, 0)
    if (
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
    ):
        return 3
    own = 2
    if types.is_union(kind):
        own = 1 if kind.mode == "sparse" else 2
    elif types.is_struct(kind) or types.is_fixed_size_list(kind):
        own = 1
    elif types.is_list_view(kind) or types.is_large_list_view(kind):
        own = 3
    elif types.is_run_end_encoded(kind):
        own = 0
    return own + sum(_buffers(kind.field(at).type, variadic) for at in range(kind.num_fields))


# --- casting ------------------------------------------------------------------------------------------------


def cast(column: Any, kind: Any) -> int:
    """Most octets of a valid column after a cast to a Spark type, as which it can be read (`arrow_types.check`)."""
    if isinstance(column, pa.ExtensionArray):
        return cast(column.storage, kind)
    if types.is_null(column.type):
        return nulls(len(column), kind)
    if types.is_struct(kind):
        return _of_struct(column, kind)
    if types.is_map(kind):
        return _OFFSET * len(column) + cast(column.keys, kind.key_type) + cast(column.items, kind.item_type)
    if types.is_list(kind):
        return _OFFSET * len(column) + cast(column.values, kind.value_type)
    if types.is_string(kind) or types.is_binary(kind):
        return _OFFSET * len(column) + _of_text(column)
    values = _of_dictionary(column) if types.is_dictionary(column.type) else 0
    return values + nulls(len(column), kind)


def nulls(count: int, kind: Any) -> int:
    """Octets of `count` rows of a Spark type, without the octets of values of variable length."""
    if types.is_struct(kind):
        return sum(nulls(count, kind.field(at).type) for at in range(kind.num_fields))
    if types.is_nested(kind) or types.is_string(kind) or types.is_binary(kind):
        return _OFFSET * count
    return 0 if types.is_null(kind) else count * max(8, int(kind.bit_width)) // 8


def _of_struct(column: Any, kind: Any) -> int:
    total = 0
    for at in range(kind.num_fields):
        wanted = kind.field(at)
        place = column.type.get_field_index(wanted.name)
        total += nulls(len(column), wanted.type) if place < 0 else cast(column.field(place), wanted.type)
    return total


def _of_text(column: Any) -> int:
    """Octets of a column's values after a cast to text or binary."""
    kind = column.type
    if types.is_dictionary(kind):
        return _of_dictionary(column)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        views = memoryview(column.buffers()[1]).cast("B").cast("i")  # 16 octets each, the length first
        return sum(max(0, size) for size in views[4 * column.offset : 4 * (column.offset + len(column)) : 4])
    return int(column.nbytes)


def _of_dictionary(column: Any) -> int:
    """Octets of a dictionary column's values, one copy per row. An upper bound if it exceeds MAX_BODY_ROWS rows."""
    values = column.dictionary
    if not isinstance(values, pa.StringArray | pa.BinaryArray | pa.LargeStringArray | pa.LargeBinaryArray):
        return len(column) * (int(values.type.bit_width) // 8 + 1)
    sizes = pc.binary_length(values)
    if len(column) > MAX_BODY_ROWS:
        return len(column) * (pc.max(sizes).as_py() or 0)
    return int(pc.sum(pc.take(sizes, column.indices)).as_py() or 0)

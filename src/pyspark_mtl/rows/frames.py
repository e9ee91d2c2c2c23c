"""Converts packs to rows and rows to packs, in whole columns, without a loop over rows.

The rows of a pack share the memory of its bodies; the added columns follow from values that all contents of a pack
share. In the other direction a frame of Spark becomes packs of the same bodies, sliced to the size limit of a pack.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mtl.errors import ContentTooLarge, SchemaError
from mtl.limits import MAX_PACK_CONTENTS, MAX_PACK_PROPERTIES
from mtl.wire.packs import SCHEMA
from pyspark_mtl.rows.properties import MAP, to_maps, to_tables

ROWS = pa.schema([
    ("resource", pa.string()),
    ("sequence", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("body", pa.binary()),
])  # fmt: skip
"""The schema with which Spark compares the first batch of a task: order, types and nullability."""

ROWS_WITH_PROPERTIES = ROWS.append(pa.field("properties", MAP))

_TIMESTAMP = ROWS.field("timestamp").type

# Columns are made of buffers, not of Python values: the first `pa.scalar` or `pa.array` of a process imports pandas if
# it is installed, which takes each of Spark's workers a third of a second.


def _numbers(values: Iterable[int], kind: Any) -> Any:
    numbers = array("q", values)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _same(number: int, count: int, kind: Any) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(array("q", (number,)) * count)])


_COUNTING = _numbers(range(MAX_PACK_CONTENTS), pa.int64())


def _names(resource: str, count: int) -> Any:
    """A resource's name for each row, cut from a cached column of the next power of two."""
    return _repeated(resource, min(1 << count.bit_length(), MAX_PACK_CONTENTS)).slice(0, count)


@lru_cache(maxsize=4)
def _repeated(resource: str, count: int) -> Any:
    name = resource.encode()
    offsets = array("i", range(0, len(name) * count + 1, len(name)))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(name * count)]
    )


def rows(pack: Any, resource: str, first: int, timestamp_us: int | None, *, include_properties: bool) -> Any:
    """The rows of a pack: contents of `resource` from `first` on, appended at `timestamp_us` (µs since 1970)."""
    count = pack.num_rows
    columns = [
        _names(resource, count),
        pc.add(_COUNTING.slice(0, count), _numbers([first], pa.int64())[0]),
        pa.nulls(count, _TIMESTAMP) if timestamp_us is None else _same(timestamp_us, count, _TIMESTAMP),
        pack.column("body"),
    ]
    if not include_properties:
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)
    columns.append(to_maps(pack.column("properties")))
    return pa.RecordBatch.from_arrays(columns, schema=ROWS_WITH_PROPERTIES)


def contents(frame: Any, resource: str | None) -> Iterator[tuple[str, Any]]:
    """A frame's rows as contents (batches of mtl.wire.packs.SCHEMA) by resource, each resource's rows in their order.

    The target is `resource`, or with None the column `resource`. SchemaError for a null body or resource.
    """
    body = _column(frame, "body", pa.binary())
    if body.null_count:
        raise SchemaError("the body of a row is null; a content without octets has an empty body")
    times = _column(frame, "timestamp", ROWS.field("timestamp").type)
    tables = to_tables(frame.num_rows, _column(frame, "properties", MAP), times)
    batch = pa.RecordBatch.from_arrays([tables, body], schema=SCHEMA)
    if resource is None:
        yield from _by_resource(batch, _column(frame, "resource", pa.string()))
    elif batch.num_rows:
        yield resource, batch


def gathered(frames: Iterable[Any], octets: int) -> Iterator[Any]:
    """The same rows in frames of at least `octets` each (the last may be smaller), so that they make large packs."""
    waiting: list[Any] = []
    size = 0
    for frame in frames:
        waiting.append(frame)
        size += frame.nbytes
        if size >= octets:
            yield from _concatenate(waiting)
            waiting, size = [], 0
    yield from _concatenate(waiting)


def _concatenate(frames: list[Any]) -> list[Any]:
    """The frames as one; several only if one column would exceed the octets of an Arrow column."""
    return frames if len(frames) < 2 else pa.Table.from_batches(frames).combine_chunks().to_batches()


def _column(frame: Any, name: str, kind: Any) -> Any:
    """A column cast to `kind`, or None if it is missing: Spark may pass a large or non-nullable variant."""
    index = frame.schema.get_field_index(name)
    return None if index < 0 else frame.column(index).cast(kind)


def _by_resource(batch: Any, names: Any) -> Iterator[tuple[str, Any]]:
    """The rows of each resource, in the order of first occurrence; a stable sort keeps the order of rows."""
    if names.null_count:
        raise SchemaError("the resource of a row is null; every row has to name one")
    encoded = names.dictionary_encode()
    resources = encoded.dictionary.to_pylist()
    if len(resources) > 1:
        batch = batch.take(pc.sort_indices(encoded.indices))
    at = 0
    counts = {count["values"]: count["counts"] for count in encoded.indices.value_counts().to_pylist()}
    for index, resource in enumerate(resources):
        yield resource, batch.slice(at, counts[index])
        at += counts[index]


def split(batch: Any, max_content: int, max_pack: int) -> Iterator[Any]:
    """Slices of a batch of contents that each fit a pack: at most `max_pack` octets of bodies and properties together,
    and at most MAX_PACK_PROPERTIES octets of properties.

    ContentTooLarge for a body above `max_content`, before the first slice.
    """
    body, properties = batch.column("body"), batch.column("properties")
    bodies, tables = _offsets(body), _offsets(properties)
    at, count = 0, batch.num_rows
    if bodies[count] - bodies[0] > max_content:  # otherwise no single body can be too large
        largest = pc.max(pc.binary_length(body)).as_py()
        if largest > max_content:
            raise ContentTooLarge(largest, max_content)
    while at < count:
        room = bodies[at] + tables[at] + max_pack
        until = bisect_right(range(count + 1), room, lo=at, key=lambda row: bodies[row] + tables[row]) - 1
        described = bisect_right(tables, tables[at] + MAX_PACK_PROPERTIES, lo=at, hi=count + 1) - 1
        until = max(at + 1, min(until, described, at + MAX_PACK_CONTENTS))
        yield batch.slice(at, until - at)
        at = until


def _offsets(column: Any) -> memoryview:
    """The start of each value in the data of a binary column, and the end of the last one."""
    if not len(column):
        return memoryview(bytes(4)).cast("i")
    return memoryview(column.buffers()[1]).cast("B").cast("i")[column.offset :]

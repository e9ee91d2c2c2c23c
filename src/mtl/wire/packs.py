"""Packed contents: many contents as one Arrow record batch, the same octets from a writer's frame to a Spark row.

A pack is one encapsulated RecordBatch message of SCHEMA (no schema message, no end mark), uncompressed and without
dictionaries:

    0xFFFFFFFF, u32 size of the metadata, metadata (flatbuffer), body of `bodyLength` octets

A peer's octets are read with SCHEMA only, after a check of the metadata that trusts no offset in it: Arrow would
allocate any amount that a compressed or false message asks for. Nothing is copied: the batch refers to the frame.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from mtl.errors import ContentTooLarge, FieldError, Malformed
from mtl.limits import MAX_PACK, MAX_PACK_CONTENTS, MAX_PACK_PROPERTIES, MAX_TABLE, PACK_OVERHEAD
from mtl.wire.commands import reserved
from mtl.wire.fields import EMPTY, Buffer, decode_table
from mtl.wire.flatbuffers import I16, I64, U8, U32, field, follow, length, read, scalar
from mtl.wire.limits import PACK_METADATA

RecordBatch: TypeAlias = Any
"""A pyarrow.RecordBatch of SCHEMA; pyarrow has no type hints."""

ArrowBuffer: TypeAlias = Any
"""A pyarrow.Buffer: octets that keep their owner alive."""

SCHEMA = pa.schema([("properties", pa.binary()), ("body", pa.binary())])
"""Schema of every pack. `properties` is an encoded field table, null when it has no entries; `body` is never null."""

_ARROW_ERRORS = (pa.ArrowException, OSError, MemoryError, KeyError, ValueError, EOFError, NotImplementedError)
"""Errors that reading damaged messages raised (observed over millions of mutations)."""


_OFFSET = struct.Struct("=i")

_PADDING = 64
"""Arrow rounds the data of a slice up to this many octets."""


# --- writing ------------------------------------------------------------------------------------------------


def pack_size(contents: int, octets: int) -> int:
    """The most octets of a pack with the given number of contents, whose bodies and properties have `octets`
    together.

    Up to MAX_PACK of these and MAX_PACK_CONTENTS always fit a pack: PACK_OVERHEAD covers the difference.
    """
    offsets = 2 * (4 * (contents + 1) + 8)
    validity = 2 * (contents // 8 + 8)
    return octets + 16 + offsets + validity + PACK_METADATA


def encode_pack(
    bodies: Sequence[Buffer], properties: Sequence[bytes | None] | None = None, max_pack: int = MAX_PACK
) -> Buffer:
    """One pack of plain contents, in order; `properties` are encoded tables, None or EMPTY where there are none.

    ContentTooLarge above `max_pack` octets (the broker's limit) or MAX_PACK_CONTENTS; FieldError without bodies.
    """
    sizes = list(map(len, bodies))
    octets = sum(sizes)
    _check_local(len(sizes), octets, max_pack)
    if properties is None or all(table is None or table == EMPTY for table in properties):
        pack = _encode_bodies(bodies, sizes, octets)
        _check_local(len(sizes), len(pack), max_pack)
        return pack
    offsets = pa.py_buffer(_offsets(sizes))
    column = pa.Array.from_buffers(pa.binary(), len(sizes), [None, offsets, pa.py_buffer(b"".join(bodies))])
    tables = pa.array([None if table == EMPTY else table for table in properties], pa.binary())
    return memoryview(encode_batch(pa.RecordBatch.from_arrays([tables, column], schema=SCHEMA), max_pack))


def _encode_bodies(bodies: Sequence[Buffer], sizes: Sequence[int], octets: int) -> bytes:
    """A pack of contents without properties, with the same octets as from Arrow. Arrow takes 35 us, which would delay a
    single content, and copies every body a second time.
    """
    head = _single_head(octets) if len(sizes) == 1 else _head(sizes, octets)
    return b"".join((head, *bodies, bytes(_padding(octets))))


def _head(sizes: Sequence[int], octets: int) -> bytes:
    """The octets before the bodies: Arrow's metadata for the given number of contents, with their two lengths, and
    the offsets.
    """
    template = _template(len(sizes))
    metadata = bytearray(template.metadata)
    I64.pack_into(metadata, template.length_at, template.length + octets + _padding(octets))
    I64.pack_into(metadata, template.octets_at, octets)
    return b"".join((metadata, bytes(template.before), _offsets(sizes), bytes(template.behind)))


@lru_cache(maxsize=1024)
def _single_head(octets: int) -> bytes:
    """`_head` of a single content, cached: its writer waits, and is likely to send more of that size."""
    return _head((octets,), octets)


def _padding(octets: int) -> int:
    return -octets % 8


class _Template(NamedTuple):
    """A pack of the given number of empty contents without properties. `metadata` is all before the message's body,
    which is `before` zeros, the offsets and `behind` zeros, together `length` octets. The metadata states that
    length at `length_at`, and the octets of all contents at `octets_at`.
    """

    metadata: bytes
    before: int
    behind: int
    length: int
    length_at: int
    octets_at: int


@lru_cache(maxsize=4096)
def _template(count: int) -> _Template:
    """As Arrow encodes it. Field numbers as in `_check_message`; a Buffer is {offset, length}, 64 bits each."""
    # pa.array also works, but imports pandas if it is installed.
    empty = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")]
    )
    columns = [pa.nulls(count, pa.binary()), empty]
    pack = memoryview(pa.RecordBatch.from_arrays(columns, schema=SCHEMA).serialize())
    _, size = _FRAMING.unpack_from(pack)
    meta = bytes(pack[8 : 8 + size])
    message = read(U32, meta, 0)
    length_at, header = field(meta, message, 3), field(meta, message, 2)
    vector = field(meta, follow(meta, header), 2)
    buffers = follow(meta, vector) + 4
    offsets_at, data_at = buffers + 16 * (_BUFFERS - 2), buffers + 16 * (_BUFFERS - 1)
    before = read(I64, meta, offsets_at)
    behind = read(I64, meta, data_at) - before - 4 * (count + 1)
    whole = read(I64, meta, length_at)
    return _Template(bytes(pack[: 8 + size]), before, behind, whole, 8 + length_at, 8 + data_at + 8)


def _offsets(sizes: Sequence[int]) -> bytes:
    return array("i", accumulate(sizes, initial=0)).tobytes()


def encode_batch(batch: RecordBatch, max_pack: int = MAX_PACK) -> ArrowBuffer:
    """A batch of SCHEMA as a pack, with one copy; of a slice only its own rows. Errors as encode_pack."""
    pack = _encodable(batch).serialize()
    _check_local(batch.num_rows, pack.size, max_pack)
    return pack


def _encodable(batch: RecordBatch) -> RecordBatch:
    """A batch for encoding: the rows of `batch`, without other data in its memory."""
    _check_batch(batch)
    return pa.RecordBatch.from_arrays([_cut(column) for column in batch.columns], schema=SCHEMA)


def _check_batch(batch: RecordBatch) -> None:
    if batch.schema.names != SCHEMA.names or batch.schema.types != SCHEMA.types:
        raise FieldError(f"a batch of {batch.schema.to_string()!r} is not a pack of {SCHEMA.to_string()!r}")
    if batch.column(1).null_count:
        raise FieldError("a content's body is null")
    _check_local(batch.num_rows, 0, 0)


def _cut(column: Any) -> Any:
    """`column` with its data ending with its last value, without a copy.

    After a slice Arrow would send up to 63 octets of the following data as padding: of another content, maybe of
    another resource.
    """
    validity, offsets, data = column.buffers()
    if data is None or offsets is None:
        return column
    end = _offset(offsets, column.offset + len(column))
    if end == data.size:
        return column
    buffers = [validity, offsets, data.slice(0, end)]
    return pa.Array.from_buffers(column.type, len(column), buffers, column.null_count, column.offset)


def _check_local(count: int, size: int, max_pack: int) -> None:
    if count == 0:
        raise FieldError("a pack of no contents")
    if count > MAX_PACK_CONTENTS:
        raise ContentTooLarge(count, MAX_PACK_CONTENTS, "pack", "contents")
    if size > max_pack + PACK_OVERHEAD:
        raise ContentTooLarge(size, max_pack + PACK_OVERHEAD, "pack")


# --- reading ------------------------------------------------------------------------------------------------


def decode_pack(buf: Buffer | ArrowBuffer, count: int, *, check_properties: bool = True) -> RecordBatch:
    """The batch in a peer's pack of `count` contents, in the memory of `buf`; Malformed for anything else.

    It checks:

    - the message (`_check_message`) and every offset;
    - that all octets belong to one of `count` contents, and that each content has a body;
    - that the properties have at most MAX_PACK_PROPERTIES octets, and that each distinct one is a field table without
      names of the broker. `check_properties` False leaves this out, for readers that trust their broker.
    """
    view = memoryview(buf)
    if not 0 < count <= MAX_PACK_CONTENTS or view.nbytes > MAX_PACK + PACK_OVERHEAD:
        raise Malformed(f"a pack of {count} contents and {view.nbytes} octets")
    _check_message(view, count)
    batch = trust_pack(buf)
    try:
        batch.validate(full=True)
        properties, body = batch.columns
        if not len(properties) == len(body) == batch.num_rows == count:
            raise Malformed("a pack whose columns differ in length")
        if body.null_count:
            raise Malformed("a pack with a body that is null")
        _check_extent(properties)
        _check_extent(body)
        if check_properties and properties.null_count != count:
            _check_properties(properties)
    except _ARROW_ERRORS as error:
        raise Malformed(f"a pack that Arrow refuses: {error}") from error
    return batch


def trust_pack(buf: Buffer | ArrowBuffer) -> RecordBatch:
    """The batch in a pack that decode_pack accepted before, without checks. Malformed if Arrow cannot read it."""
    try:
        return pa.ipc.read_record_batch(buf if isinstance(buf, pa.Buffer) else pa.py_buffer(buf), SCHEMA)
    except _ARROW_ERRORS as error:
        raise Malformed(f"a pack that Arrow refuses: {error}") from error


def unpack(batch: RecordBatch) -> Iterator[tuple[bytes, memoryview]]:
    """Properties (encoded) and body of each content, in order; the bodies are views of the pack's memory."""
    tables, bodies = unpacked(batch)
    return zip(repeat(EMPTY, len(bodies)) if tables is None else tables, bodies, strict=True)


def unpacked(batch: RecordBatch) -> tuple[list[bytes] | None, list[memoryview]]:
    """As `unpack`, in two lists; None for the properties when no content has any."""
    count = batch.num_rows
    if count == 0:
        return None, []
    properties, body = batch.columns
    _, offsets, data = body.buffers()
    ends = memoryview(offsets)[4 * body.offset : 4 * (body.offset + count + 1)].cast("b").cast("i").tolist()
    octets = memoryview(data if data is not None else b"").cast("B")
    bodies = list(map(octets.__getitem__, map(slice, ends, ends[1:])))
    if properties.null_count == count:
        return None, bodies
    return [table or EMPTY for table in properties.to_pylist()], bodies


def _check_extent(column: Any) -> None:
    """Malformed unless there is one offset more than values, and they cover the data from its first octet to its last.

    The message does not name its types, so the number of offsets distinguishes binary from large_binary. Data that
    belongs to no content would be stored and never read; only the padding that Arrow adds after a slice is accepted.
    """
    _, offsets, data = column.buffers()
    if offsets is None or offsets.size != 4 * (len(column) + 1):
        raise Malformed("a pack with more or fewer offsets than contents")
    hidden = (data.size if data is not None else 0) - _offset(offsets, len(column))
    if _offset(offsets, 0) != 0 or hidden >= _PADDING:
        raise Malformed("a pack with octets that belong to no content")


def _offset(offsets: ArrowBuffer, index: int) -> int:
    return int(_OFFSET.unpack_from(offsets, 4 * index)[0])


def _check_properties(properties: Any) -> None:
    """Check each distinct table once: properties repeat, and a plain reader must never get a malformed one."""
    octets = _offset(properties.buffers()[1], len(properties))
    if octets > MAX_PACK_PROPERTIES:
        raise Malformed(f"a pack with {octets} octets of properties")
    for table in properties.unique().to_pylist():
        if table is None or table == EMPTY:
            continue
        if len(table) > MAX_TABLE:
            raise Malformed(f"a pack with properties of {len(table)} octets")
        decode_table(table)
        if reserved(table):
            raise Malformed("a pack with a property of the broker's")


# --- the message's metadata, without trusting it ------------------------------------------------------------

_FRAMING = struct.Struct("<II")

_CONTINUATION = 0xFFFF_FFFF
_VERSION_5 = 4
_RECORD_BATCH = 3
_COLUMNS = 2
_BUFFERS = 6  # of each column: validity, offsets, data


def _check_message(view: memoryview, count: int) -> None:
    """Malformed unless `view` is exactly one RecordBatch message of `count` rows, metadata V5, not compressed.

    The columns and buffers are counted, since Arrow ignores additional ones, which would be stored and never read.
    Field numbers are those of Arrow's Message.fbs: Message {0 version, 1 header type, 2 header, 3 bodyLength} and
    RecordBatch {0 length, 1 nodes, 2 buffers, 3 compression}.
    """
    if len(view) < _FRAMING.size:
        raise Malformed("a pack that is cut off")
    marker, size = _FRAMING.unpack_from(view)
    if marker != _CONTINUATION or size > PACK_METADATA or size % 8:
        raise Malformed("a pack that is not one Arrow message")
    if 8 + size + _check_metadata(bytes(view[8 : 8 + size]), count) != len(view):
        raise Malformed("a pack whose length is not the one that it states")


@lru_cache(maxsize=64)
def _check_metadata(meta: bytes, count: int) -> int:
    """The length of the body after the metadata. Cached: packs of contents of one size have the same metadata."""
    message = read(U32, meta, 0)
    version = scalar(I16, meta, message, 0)
    kind = scalar(U8, meta, message, 1)
    if (version, kind) != (_VERSION_5, _RECORD_BATCH):
        raise Malformed(f"a pack with Arrow metadata of version {version} and kind {kind}")
    header = field(meta, message, 2)
    batch = follow(meta, header)
    if field(meta, batch, 3):
        raise Malformed("a pack that is compressed")
    if scalar(I64, meta, batch, 0) != count:
        raise Malformed(f"a pack that does not hold {count} contents")
    if (length(meta, batch, 1), length(meta, batch, 2)) != (_COLUMNS, _BUFFERS):
        raise Malformed("a pack with other columns")
    return scalar(I64, meta, message, 3)

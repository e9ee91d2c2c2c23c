"""Segment files and index files: names, headers, the dedup snapshot, the columns of an index. Pure functions.

    %020d.segment   header, 64 octets | dedup snapshot, padded to 64 | chunks (chunk.py)
    0  magic "MTLSEGMT"   8 version u32   12 flags u32 (1: adopted, see below)
    16 base sequence u64    24 base time u64 (µs)    32 salt u64
    40 writers u32          44 snapshot crc u32 (of the padded snapshot)
    48 reserved u64, 0      56 reserved u32, 0       60 header crc u32 (of octets 0..59)
    snapshot: (writer id u64, last publishing number u64) by writer id; the dedup table when the segment began

    %020d.index     written once, when the segment is sealed; header, 64 octets, then four columns of u64
    0  magic "MTLINDEX"   8 version u32   12 reserved u32, 0
    16 chunks u64         24 length of the segment u64     32 contents u64    40 newest relative time u64
    48 salt u64           56 columns crc u32               60 header crc u32 (of octets 0..59)
    columns: relative sequence, file offset, relative time, shape (body length | runs << 32) of every chunk

Little-endian. The name of a segment is its base sequence. What is relative stays true when a stage's segment is
adopted by a log: only its header is rewritten, with the flag `adopted`. All contents of an adopted segment have its
base time, that of the commit, whatever their relative times say: those are when the stage was written, and counted
on top of the base time they would run ahead of the clock.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mtl.errors import NewerVersion
from mtl.log.chunk import RUN_SIZE, checksum, padded

VERSION = 1
HEADER_SIZE = 64
ADOPTED = 1

SEGMENT_MAGIC = b"MTLSEGMT"
INDEX_MAGIC = b"MTLINDEX"

# Files in the making, one of each per log: whatever has another name is complete.
TEMPORARY = "segment.tmp"
NEW_INDEX = "index.new"
NEW_LINK = "link.new"
STASHED = "segment.new"
"""The next segment, complete, waiting for its name: it keeps the dedup table while adopted segments get theirs."""

_SEGMENT = struct.Struct("<8sIIQQQIIQI")
_INDEX = struct.Struct("<8sIIQQQQQI")
_CRC = struct.Struct("<I")
_WRITER = struct.Struct("<QQ")
_NAME = re.compile(r"(\d{20})\.segment")
_INDEX_NAME = re.compile(r"(\d{20})\.index")


def segment_name(base: int) -> str:
    return f"{base:020d}.segment"


def index_name(base: int) -> str:
    return f"{base:020d}.index"


def segment_base(name: str) -> int | None:
    """The base sequence in a segment's name, None for other files."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def index_base(name: str) -> int | None:
    found = _INDEX_NAME.fullmatch(name)
    return int(found[1]) if found else None


class SegmentHeader(NamedTuple):
    base: int
    time: int
    salt: int
    writers: int = 0
    snapshot_crc: int = 0
    adopted: bool = False

    @property
    def start(self) -> int:
        """File offset of the first chunk."""
        return HEADER_SIZE + padded(self.writers * _WRITER.size)


def encode_segment(base: int, time: int, salt: int, numbers: Mapping[int, int]) -> bytes:
    """Header and snapshot of a new segment."""
    table = b"".join(_WRITER.pack(writer, numbers[writer]) for writer in sorted(numbers))
    table += bytes(padded(len(table)) - len(table))
    header = SegmentHeader(base, time, salt, len(numbers), checksum(table))
    return encode_segment_header(header) + table


def encode_segment_header(header: SegmentHeader) -> bytes:
    flags = ADOPTED if header.adopted else 0
    fields = _SEGMENT.pack(
        SEGMENT_MAGIC,
        VERSION,
        flags,
        header.base,
        header.time,
        header.salt,
        header.writers,
        header.snapshot_crc,
        0,
        0,
    )
    return fields + _CRC.pack(checksum(fields))


def decode_segment_header(data: bytes, path: str) -> SegmentHeader | None:
    """None when the octets are no segment header; NewerVersion when they are one of a later format."""
    if not _is_header(data, SEGMENT_MAGIC):
        return None
    _, version, flags, base, time, salt, writers, crc, _, _ = _SEGMENT.unpack_from(data)
    if version != VERSION or flags & ~ADOPTED:
        raise newer(path, version, flags)
    return SegmentHeader(base, time, salt, writers, crc, bool(flags & ADOPTED))


def decode_snapshot(data: bytes, header: SegmentHeader) -> dict[int, int] | None:
    """The dedup table at the head of a segment (the octets after its header), None when they do not verify."""
    table = data[: header.start - HEADER_SIZE]
    if len(table) < header.start - HEADER_SIZE or checksum(table) != header.snapshot_crc:
        return None
    return dict(_WRITER.iter_unpack(table[: header.writers * _WRITER.size]))


def newer(path: str, version: int, flags: int = 0) -> NewerVersion:
    return NewerVersion(
        f"{path} was written by a newer version of this software (format {version}, flags {flags}); "
        "use that version, this one would damage the data"
    )


def _is_header(data: bytes, magic: bytes) -> bool:
    if len(data) < HEADER_SIZE or data[:8] != magic:
        return False
    crc: int = _CRC.unpack_from(data, HEADER_SIZE - 4)[0]
    return crc == checksum(data[: HEADER_SIZE - 4])


class Entry(NamedTuple):
    """A chunk for an index: file offset, relative time, contents, body length, runs, and where in the file it ends."""

    offset: int
    time: int
    contents: int
    body: int
    runs: int
    end: int


def _column() -> array[int]:
    return array("Q")


@dataclass(slots=True, eq=False)
class Index:
    """Where the chunks of one segment are: parallel columns, one entry per chunk, and what lies after the last one.

    In the active segment the columns are arrays that grow; of a sealed one they are views of its index file. Only
    `add` and `cut` change an index, and only one that began empty.
    """

    salt: int
    sequences: Sequence[int] = field(default_factory=_column)
    offsets: Sequence[int] = field(default_factory=_column)
    times: Sequence[int] = field(default_factory=_column)
    shapes: Sequence[int] = field(default_factory=_column)
    contents: int = 0
    length: int = 0
    newest: int = 0

    def __len__(self) -> int:
        return len(self.sequences)

    def add(self, entry: Entry) -> None:
        """One more chunk."""
        values = (self.contents, entry.offset, entry.time, entry.body | entry.runs << 32)
        for column, value in zip(self.columns(), values, strict=True):
            column.append(value)  # type: ignore[attr-defined] # an array while it grows
        self.contents += entry.contents
        self.length = entry.end
        self.newest = entry.time

    def cut(self, contents: int) -> Index:
        """A copy that ends before relative sequence `contents`, which must be a boundary."""
        keep = bisect_right(self.sequences, contents - 1)
        length = self.offsets[keep] if keep < len(self) else self.length
        newest = self.times[keep - 1] if keep else 0
        sequences, offsets, times, shapes = (array("Q", column[:keep]) for column in self.columns())
        return Index(self.salt, sequences, offsets, times, shapes, contents, length, newest)

    def columns(self) -> tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]:
        return self.sequences, self.offsets, self.times, self.shapes

    def is_boundary(self, contents: int) -> bool:
        place = bisect_right(self.sequences, contents) - 1
        return contents == self.contents or (place >= 0 and self.sequences[place] == contents)

    def find(self, sequence: int) -> int:
        """The place of the chunk that holds a relative sequence below `contents`."""
        return bisect_right(self.sequences, sequence) - 1

    def find_offset(self, offset: int) -> int:
        """The place of the last chunk that begins at or before a file offset, -1 when none does."""
        return bisect_right(self.offsets, offset) - 1

    def count(self, place: int) -> int:
        following = self.sequences[place + 1] if place + 1 < len(self.sequences) else self.contents
        return following - self.sequences[place]

    def body(self, place: int) -> int:
        """Octets of the chunk's body."""
        return self.shapes[place] & 0xFFFFFFFF

    def runs(self, place: int) -> int:
        return self.shapes[place] >> 32

    def table(self, place: int) -> int:
        """Octets of the chunk's run table, padded."""
        return padded(self.runs(place) * RUN_SIZE)


def encode_index(index: Index) -> bytes:
    columns = b"".join(map(_to_bytes, index.columns()))
    fields = _INDEX.pack(
        INDEX_MAGIC,
        VERSION,
        0,
        len(index),
        index.length,
        index.contents,
        index.newest,
        index.salt,
        checksum(columns),
    )
    return fields + _CRC.pack(checksum(fields)) + columns


def decode_index(data: bytes, path: str) -> Index | None:
    """The index in the octets of a whole file, None when they do not verify. Views, no copies."""
    if not _is_header(data, INDEX_MAGIC):
        return None
    _, version, _, chunks, length, contents, newest, salt, crc = _INDEX.unpack_from(data)
    if version != VERSION:
        raise newer(path, version)
    view = memoryview(data)[HEADER_SIZE:]
    if view.nbytes != chunks * 32 or checksum(view) != crc:
        return None
    size = chunks * 8
    sequences, offsets, times, shapes = (_to_column(view[at * size : (at + 1) * size]) for at in range(4))
    return Index(salt, sequences, offsets, times, shapes, contents, length, newest)


def _to_bytes(column: Sequence[int]) -> bytes:
    copy = array("Q", column)
    if sys.byteorder == "big":
        copy.byteswap()
    return copy.tobytes()


def _to_column(view: memoryview) -> Sequence[int]:
    if sys.byteorder == "little":
        return view.cast("Q")
    copy = array("Q", view.tobytes())
    copy.byteswap()
    return copy

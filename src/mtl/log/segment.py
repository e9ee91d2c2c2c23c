"""Segment files and index files: names, headers, the dedup snapshot, the columns of an index. Pure functions.

    %020d.segment   header, 64 octets | dedup snapshot, padded to 64 | chunks (chunk.py)
    0  magic "MTLSEGMT"   8 version u32   12 reserved u32, 0
    16 base sequence u64    24 base time u64 (µs)    32 salt u64
    40 writers u32          44 snapshot crc u32 (of the padded snapshot)
    48 reserved u64, 0      56 reserved u32, 0       60 header crc u32 (of octets 0..59)
    snapshot: (writer id u64, last publishing number u64) by writer id; the dedup table when the segment began

    %020d.index     written once, when the segment is sealed; header, 80 octets, then four columns of u64
    0  magic "MTLINDEX"   8 version u32   12 flags u32 (1: adopted)
    16 base sequence u64    24 base time u64 (µs)    32 salt u64 (the segment's)
    40 chunks u64    48 length of the segment u64    56 contents u64    64 newest relative time u64
    72 columns crc u32      76 header crc u32 (of octets 0..75)
    columns: relative sequence, file offset, relative time, shape (body length | runs << 32) of every chunk

Little-endian. The name of a file is its base sequence. Sequences and times in a segment are relative to its base, so a
log adopts a stage's segment unchanged, by a link; the log's own index for it has the new base and the flag `adopted`.
All contents of an adopted segment have its base time, that of the commit. Their relative times are ignored: they say
when the stage was written, and added to the base time they would be ahead of the clock.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mtl.errors import UnknownFormat
from mtl.log.chunk import RUN_SIZE, checksum, padded

VERSION = 1
HEADER_SIZE = 64
INDEX_HEADER_SIZE = 80
INDEX_ENTRY = 32
ADOPTED = 1

SEGMENT_MAGIC = b"MTLSEGMT"
INDEX_MAGIC = b"MTLINDEX"

# Incomplete files, one of each per log. A file with any other name is complete.
TEMPORARY = "segment.tmp"
NEW_INDEX = "index.new"
NEW_LINK = "link.new"
STASHED = "segment.new"
"""The next segment, complete, without its final name: it keeps the dedup table while adopted segments get theirs."""

_SEGMENT = struct.Struct("<8sIIQQQIIQI")
_INDEX = struct.Struct("<8sIIQQQQQQQI")
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
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def index_base(name: str) -> int | None:
    match = _INDEX_NAME.fullmatch(name)
    return int(match[1]) if match else None


class SegmentHeader(NamedTuple):
    base: int
    time: int
    salt: int
    writers: int = 0
    snapshot_crc: int = 0

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
    base, time, salt, writers, crc = header
    fields = _SEGMENT.pack(SEGMENT_MAGIC, VERSION, 0, base, time, salt, writers, crc, 0, 0)
    return fields + _CRC.pack(checksum(fields))


def decode_segment_header(data: bytes, path: str) -> SegmentHeader | None:
    """None when the octets are not a segment header; UnknownFormat when they are one of another format."""
    if not _is_header(data[:HEADER_SIZE], SEGMENT_MAGIC, HEADER_SIZE):
        return None
    _, version, _, base, time, salt, writers, crc, _, _ = _SEGMENT.unpack_from(data)
    if version != VERSION:
        raise UnknownFormat.of(path, version, VERSION)
    return SegmentHeader(base, time, salt, writers, crc)


def decode_snapshot(data: bytes, header: SegmentHeader) -> dict[int, int] | None:
    """The dedup table at the head of a segment file that begins with `data`, None when it does not verify."""
    table = data[HEADER_SIZE : header.start]
    if len(data) < header.start or checksum(table) != header.snapshot_crc:
        return None
    return dict(_WRITER.iter_unpack(table[: header.writers * _WRITER.size]))


def _is_header(data: bytes, magic: bytes, size: int) -> bool:
    if len(data) < size or data[:8] != magic:
        return False
    crc: int = _CRC.unpack_from(data, size - 4)[0]
    return crc == checksum(data[: size - 4])


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
    """The places of the chunks of one segment: parallel columns with one entry per chunk, and totals.

    In the active segment the columns are arrays that grow; of a sealed one they are views of its index file. Only
    `add` changes an index, and only one that began empty.
    """

    base: int
    time: int
    salt: int
    adopted: bool = False
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
        return replace(
            self,
            sequences=sequences,
            offsets=offsets,
            times=times,
            shapes=shapes,
            contents=contents,
            length=length,
            newest=newest,
        )

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

    def time_of(self, place: int) -> int:
        """The chunk's append time, µs."""
        return self.time if self.adopted else self.time + self.times[place]

    @property
    def newest_time(self) -> int:
        """The last chunk's append time, µs; without a chunk the segment's base time."""
        return self.time if self.adopted else self.time + self.newest

    def began_before(self, us: int) -> bool:
        """Whether there is a content, and the first one was appended before `us`."""
        return bool(len(self)) and self.time_of(0) < us

    def first_since(self, us: int) -> int:
        """The place of the first chunk appended at or after `us`; the number of chunks when there is none."""
        if self.adopted:
            return 0 if us <= self.time else len(self)
        return bisect_left(self.times, us - self.time)

    def body(self, place: int) -> int:
        """Octets of the chunk's body."""
        return self.shapes[place] & 0xFFFFFFFF

    def runs(self, place: int) -> int:
        return self.shapes[place] >> 32

    def table(self, place: int) -> int:
        """Octets of the chunk's run table, padded."""
        return padded(self.runs(place) * RUN_SIZE)


def empty_index(header: SegmentHeader) -> Index:
    """The index of a new segment."""
    return Index(header.base, header.time, header.salt, length=header.start)


def encode_index(index: Index) -> bytes:
    columns = b"".join(map(_to_bytes, index.columns()))
    fields = _INDEX.pack(
        INDEX_MAGIC,
        VERSION,
        ADOPTED if index.adopted else 0,
        index.base,
        index.time,
        index.salt,
        len(index),
        index.length,
        index.contents,
        index.newest,
        checksum(columns),
    )
    return fields + _CRC.pack(checksum(fields)) + columns


def decode_index(data: bytes, path: str) -> Index | None:
    """The index in the octets of a whole file, None when they do not verify. Views, no copies."""
    if not _is_header(data[:INDEX_HEADER_SIZE], INDEX_MAGIC, INDEX_HEADER_SIZE):
        return None
    _, version, flags, base, time, salt, chunks, length, contents, newest, crc = _INDEX.unpack_from(data)
    if version != VERSION or flags & ~ADOPTED:
        raise UnknownFormat.of(path, max(version, VERSION + 1), VERSION)
    view = memoryview(data)[INDEX_HEADER_SIZE:]
    if view.nbytes != chunks * INDEX_ENTRY or checksum(view) != crc:
        return None
    size = chunks * 8
    sequences, offsets, times, shapes = (_to_column(view[at * size : (at + 1) * size]) for at in range(4))
    return Index(
        base, time, salt, bool(flags & ADOPTED), sequences, offsets, times, shapes, contents, length, newest
    )


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

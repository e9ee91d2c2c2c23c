"""Reads and verifies a segment's chunks one by one, for recovery, copying and `mtl verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mtl.errors import UnknownFormat
from mtl.log.chunk import (
    ALIGNMENT,
    HEADER_SIZE,
    MAGIC,
    RUN_SIZE,
    VERSION,
    ChunkHeader,
    NewerChunk,
    RunEntry,
    checksum,
    decode_header,
    decode_runs,
    padded,
)
from mtl.log.files import File
from mtl.log.limits import SCAN_BLOCK
from mtl.log.segment import SegmentHeader


class FoundChunk(NamedTuple):
    """A chunk that verifies, at file offset `offset`; `region` is everything after its header."""

    offset: int
    header: ChunkHeader
    region: bytes

    @property
    def end(self) -> int:
        return self.offset + self.header.stored

    def runs(self) -> list[RunEntry]:
        return decode_runs(self.region, self.header.runs)

    def body(self) -> bytes:
        start = padded(self.header.runs * RUN_SIZE)
        return self.region[start : start + self.header.body]


class Bad(NamedTuple):
    """No valid chunk of this segment begins at `offset`."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Beyond:
    """The data from a bad chunk on. `durable`: the largest durable offset of any header after the bad chunk;
    `sequence`: the relative sequence of the first of these headers; `end`: where only zeros follow; `contents`: the
    number of contents that the segment would have with those that all headers name, the bad chunk's included.
    """

    durable: int = 0
    sequence: int | None = None
    end: int = 0
    contents: int = 0


class _Blocks:
    """A file read ahead in blocks."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self._start = 0
        self._block = b""

    def get(self, size: int, offset: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + size > len(self._block):
            want = min(max(size, SCAN_BLOCK), self._size - offset)
            self._start, self._block, at = offset, self._file.pread(max(want, 0), offset), 0
        return self._block[at : at + size]


def scan(
    file: File, segment: SegmentHeader, path: str, size: int, *, start: int | None = None, sequence: int = 0
) -> Iterator[FoundChunk | Bad]:
    """The chunks of the first `size` octets in order; the last item is a Bad if they do not end with a valid chunk.

    `start`: the offset of the first one, which has the relative sequence `sequence`; by default that of the segment.
    """
    blocks = _Blocks(file, size)
    at = segment.start if start is None else start
    while at < size:
        try:
            header = decode_header(blocks.get(HEADER_SIZE, at), at, segment.salt)
        except NewerChunk:
            raise UnknownFormat.of(path, VERSION + 1, VERSION) from None
        reason = _reason(header, sequence, size - at)
        if header is None or reason:
            yield Bad(at, reason)
            return
        region = blocks.get(header.region, at + HEADER_SIZE)
        if len(region) < header.region or checksum(region) != header.crc:
            yield Bad(at, "its contents do not match their checksum")
            return
        yield FoundChunk(at, header, region)
        at += header.stored
        sequence += header.contents


def _reason(header: ChunkHeader | None, sequence: int, left: int) -> str:
    if header is None:
        return "no chunk header verifies there"
    if header.sequence != sequence:
        return f"a chunk of relative sequence {header.sequence} instead of {sequence}"
    if not header.contents:
        return "a chunk without contents"
    if header.stored > left:
        return f"the file ends {header.stored - left} octets before the chunk does"
    return ""


def scan_beyond(file: File, segment: SegmentHeader, bad: int, size: int) -> Beyond:
    """Look for valid headers at every possible offset from `bad` on, even if the data between them is damaged."""
    durable, sequence, end, contents = 0, None, bad, 0
    step = SCAN_BLOCK
    for block_at in range(bad, size, step):
        block = file.pread(min(step + HEADER_SIZE, size - block_at), block_at)
        if something := len(block.rstrip(b"\0")):
            end = min(padded(block_at + something), size)
        at = block.find(MAGIC)
        while 0 <= at < step:
            header = None
            if (block_at + at) % ALIGNMENT == 0:
                header = _whole_header(block[at : at + HEADER_SIZE], block_at + at, segment)
            if header is not None:
                contents = max(contents, header.sequence + header.contents)
                if block_at + at > bad:
                    durable = max(durable, header.durable)
                    sequence = header.sequence if sequence is None else sequence
            at = block.find(MAGIC, at + 1)
    return Beyond(durable, sequence, end, contents)


def _whole_header(data: bytes, offset: int, segment: SegmentHeader) -> ChunkHeader | None:
    try:
        return decode_header(data, offset, segment.salt)
    except NewerChunk:
        return None

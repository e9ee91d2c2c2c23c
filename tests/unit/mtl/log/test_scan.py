from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.log.chunk import ChunkHeader, ChunkPlace, NewChunk, RunEntry, encode, encode_header
from mtl.log.files import write_fully
from mtl.log.limits import SCAN_BLOCK
from mtl.log.scan import Bad, Beyond, FoundChunk, scan, scan_beyond
from mtl.log.segment import SegmentHeader
from tests.support.faulty_disk import FaultyDisk, FaultyFile

SEGMENT = SegmentHeader(base=100, time=5, salt=77)


def file_of(*chunks: NewChunk) -> tuple[FaultyFile, int, list[int]]:
    """A segment file without its head, and the offsets of its chunks. Each attests all before it."""
    file = FaultyDisk(random.Random(1)).open("/f", "create")
    at, sequence, offsets = SEGMENT.start, 0, []
    for chunk in chunks:
        place = ChunkPlace(sequence, 0, at, at, SEGMENT.salt)
        offsets.append(at)
        at += write_fully(file, encode(chunk, place), at)
        sequence += chunk.count
    return file, at, offsets


def scanned(file: FaultyFile, size: int) -> list[FoundChunk | Bad]:
    return list(scan(file, SEGMENT, "/f", size))


chunks = st.builds(
    NewChunk,
    st.integers(1, 9),
    st.binary(max_size=300),
    st.lists(st.builds(RunEntry, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=4).map(
        tuple
    ),
)


@given(st.lists(chunks, max_size=8))
def test_a_scan_finds_every_chunk(wanted: list[NewChunk]) -> None:
    file, size, offsets = file_of(*wanted)
    found = scanned(file, size)
    assert all(isinstance(item, FoundChunk) for item in found)
    for item, chunk, offset in zip(found, wanted, offsets, strict=True):
        assert isinstance(item, FoundChunk)
        assert item.offset == offset
        assert (item.header.contents, item.body(), tuple(item.runs())) == (
            chunk.count,
            chunk.body,
            chunk.runs,
        )
        assert item.end == offset + chunk.stored


@pytest.mark.parametrize(
    ("octet", "reason"),
    [(0, "no chunk header"), (63, "no chunk header"), (64, "checksum"), (64 + 100, "checksum")],
)
def test_a_scan_stops_at_a_bad_chunk(octet: int, reason: str) -> None:
    file, size, offsets = file_of(*[NewChunk(1, bytes(80))] * 3)
    write_fully(file, [b"\xff"], offsets[1] + octet)
    first, bad = scanned(file, size)
    assert isinstance(first, FoundChunk)
    assert isinstance(bad, Bad)
    assert bad.offset == offsets[1]
    assert reason in bad.reason


def test_a_scan_stops_at_a_truncated_chunk() -> None:
    file, size, offsets = file_of(NewChunk(1, bytes(80)), NewChunk(1, bytes(80)))
    *_, bad = scanned(file, size - 1)
    assert bad == Bad(offsets[1], "the file ends 1 octets before the chunk does")
    *_, bad = scanned(file, offsets[1] + 63)
    assert bad == Bad(offsets[1], "no chunk header verifies there")


def test_a_scan_stops_at_a_wrong_sequence() -> None:
    file, size, _ = file_of(NewChunk(2, b""))
    write_fully(file, encode(NewChunk(1, b""), ChunkPlace(3, 0, size, 0, SEGMENT.salt)), size)
    *_, bad = scanned(file, size + 64)
    assert bad == Bad(size, "a chunk of relative sequence 3 instead of 2")


def test_a_scan_stops_at_a_chunk_without_contents() -> None:
    file, size, _ = file_of(NewChunk(2, b""))
    write_fully(file, [encode_header(ChunkHeader(0, 2, 0, size, 0, 0, 0, SEGMENT.salt), size)], size)
    *_, bad = scanned(file, size + 64)
    assert bad == Bad(size, "a chunk without contents")


def test_a_scan_reads_chunks_larger_than_a_block() -> None:
    body = random.Random(1).randbytes(SCAN_BLOCK + 1000)
    file, size, _ = file_of(NewChunk(1, b"small"), NewChunk(1, body), NewChunk(1, b"small"))
    assert [item.body() for item in scanned(file, size) if isinstance(item, FoundChunk)] == [
        b"small",
        body,
        b"small",
    ]


def test_a_scan_beyond_damage_finds_valid_headers() -> None:
    file, size, offsets = file_of(*[NewChunk(2, b"x" * 80)] * 4)
    write_fully(file, [b"\xff"], offsets[1])
    assert scan_beyond(file, SEGMENT, offsets[1], size) == Beyond(offsets[3], 4, size, 8)
    write_fully(file, [b"\xff"], offsets[3])
    assert scan_beyond(file, SEGMENT, offsets[1], size) == Beyond(offsets[2], 4, size, 6)
    assert scan_beyond(file, SEGMENT, offsets[3], size) == Beyond(0, None, size)


@pytest.mark.parametrize("zeros", [0, 1, 64, 5_000, 2 * SCAN_BLOCK])
def test_zeros_at_the_end_are_unwritten_room(zeros: int) -> None:
    file, size, _ = file_of(NewChunk(2, b"some"))
    write_fully(file, [b"\xff", bytes(zeros)], size)
    assert scan_beyond(file, SEGMENT, size, size + 1 + zeros).end == size + min(1 + zeros, 64)
    write_fully(file, [b"\0"], size)
    assert scan_beyond(file, SEGMENT, size, size + 1 + zeros).end == size


@pytest.mark.parametrize("gap", [0, 64, SCAN_BLOCK - 64, SCAN_BLOCK, SCAN_BLOCK + 64])
def test_a_scan_beyond_damage_crosses_blocks_and_skips_false_headers(gap: int) -> None:
    file, bad, _ = file_of(NewChunk(1, b""))
    write_fully(file, [b"MTLc" * (16 + gap // 4)], bad)
    at = bad + 64 + gap
    write_fully(file, encode(NewChunk(1, b""), ChunkPlace(9, 0, at, 123, SEGMENT.salt)), at)
    write_fully(
        file, encode(NewChunk(1, b""), ChunkPlace(9, 0, at + 64, 999, SEGMENT.salt + 1)), at + 64
    )  # not ours
    assert scan_beyond(file, SEGMENT, bad, at + 128) == Beyond(123, 9, at + 128, 10)

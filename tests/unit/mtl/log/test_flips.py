"""One flipped bit is found at any place; an unfinished group after a crash is not mistaken for one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.log.chunk import HEADER_SIZE, ChunkPlace, NewChunk, RunEntry, checksum, encode
from mtl.log.files import write_fully
from mtl.log.flips import find_flipped_header, flipped_bit
from tests.support.faulty_disk import FaultyDisk, FaultyFile

SALT = 77
BODY = random.Random(1).randbytes(700)


def written(offset: int, body: bytes = BODY) -> tuple[FaultyDisk, FaultyFile, int]:
    """A file with one chunk at `offset`, and its size."""
    disk = FaultyDisk(random.Random(1))
    file = disk.open("/f", "create")
    buffers = encode(NewChunk(3, body, (RunEntry(1, 1, 3),)), ChunkPlace(5, 0, offset, 64, SALT))
    size = offset + write_fully(file, buffers, offset)
    file.sync()
    return disk, file, size


@given(st.integers(1, 5_000), st.data())
def test_the_flipped_bit_is_located(size: int, data: st.DataObject) -> None:
    octets = random.Random(size).randbytes(size)
    bit = data.draw(st.integers(0, 8 * size - 1))
    image = bytearray(octets)
    image[-1 - bit // 8] ^= 0x80 >> bit % 8
    assert flipped_bit(checksum(octets) ^ checksum(bytes(image)), 8 * size) == bit


@given(st.integers(2, 2_000), st.sets(st.integers(0, 15_999), min_size=2, max_size=8))
def test_several_flipped_bits_are_not_reported_as_one(size: int, bits: set[int]) -> None:
    octets = bytes(size)
    image = bytearray(octets)
    changed = {bit % (8 * size) for bit in bits}
    for bit in changed:
        image[bit // 8] ^= 1 << bit % 8
    found = flipped_bit(checksum(octets) ^ checksum(bytes(image)), 8 * size)
    assert (found is not None) == (len(changed) == 1)


@pytest.mark.parametrize("offset", [64, 192, 448, 512, 4096])
def test_each_flipped_bit_of_a_chunk_is_found(offset: int) -> None:
    disk, file, size = written(offset)
    for at in range(offset, size):
        disk.flip("/f", at, at % 8)
        header = find_flipped_header(file, offset, size, SALT, 5)
        assert header is not None, at
        assert (header.contents, header.stored) == (3, size - offset)
        disk.flip("/f", at, at % 8)


def test_a_flipped_bit_of_a_large_chunk_is_found() -> None:
    disk, file, size = written(64, random.Random(2).randbytes(4 << 20))
    disk.flip("/f", 3_000_000, 3)
    assert find_flipped_header(file, 64, size, SALT, 5) is not None
    disk.flip("/f", 1_000_000, 3)
    assert find_flipped_header(file, 64, size, SALT, 5) is None


@pytest.mark.parametrize("offset", [64, 448, 512])
def test_an_unwritten_sector_is_not_a_flipped_bit(offset: int) -> None:
    disk, _, size = written(offset)
    whole = disk.content("/f")
    for sector in range(offset // 512, (size + 511) // 512):
        start, end = max(offset, sector * 512), min(size, sector * 512 + 512)
        disk.put("/f", whole[:start] + bytes(end - start) + whole[end:])
        assert find_flipped_header(disk.open("/f", "read"), offset, size, SALT, 5) is None


def test_a_chunk_with_a_sector_of_zeros_counts_as_unfinished() -> None:
    """The sector may not have been written, so other damage to its chunk does not count."""
    body = bytearray(BODY * 2)
    body[:1000] = bytes(1000)
    disk, file, size = written(512, bytes(body))
    disk.flip("/f", size - 64, 0)
    assert find_flipped_header(file, 512, size, SALT, 5) is None


def test_a_chunk_cut_short_or_of_another_place_is_not_a_flipped_bit() -> None:
    disk, file, size = written(64)
    disk.flip("/f", 64 + HEADER_SIZE + 70)
    assert find_flipped_header(file, 64, size - 1, SALT, 5) is None
    assert find_flipped_header(file, 64, size, SALT + 1, 5) is None
    assert find_flipped_header(file, 64, size, SALT, 6) is None
    assert find_flipped_header(file, size, size, SALT, 6) is None

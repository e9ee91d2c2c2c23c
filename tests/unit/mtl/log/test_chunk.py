from __future__ import annotations

import array
import mmap
import struct
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.log.chunk import (
    ALIGNMENT,
    HEADER_SIZE,
    RUN_SIZE,
    ChunkHeader,
    ChunkPlace,
    NewChunk,
    NewerChunk,
    RunEntry,
    check,
    checksum,
    decode_header,
    decode_runs,
    encode,
    encode_header,
    padded,
)
from mtl.log.limits import MAX_CHUNK_BODY, MAX_CHUNK_RUNS

u64 = st.integers(0, 2**64 - 1)
runs = st.builds(RunEntry, u64, u64, st.integers(0, 2**32 - 1))
chunks = st.builds(
    NewChunk, st.integers(1, 2**32 - 1), st.binary(max_size=300), st.lists(runs, max_size=5).map(tuple)
)
places = st.builds(ChunkPlace, u64, u64, u64, u64, u64)


def octets(chunk: NewChunk, place: ChunkPlace) -> bytes:
    return b"".join(memoryview(buffer).cast("B") for buffer in encode(chunk, place))


@given(chunks, places)
def test_an_encoded_chunk_is_decoded(chunk: NewChunk, place: ChunkPlace) -> None:
    data = octets(chunk, place)
    header = decode_header(data[:HEADER_SIZE], place.offset, place.salt)
    assert header is not None
    assert header[:6] == (
        len(chunk.runs),
        place.sequence,
        place.time,
        place.durable,
        chunk.count,
        chunk.size,
    )
    body_at = HEADER_SIZE + padded(len(chunk.runs) * RUN_SIZE)
    assert len(data) == header.stored == chunk.stored
    assert data[body_at:][: header.body] == chunk.body
    assert tuple(decode_runs(data[HEADER_SIZE:], header.runs)) == chunk.runs
    assert checksum(data[HEADER_SIZE:]) == header.crc
    assert len(data) % ALIGNMENT == body_at % ALIGNMENT == 0


@given(chunks, places, st.data())
def test_a_flipped_bit_is_detected(chunk: NewChunk, place: ChunkPlace, data: st.DataObject) -> None:
    whole = bytearray(octets(chunk, place))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    header = decode_header(bytes(whole[:HEADER_SIZE]), place.offset, place.salt)
    assert header is None or checksum(bytes(whole[HEADER_SIZE:])) != header.crc


@given(chunks, places, u64)
def test_a_header_is_valid_only_for_its_segment_and_offset(
    chunk: NewChunk, place: ChunkPlace, other: int
) -> None:
    data = octets(chunk, place)[:HEADER_SIZE]
    if other != place.offset:
        assert decode_header(data, other, place.salt) is None
    if other != place.salt:
        assert decode_header(data, place.offset, other) is None
    assert decode_header(data[:-1], place.offset, place.salt) is None


def test_the_layout_of_a_header() -> None:
    data = octets(NewChunk(5, b"body", (RunEntry(7, 8, 5),)), ChunkPlace(1, 2, 64, 3, 4))
    assert data[:4] == b"MTLc"
    assert struct.unpack("<BBHQQQII", data[4:40]) == (1, 0, 1, 1, 2, 3, 5, 4)
    assert struct.unpack("<IIQI", data[40:60]) == (google_crc32c.value(data[64:]), 0, 4, 0)
    assert struct.unpack("<I", data[60:64])[0] == google_crc32c.value(data[:60] + struct.pack("<Q", 64))
    assert struct.unpack("<QQII", data[64:88]) == (7, 8, 5, 0)
    assert data[88:] == bytes(40) + b"body" + bytes(60)


def test_a_valid_header_of_a_later_version_is_distinguished_from_damage() -> None:
    fields = bytearray(encode_header(ChunkHeader(0, 0, 0, 0, 0, 0, 0, 9), 64)[:60])
    fields[4] = 2
    data = bytes(fields) + struct.pack("<I", google_crc32c.value(bytes(fields) + struct.pack("<Q", 64)))
    with pytest.raises(NewerChunk):
        decode_header(data, 64, 9)


@given(st.binary(max_size=200_000), st.integers(0, 2**32 - 1))
def test_the_checksum_of_every_kind_of_buffer(data: bytes, start: int) -> None:
    expected = google_crc32c.extend(start, data)
    for buffer in (
        bytearray(data),
        memoryview(data),
        memoryview(b"x" + data)[1:],
        array.array("B", data),
        pa.py_buffer(data),
    ):
        assert checksum(buffer, start) == expected


def test_the_checksum_of_a_mapping_and_of_wider_items() -> None:
    mapping = mmap.mmap(-1, 4096)
    mapping[:3] = b"abc"
    assert checksum(mapping) == google_crc32c.value(mapping[:])
    wide = array.array("Q", [1, 2, 3])
    assert checksum(memoryview(wide)) == google_crc32c.value(wide.tobytes())


@pytest.mark.parametrize("buffer", [b"abc", memoryview(b"abc"), bytearray(b"abc"), pa.py_buffer(b"abc")])
def test_a_body_may_be_any_buffer(buffer: object) -> None:
    chunk = NewChunk(1, buffer)  # type: ignore[arg-type]
    assert chunk.size == 3
    assert octets(chunk, ChunkPlace(0, 0, 64, 0, 1)) == octets(
        NewChunk(1, b"abc"), ChunkPlace(0, 0, 64, 0, 1)
    )


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        (NewChunk(0, b"x"), "0 contents"),
        (NewChunk(2**32, b"x"), "contents"),
        (NewChunk(1, bytes(MAX_CHUNK_BODY + 1)), "above the limit"),
        (NewChunk(1, b"", (RunEntry(1, 1, 1),) * (MAX_CHUNK_RUNS + 1)), "runs"),
        (NewChunk(1, b"", (RunEntry(2**64, 1, 1),)), "does not fit"),
        (NewChunk(1, b"", (RunEntry(1, -1, 1),)), "does not fit"),
        (NewChunk(1, b"", (RunEntry(1, 2**64 - 1, 2),)), "does not fit"),
        (NewChunk(1, b"", (RunEntry(1, 1, 0),)), "does not fit"),
    ],
)
def test_a_chunk_that_cannot_be_stored_is_refused(chunk: NewChunk, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check(chunk)


def test_chunks_are_padded() -> None:
    assert [padded(size) for size in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]
    assert 3 * RUN_SIZE > ALIGNMENT  # so that a table of three runs takes two lines


def test_the_last_number_of_64_bits_can_be_stored() -> None:
    check(NewChunk(1, b"", (RunEntry(1, 2**64 - 1, 1),)))


def test_a_checksum_is_computed_once_across_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = NewChunk(1, memoryview(bytes(range(256)) * 1000), (RunEntry(1, 2, 3),))
    region = b"".join(memoryview(x).cast("B") for x in encode(chunk, ChunkPlace(0, 0, 0, 0, 0)))[HEADER_SIZE:]
    asked = NewChunk(1, chunk.body, chunk.runs)
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: asked.checksum(), range(16))) == {google_crc32c.value(region)}
    monkeypatch.setattr("mtl.log.chunk.checksum", None)
    assert asked.checksum() == chunk.checksum()

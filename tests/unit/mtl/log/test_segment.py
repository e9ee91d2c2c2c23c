from __future__ import annotations

import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import UnknownFormat
from mtl.log.segment import (
    HEADER_SIZE,
    INDEX_HEADER_SIZE,
    Entry,
    Index,
    SegmentHeader,
    decode_index,
    decode_segment_header,
    decode_snapshot,
    empty_index,
    encode_index,
    encode_segment,
    index_base,
    index_name,
    segment_base,
    segment_name,
)

u64 = st.integers(0, 2**64 - 1)
small = st.integers(0, 2**20)


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    index = Index(draw(u64), draw(small), draw(u64), draw(st.booleans()), length=64)
    time = 0
    for _ in range(draw(st.integers(0, 12))):
        time += draw(st.integers(0, 5))
        body = draw(st.integers(0, 2**32 - 1))
        end = index.length + draw(st.integers(64, 10_000))
        index.add(Entry(index.length, time, draw(st.integers(1, 9)), body, draw(st.integers(0, 9)), end))
    return index


def same(index: Index, other: Index) -> bool:
    scalars = ("base", "time", "salt", "adopted", "contents", "length", "newest")
    return all(getattr(index, name) == getattr(other, name) for name in scalars) and all(
        list(own) == list(found) for own, found in zip(index.columns(), other.columns(), strict=True)
    )


# --- names and headers --------------------------------------------------------------------------------------


@given(u64)
def test_names_of_segments_and_indexes(base: int) -> None:
    assert segment_base(segment_name(base)) == base == index_base(index_name(base))
    assert len(segment_name(base)) == len("00000000000000000000.segment")
    assert segment_base(index_name(base)) is index_base(segment_name(base)) is None


@pytest.mark.parametrize(
    "name", ["lock", "segment.new", "1.segment", segment_name(1) + "x", "x" + segment_name(1)]
)
def test_other_names_are_not_segments(name: str) -> None:
    assert segment_base(name) is index_base(name) is None


@given(u64, u64, u64, st.dictionaries(u64, u64, max_size=9))
def test_a_segment_starts_with_its_header_and_the_table_of_writers(
    base: int, time: int, salt: int, numbers: dict[int, int]
) -> None:
    data = encode_segment(base, time, salt, numbers)
    header = decode_segment_header(data, "x")
    assert header is not None
    assert header[:4] == (base, time, salt, len(numbers))
    assert len(data) == header.start
    assert header.start % 64 == 0
    assert decode_snapshot(data, header) == numbers


@given(st.dictionaries(u64, u64, max_size=9), st.data())
def test_a_flipped_bit_of_header_or_snapshot_is_detected(
    numbers: dict[int, int], data: st.DataObject
) -> None:
    whole = bytearray(encode_segment(1, 2, 3, numbers))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    header = decode_segment_header(bytes(whole), "x")
    assert header is None or decode_snapshot(bytes(whole), header) is None


def test_a_truncated_snapshot_does_not_verify() -> None:
    data = encode_segment(1, 2, 3, {1: 1})
    header = decode_segment_header(data, "x")
    assert header is not None
    assert decode_snapshot(data[:-1], header) is None


def resign(data: bytearray, size: int) -> bytes:
    data[size - 4 : size] = struct.pack("<I", google_crc32c.value(bytes(data[: size - 4])))
    return bytes(data)


def test_a_later_format_is_named_but_not_damage() -> None:
    segment = bytearray(encode_segment(1, 2, 3, {}))
    segment[8] = 2
    with pytest.raises(UnknownFormat, match="the-file was written by a newer version"):
        decode_segment_header(resign(segment, HEADER_SIZE), "the-file")
    for octet, value in ((8, 2), (12, 2)):
        index = bytearray(encode_index(Index(1, 2, 3)))
        index[octet] = value
        with pytest.raises(UnknownFormat, match="the-file"):
            decode_index(resign(index, INDEX_HEADER_SIZE), "the-file")


# --- the index ----------------------------------------------------------------------------------------------


@given(indexes())
def test_an_encoded_index_is_decoded(index: Index) -> None:
    decoded = decode_index(encode_index(index), "x")
    assert decoded is not None
    assert same(decoded, index)
    assert encode_index(decoded) == encode_index(index)


@given(indexes(), st.data())
def test_a_flipped_bit_or_a_truncation_of_an_index_is_detected(index: Index, data: st.DataObject) -> None:
    whole = bytearray(encode_index(index))
    at = data.draw(st.integers(0, len(whole) - 1))
    assert decode_index(bytes(whole[:at]), "x") is None
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    assert decode_index(bytes(whole), "x") is None


@given(indexes())
def test_every_content_is_found_in_its_chunk(index: Index) -> None:
    expected = [at for at in range(len(index)) for _ in range(index.count(at))]
    assert [index.find(sequence) for sequence in range(index.contents)] == expected
    boundaries = {*index.sequences, index.contents}
    assert [index.is_boundary(at) for at in range(index.contents + 2)] == [
        at in boundaries for at in range(index.contents + 2)
    ]


@given(indexes(), st.data())
def test_an_index_is_cut_at_a_boundary(index: Index, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(index)))
    contents = index.sequences[at] if at < len(index) else index.contents
    cut = index.cut(contents)
    assert (len(cut), cut.contents) == (at, contents)
    assert [list(column) for column in cut.columns()] == [list(column[:at]) for column in index.columns()]
    assert cut.length == (index.offsets[at] if at < len(index) else index.length)
    assert cut.newest == (index.times[at - 1] if at else 0)
    cut.add(Entry(cut.length, cut.newest, 1, 1, 0, cut.length + 128))  # grows without the original
    assert len(index) == len(index.sequences)


@given(indexes(), st.integers(-5, 100))
def test_an_index_finds_contents_by_time(index: Index, shift: int) -> None:
    times = [index.time_of(at) for at in range(len(index))]
    assert times == sorted(times)
    assert index.newest_time == (times[-1] if times else index.time)
    us = index.time + shift
    assert index.first_since(us) == next((at for at, time in enumerate(times) if time >= us), len(times))
    assert index.began_before(us) == bool(times and times[0] < us)


def test_an_index_finds_the_chunk_of_an_offset() -> None:
    index = empty_index(SegmentHeader(1, 2, 3))
    assert index.length == 64
    index.add(Entry(64, 0, 1, 10, 3, 320))
    index.add(Entry(384, 0, 1, 0, 0, 448))
    assert [index.find_offset(at) for at in (0, 63, 64, 383, 384, 9999)] == [-1, -1, 0, 0, 1, 1]
    assert (index.body(0), index.runs(0), index.table(0)) == (10, 3, 128)

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtl.errors import Damaged, StorageFailed
from mtl.log.cache import ReadCache
from mtl.log.change import LogOptions, Trimmed
from mtl.log.chunk import NewChunk
from mtl.log.files import Disk, RealDisk
from mtl.log.log import create_log, open_log
from mtl.log.queries import Chunk, Contents, NewestTime, Range, RangeFrom
from mtl.log.reader import LogReader
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest, filled_log, range_of, read_all
from tests.support.texts import in_order

BODY = bytes(range(200))


# --- finding, against a model that looks at everything ------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> LogUnderTest:
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(segment_bytes=draw(st.integers(300, 2000))))
    for _ in range(draw(st.integers(0, 12))):
        match draw(st.integers(0, 9)):
            case 0:
                log.commit([[NewChunk(3, BODY)], [NewChunk(1, b"")]], adopt=draw(st.booleans()))
            case 1:
                log.roll()
            case 2:
                log.mark()
            case 3:
                log.trim(draw(st.sampled_from([info.base for info in log.reader.segments()])))
            case _:
                sizes = draw(st.lists(st.integers(0, 200), min_size=1, max_size=3))
                log.append(*[NewChunk(draw(st.integers(1, 4)), bytes(size)) for size in sizes])
    if draw(st.booleans()):
        log.close()
        log.open()
    return log


@settings(max_examples=150, deadline=None)
@given(logs(), st.data())
def test_searches_agree_with_a_linear_search(log: LogUnderTest, data: st.DataObject) -> None:
    reader = log.reader
    refs = []
    ref = reader.snapshot().find(reader.earliest)
    while ref is not None:
        refs.append(ref)
        ref = reader.snapshot().find(ref.end)
    log.check()

    for sequence in range(reader.earliest - 1, reader.next + 2):
        expected = next((ref for ref in refs if ref.base <= sequence < ref.end), None)
        assert reader.snapshot().find(sequence) == expected

    assert range_of(reader, reader.earliest).time_us == (refs[0].time_us if refs else None)
    times = [ref.time_us for ref in refs]
    for us in {0, *times, *(time + 1 for time in times)}:
        assert reader.snapshot().at_time(us, log.now) == next(
            (ref for ref in refs if ref.time_us >= us), None
        )

    start = data.draw(st.integers(reader.earliest, reader.next))
    end = data.draw(st.integers(start, reader.next))
    inside = [ref for ref in refs if ref.end > start and ref.base < end]
    stored = sum(ref.stored for ref in inside)
    # Headers of segments between the chunks count.
    assert stored <= reader.snapshot().stored_between(start, end) <= stored + 128 * (len(inside) + 1)

    contents = data.draw(st.integers(1, 50))
    assert reader.snapshot().end_within(start, contents=contents) == min(reader.next, start + contents)
    octets = data.draw(st.integers(0, 3000))
    found = reader.snapshot().end_within(start, octets=octets)
    after = [ref for ref in refs if ref.end > start]
    assert found in {ref.end for ref in after} | ({start} if not after else set())
    if after and found > after[0].end:
        assert reader.snapshot().stored_between(start, found) <= octets
    following = next((ref for ref in after if ref.base >= found), None)
    if after and following is not None:
        assert reader.snapshot().stored_between(start, following.end) > octets
    assert reader.snapshot().end_within(start, contents=contents, octets=octets) == min(
        found, start + contents
    )


def test_end_within_a_number_of_octets(twin: FaultyDisk) -> None:
    reader = filled_log(twin).reader
    assert reader.snapshot().stored_between(1, 3) == 320
    ends = [
        reader.snapshot().end_within(2, octets=octets)
        for octets in (0, 320, 639, 640, 960, 1023, 1024, 1024 + 384)
    ]
    assert ends == [3, 3, 3, 5, 7, 7, 7, 9]
    assert reader.snapshot().end_within(24, octets=10**9) == reader.snapshot().end_within(25, octets=1) == 25


def test_octets_that_end_with_a_chunk_include_it(twin: FaultyDisk) -> None:
    log = LogUnderTest(twin)
    log.append(NewChunk(2, BODY))
    log.append(NewChunk(2, BODY))
    log.mark()
    log.append(NewChunk(2, BODY))
    both = sum(ref.stored for ref in map(log.reader.snapshot().find, (1, 3)) if ref is not None)
    assert [log.reader.snapshot().end_within(1, octets=octets) for octets in (both - 1, both, both + 1)] == [
        3,
        5,
        5,
    ]


# --- reading ------------------------------------------------------------------------------------------------


def test_contents_are_read_on_both_disks(place: tuple[Disk, str]) -> None:
    disk, root = place
    directory = f"{root}/log"
    create_log(disk, directory, 0)
    options = LogOptions(segment_bytes=2000)
    reader, writer, _ = open_log(disk, directory, options, now_us=0, cache=ReadCache(tail_bytes=0))
    bodies = [random.Random(at).randbytes(at * 37) for at in range(30)]
    for body in bodies:
        reader.apply(writer.append([NewChunk(1, body)], 0))
    assert [stored.body for stored in read_all(reader)] == bodies
    writer.close()
    reader.close()
    reader, writer, _ = open_log(disk, directory, options, now_us=0)
    assert [stored.body for stored in read_all(reader)] == bodies
    writer.close()
    reader.close()


@pytest.mark.parametrize("cache", [ReadCache(tail_bytes=0), ReadCache()])
def test_bodies_are_read_only_and_outlive_log_and_files(twin: FaultyDisk, cache: ReadCache) -> None:
    log = filled_log(twin)
    reader, writer, _ = open_log(twin, LOG, log.options, now_us=0, cache=cache)
    reader.apply(writer.append([NewChunk(1, bytearray(b"new"))], 0))
    bodies = [
        reader.snapshot().read(ref)
        for sequence in (1, 24, 25)
        if (ref := reader.snapshot().find(sequence)) is not None
    ]
    assert all(body.readonly for body in bodies)
    reader.apply(writer.roll(0))
    reader.apply(Trimmed(writer.next))
    writer.trim(writer.next)
    reader.close()
    writer.close()
    gc.collect()
    assert [bytes(body) for body in bodies] == [b"\0" + BODY, b"\x0b" + BODY, b"new"]


def test_appended_contents_are_read_from_memory(twin: FaultyDisk) -> None:
    log = LogUnderTest(twin)
    twin.fail("read", count=100)
    body = b"hot" * 100
    log.append(NewChunk(1, body))
    ref = log.reader.snapshot().find(1)
    assert ref is not None
    assert log.reader.snapshot().read(ref).obj is body


# --- queries ----------------------------------------------------------------------------------------------


def test_a_read_ends_with_its_range_or_its_octets(twin: FaultyDisk) -> None:
    snapshot = filled_log(twin).reader.snapshot()

    def bases(query: Contents) -> list[int]:
        found = snapshot.answer(query)
        assert isinstance(found, tuple)
        return [chunk.ref.base for chunk in found if isinstance(chunk, Chunk)]

    size = len(BODY) + 1
    assert bases(Contents(2, 7, 1 << 20, 64)) == [1, 3, 5]
    assert bases(Contents(2, 8, 1 << 20, 64)) == [1, 3, 5, 7]
    assert bases(Contents(2, 25, 0, 64)) == [1]
    assert bases(Contents(2, 25, 2 * size, 64)) == [1, 3]
    assert bases(Contents(2, 25, 2 * size - 1, 64)) == [1]
    assert bases(Contents(2, 25, 1 << 20, 2)) == [1, 3]
    assert bases(Contents(25, 30, 1, 64)) == []


def test_large_contents_are_answered_with_their_place(twin: FaultyDisk) -> None:
    log = LogUnderTest(twin)
    log.append(NewChunk(1, b"small"), NewChunk(1, BODY))
    forgetful(log)
    small, large = log.reader.snapshot().answer(Contents(1, 3, 1 << 20, 64, place_from=len(BODY)))  # type: ignore[misc]
    assert isinstance(small, Chunk)
    assert isinstance(large, Chunk)
    assert (bytes(small.body), small.place) == (b"small", None)
    assert bytes(large.body) == b""
    assert large.place == log.reader.snapshot().place(large.ref)


def test_damage_behind_intact_contents_fails_the_next_read(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    reader = reopened(twin)
    ref = reader.snapshot().find(5)
    assert ref is not None
    twin.flip(f"{LOG}/00000000000000000001.segment", ref.offset + 64 + 10)
    found = reader.snapshot().answer(Contents(1, 25, 1 << 20, 64))
    assert isinstance(found, tuple)
    assert len(found) == 2
    with pytest.raises(Damaged, match="contents 5 to 6 are affected"):
        reader.snapshot().answer(Contents(5, 25, 1 << 20, 64))


def test_a_snapshot_does_not_change_with_the_log(twin: FaultyDisk) -> None:
    log = LogUnderTest(twin, LogOptions(segment_bytes=1 << 20))
    log.append(NewChunk(2, b"first"))
    older = log.reader.snapshot()
    log.append(NewChunk(3, b"second"))
    log.roll()
    assert (older.next, older.find(3)) == (3, None)
    assert older.answer(RangeFrom(1)) == Range(3, 128, log.reader.snapshot().find(1).time_us)  # type: ignore[union-attr]
    assert [bytes(chunk.body) for chunk in older.answer(Contents(1, 9, 99, 64))] == [b"first"]  # type: ignore[union-attr]


def test_an_unknown_segment_has_no_newest_time(twin: FaultyDisk) -> None:
    snapshot = filled_log(twin).reader.snapshot()
    assert snapshot.answer(NewestTime(2)) is None
    assert snapshot.answer(NewestTime(0)) is None


# --- damage and failures ------------------------------------------------------------------------------------


def reopened(twin: FaultyDisk) -> LogReader:
    return open_log(twin, LOG, now_us=0, cache=ReadCache())[0]


def test_a_cold_chunk_is_verified_once(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    reader = reopened(twin)
    path = f"{LOG}/00000000000000000001.segment"
    ref = reader.snapshot().find(3)
    assert ref is not None
    twin.flip(path, ref.offset + 64 + 10)
    with pytest.raises(Damaged, match="checksum; contents 3 to 4 are affected") as caught:
        reader.snapshot().read(ref)
    assert (caught.value.file, caught.value.offset) == (path, ref.offset)
    assert (caught.value.first, caught.value.end) == (3, 5)
    neighbour = reader.snapshot().find(5)
    assert neighbour is not None
    assert bytes(reader.snapshot().read(neighbour)) == b"\x02" + BODY  # the others are served
    twin.flip(path, ref.offset + 64 + 10)
    assert bytes(reader.snapshot().read(ref)) == b"\x01" + BODY
    twin.flip(path, ref.offset + 64 + 10)
    assert bytes(reader.snapshot().read(ref)) != b"\x01" + BODY  # read again, but not verified again


def test_readers_share_a_body_while_one_of_them_uses_it(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    reader = reopened(twin)
    ref = reader.snapshot().find(3)
    assert ref is not None
    body = reader.snapshot().read(ref)
    twin.fail("read", count=100)
    assert reader.snapshot().read(ref) is body
    twin.heal()
    del body
    assert bytes(reader.snapshot().read(ref)) == b"\x01" + BODY


def test_the_place_of_a_body_holds_its_octets(twin: FaultyDisk) -> None:
    log = filled_log(twin)  # sealed segments, and a newest one
    for sequence in range(1, log.reader.next):
        ref = log.reader.snapshot().find(sequence)
        assert ref is not None
        path, offset = log.reader.snapshot().place(ref)
        assert twin.open(path, "read").pread(ref.size, offset) == bytes(log.reader.snapshot().read(ref))


def test_a_cold_chunk_is_verified_before_its_place_is_returned(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    reader = reopened(twin)
    ref = reader.snapshot().find(3)
    assert ref is not None
    path = f"{LOG}/00000000000000000001.segment"
    twin.flip(path, ref.offset + 64 + 10)
    with pytest.raises(Damaged, match="contents 3 to 4 are affected"):
        reader.snapshot().place(ref)
    twin.flip(path, ref.offset + 64 + 10)
    assert reader.snapshot().place(ref)[0] == path
    twin.flip(path, ref.offset + 64 + 10)
    assert reader.snapshot().place(ref)[0] == path  # not verified again


def test_files_that_retention_removed_are_missing_in_an_older_snapshot(twin: FaultyDisk) -> None:
    log = filled_log(twin)
    older = log.reader.snapshot()
    log.trim(13)
    with pytest.raises(StorageFailed, match="reading"):
        older.answer(Contents(1, 25, 1 << 20, 64))
    found = log.reader.snapshot().answer(Contents(1, 25, 1 << 20, 64))
    assert isinstance(found, tuple)
    assert [chunk.ref.base for chunk in found if isinstance(chunk, Chunk)] == list(range(13, 25, 2))


def test_a_failed_read_returns_no_place(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    reader = reopened(twin)
    ref = reader.snapshot().find(3)
    assert ref is not None
    twin.fail("read")
    with pytest.raises(StorageFailed):
        reader.snapshot().place(ref)


def test_a_cold_header_is_verified(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    reader = reopened(twin)
    twin.flip(f"{LOG}/00000000000000000001.segment", 64 + 320)
    ref = reader.snapshot().find(3)
    assert ref is not None
    with pytest.raises(Damaged, match="header"):
        reader.snapshot().read(ref)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("placed", [True, False])
def test_wrong_octets_are_never_returned_as_a_chunk(twin: FaultyDisk, *, sealed: bool, placed: bool) -> None:
    """Also in a segment written by this process: its index or its file may have changed."""
    log = LogUnderTest(twin, LogOptions(segment_bytes=1 << 20))
    log.append(NewChunk(2, BODY), NewChunk(2, BODY[::-1]))
    log.append(NewChunk(2, BODY))
    if sealed:
        log.roll()
    first, second = log.reader.snapshot().find(1), log.reader.snapshot().find(3)
    assert first is not None
    assert second is not None
    reader = forgetful(log)
    file = twin.open(f"{LOG}/00000000000000000001.segment", "write")
    file.writev([file.pread(second.stored, second.offset)], first.offset)
    with pytest.raises(Damaged, match=in_order("header", "1 to 2")):
        reader.snapshot().place(first) if placed else reader.snapshot().read(first)
    assert bytes(reader.snapshot().read(second)) == BODY[::-1]


def forgetful(log: LogUnderTest) -> LogReader:
    """The reader of a log, without the bodies that it keeps in memory."""
    log.reader._cache.forget_bodies(log.reader)
    return log.reader


@pytest.mark.parametrize("placed", [True, False])
def test_a_truncated_newest_segment_is_damage(twin: FaultyDisk, *, placed: bool) -> None:
    log = LogUnderTest(twin)
    log.append(NewChunk(2, BODY))
    ref = log.reader.snapshot().find(1)
    assert ref is not None
    twin.shorten(f"{LOG}/00000000000000000001.segment", ref.offset + (30 if placed else 100))
    reader = forgetful(log)
    with pytest.raises(Damaged, match="the file ends too early") as caught:
        reader.snapshot().place(ref) if placed else reader.snapshot().read(ref)
    assert caught.value.offset == ref.offset + (30 if placed else 100)


def test_a_sealed_segment_that_is_too_short_is_damage(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    twin.shorten(f"{LOG}/00000000000000000001.segment", 500)
    reader = reopened(twin)
    with pytest.raises(Damaged, match=in_order(500, 1024, "3 to 6")):
        reader.snapshot().find(1)
    assert reader.snapshot().find(7) is not None


def test_a_missing_sealed_segment_is_damage(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    twin.unlink(f"{LOG}/00000000000000000007.segment")
    reader = reopened(twin)
    assert reader.snapshot().find(6) is not None, "contents before it are intact"
    with pytest.raises(Damaged, match=in_order("7 to 12", 6, "missing")):
        reader.snapshot().find(8)


def test_an_index_that_does_not_verify_is_rebuilt_in_memory(twin: FaultyDisk) -> None:
    log = filled_log(twin)
    log.close()
    twin.flip(f"{LOG}/00000000000000000001.index", 100)
    log.open()
    log.check()


def test_a_failed_read_is_not_damage(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    reader = reopened(twin)
    twin.fail("open", count=2)
    with pytest.raises(StorageFailed, match=r"reading .*1\.segment"):
        reader.snapshot().find(1)
    with pytest.raises(StorageFailed):
        reader.snapshot().find(1)
    ref = reader.snapshot().find(1)
    assert ref is not None
    twin.fail("read")
    with pytest.raises(StorageFailed):
        reader.snapshot().read(ref)
    assert bytes(reader.snapshot().read(ref)) == b"\0" + BODY


def test_a_body_that_was_read_outlives_its_file(tmp_path: Path) -> None:
    """The file is cut later: an access to a mapping of it would end the process by SIGBUS."""
    disk, log = RealDisk(), str(tmp_path / "log")
    options = LogOptions(segment_bytes=1 << 12)
    create_log(disk, log, 0)
    reader, writer, _ = open_log(disk, log, options, now_us=0, cache=ReadCache(tail_bytes=0))
    for _ in range(10):
        reader.apply(writer.append([NewChunk(1, BODY * 100)], 0))
    ref = reader.snapshot().find(1)
    assert ref is not None
    body = reader.snapshot().read(ref)
    for segment in Path(log).glob("*.segment"):
        os.truncate(segment, 0)
    assert bytes(body) == BODY * 100
    del body  # it was shared
    with pytest.raises(Damaged, match="the file ends too early"):
        reader.snapshot().read(ref)
    writer.close()
    reader.close()


def test_a_segment_that_was_cut_after_a_read_is_damage(twin: FaultyDisk) -> None:
    filled_log(twin).close()
    reader = reopened(twin)
    ref = reader.snapshot().find(3)
    assert ref is not None
    reader.snapshot().read(ref)
    twin.shorten(f"{LOG}/00000000000000000001.segment", ref.offset + 70)
    with pytest.raises(Damaged, match=in_order("too early", "3 to 4")):
        reader.snapshot().read(ref)
    first = reader.snapshot().find(1)
    assert first is not None
    assert bytes(reader.snapshot().read(first)) == b"\0" + BODY


# --- memory -------------------------------------------------------------------------------------------------


def test_indexes_are_read_when_needed_and_bounded(twin: FaultyDisk) -> None:
    log = filled_log(twin, 60)
    cache = ReadCache(index_bytes=200)
    reader, _, _ = open_log(twin, LOG, log.options, now_us=0, cache=cache)
    assert read_all(reader) == log.visible
    assert read_all(reader) == log.visible
    loaded = [segment for segment in reader._segments if segment.index is not None]
    assert len(loaded) <= 3

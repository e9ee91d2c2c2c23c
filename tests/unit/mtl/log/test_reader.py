from __future__ import annotations

import errno
import gc
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtl.errors import Damaged, StorageFailed
from mtl.log import (
    Hold,
    LogOptions,
    LogReader,
    NewChunk,
    ReadCache,
    RetentionPolicy,
    Trimmed,
    create_log,
    open_log,
    plan,
)
from mtl.log.files import Disk
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest, read_all

BODY = bytes(range(200))


def filled(disk: FaultyDisk, groups: int = 12, *, segment_bytes: int = 1100) -> LogUnderTest:
    """Contents of two per chunk, one chunk per group, 320 octets each: three to a segment. Closed and opened again."""
    log = LogUnderTest(disk, LogOptions(segment_bytes=segment_bytes))
    for at in range(groups):
        log.append(NewChunk(2, bytes([at % 256]) + BODY))
    log.close()
    log.open()
    return log


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
def test_finds_what_a_search_through_everything_finds(log: LogUnderTest, data: st.DataObject) -> None:
    reader = log.reader
    refs = []
    ref = reader.find(reader.earliest)
    while ref is not None:
        refs.append(ref)
        ref = reader.following(ref)
    log.check()

    for sequence in range(reader.earliest - 1, reader.next + 2):
        expected = next((ref for ref in refs if ref.base <= sequence < ref.end), None)
        assert reader.find(sequence) == expected

    assert reader.oldest_time() == (refs[0].time_us if refs else None)
    times = [ref.time_us for ref in refs]
    for us in {0, *times, *(time + 1 for time in times)}:
        assert reader.at_time(us) == next((ref for ref in refs if ref.time_us >= us), None)

    start = data.draw(st.integers(reader.earliest, reader.next))
    end = data.draw(st.integers(start, reader.next))
    inside = [ref for ref in refs if ref.end > start and ref.base < end]
    stored = sum(ref.stored for ref in inside)
    # Headers of segments and marks between the chunks count too.
    assert stored <= reader.stored_between(start, end) <= stored + 128 * (len(inside) + 1)

    contents = data.draw(st.integers(1, 50))
    assert reader.end_within(start, contents=contents) == min(reader.next, start + contents)
    octets = data.draw(st.integers(0, 3000))
    found = reader.end_within(start, bytes=octets)
    after = [ref for ref in refs if ref.end > start]
    assert found in {ref.end for ref in after} | ({start} if not after else set())
    if after and found > after[0].end:
        assert reader.stored_between(start, found) <= octets
    following = next((ref for ref in after if ref.base >= found), None)
    if after and following is not None:
        assert reader.stored_between(start, following.end) > octets
    assert reader.end_within(start, contents=contents, bytes=octets) == min(found, start + contents)


def test_ends_within_octets_of_a_known_log(twin: FaultyDisk) -> None:
    reader = filled(twin).reader
    assert reader.stored_between(1, 3) == 320
    ends = [reader.end_within(2, bytes=octets) for octets in (0, 320, 639, 640, 960, 1023, 1024, 1024 + 384)]
    assert ends == [3, 3, 3, 5, 7, 7, 7, 9]
    assert reader.end_within(24, bytes=10**9) == reader.end_within(25, bytes=1) == 25


def test_octets_that_end_where_a_mark_begins_hold_the_chunk_before_it(twin: FaultyDisk) -> None:
    log = LogUnderTest(twin)
    log.append(NewChunk(2, BODY))
    log.append(NewChunk(2, BODY))
    log.mark()
    log.append(NewChunk(2, BODY))
    both = sum(ref.stored for ref in map(log.reader.find, (1, 3)) if ref is not None)
    assert [log.reader.end_within(1, bytes=octets) for octets in (both - 1, both, both + 1)] == [3, 5, 5]


# --- reading ------------------------------------------------------------------------------------------------


def test_reads_on_both_disks(place: tuple[Disk, str]) -> None:
    disk, root = place
    directory = f"{root}/log"
    create_log(disk, directory, 0)
    options = LogOptions(segment_bytes=2000)
    reader, writer, _ = open_log(disk, directory, options, now_us=0, cache=ReadCache(tail_bytes=0))
    bodies = [random.Random(at).randbytes(at * 37) for at in range(30)]
    for body in bodies:
        reader.apply(writer.append([NewChunk(1, body)], 0))
    assert [one.body for one in read_all(reader)] == bodies
    writer.close()
    reader.close()
    reader, writer, _ = open_log(disk, directory, options, now_us=0)
    assert [one.body for one in read_all(reader)] == bodies
    writer.close()
    reader.close()


@pytest.mark.parametrize("cache", [ReadCache(tail_bytes=0), ReadCache(mapped_segments=0), ReadCache()])
def test_bodies_are_read_only_and_outlive_everything(twin: FaultyDisk, cache: ReadCache) -> None:
    log = filled(twin)
    reader, writer, _ = open_log(twin, LOG, log.options, now_us=0, cache=cache)
    reader.apply(writer.append([NewChunk(1, bytearray(b"new"))], 0))
    bodies = [reader.read(ref) for sequence in (1, 24, 25) if (ref := reader.find(sequence)) is not None]
    assert all(body.readonly for body in bodies)
    reader.apply(writer.roll(0))
    reader.apply(Trimmed(writer.next))
    writer.trim(writer.next)
    reader.close()
    writer.close()
    gc.collect()
    assert [bytes(body) for body in bodies] == [b"\0" + BODY, b"\x0b" + BODY, b"new"]


def test_what_was_just_appended_is_not_read_from_the_disk(twin: FaultyDisk) -> None:
    log = LogUnderTest(twin)
    twin.fail("read", count=100)
    body = b"hot" * 100
    log.append(NewChunk(1, body))
    ref = log.reader.find(1)
    assert ref is not None
    assert log.reader.read(ref).obj is body


def test_nothing_below_the_earliest(twin: FaultyDisk) -> None:
    log = filled(twin)
    first = log.reader.find(1)
    assert first is not None
    log.trim(13)
    assert log.reader.find(12) is None
    with pytest.raises(LookupError, match="below 13"):
        log.reader.read(first)
    following = log.reader.following(first)
    assert following is not None
    assert following.base == 13  # a visible jump
    log.check()


def test_a_trim_within_a_segment_hides_contents_and_survives_opening(twin: FaultyDisk) -> None:
    log = filled(twin)
    log.trim(15)
    assert log.reader.earliest == 15
    assert next(log.reader.segments()).base == 13
    log.earliest = 15
    log.close()
    log.open()
    assert log.reader.earliest == 15
    assert log.reader.at_time(0) == log.reader.find(15)


# --- damage and failures ------------------------------------------------------------------------------------


def reopened(twin: FaultyDisk) -> LogReader:
    return open_log(twin, LOG, now_us=0, cache=ReadCache())[0]


def test_a_cold_chunk_is_verified_once(twin: FaultyDisk) -> None:
    filled(twin).close()
    reader = reopened(twin)
    path = f"{LOG}/00000000000000000001.segment"
    ref = reader.find(3)
    assert ref is not None
    twin.flip(path, ref.offset + 64 + 10)
    with pytest.raises(Damaged, match="checksum; contents 3 to 4 are affected") as caught:
        reader.read(ref)
    assert (caught.value.file, caught.value.offset) == (path, ref.offset)
    assert (caught.value.first, caught.value.end) == (3, 5)
    neighbour = reader.find(5)
    assert neighbour is not None
    assert bytes(reader.read(neighbour)) == b"\x02" + BODY  # the others are served
    twin.flip(path, ref.offset + 64 + 10)
    assert bytes(reader.read(ref)) == b"\x01" + BODY
    twin.fail("read", count=100)
    assert bytes(reader.read(ref)) == b"\x01" + BODY  # from the mapping, not verified again


def test_where_a_body_lies_are_its_octets(twin: FaultyDisk) -> None:
    log = filled(twin)  # sealed segments, and a newest one
    for sequence in range(1, log.reader.next):
        ref = log.reader.find(sequence)
        assert ref is not None
        path, offset = log.reader.place(ref)
        assert twin.open(path, "read").pread(ref.size, offset) == bytes(log.reader.read(ref))


def test_a_cold_chunk_is_verified_before_its_place_is_told(twin: FaultyDisk) -> None:
    filled(twin).close()
    reader = reopened(twin)
    ref = reader.find(3)
    assert ref is not None
    path = f"{LOG}/00000000000000000001.segment"
    twin.flip(path, ref.offset + 64 + 10)
    with pytest.raises(Damaged, match="contents 3 to 4 are affected"):
        reader.place(ref)
    twin.flip(path, ref.offset + 64 + 10)
    assert reader.place(ref)[0] == path
    twin.fail("read", count=100)
    assert reader.place(ref)[0] == path  # not verified again


def test_what_retention_took_has_no_place(twin: FaultyDisk) -> None:
    log = filled(twin)
    first = log.reader.find(1)
    assert first is not None
    log.trim(13)
    with pytest.raises(LookupError, match="below 13"):
        log.reader.place(first)


def test_a_disk_that_does_not_read_tells_no_place(twin: FaultyDisk) -> None:
    filled(twin).close()
    reader = reopened(twin)
    ref = reader.find(3)
    assert ref is not None
    twin.fail("read")
    with pytest.raises(StorageFailed):
        reader.place(ref)


def test_a_cold_header_is_verified(twin: FaultyDisk) -> None:
    filled(twin).close()
    reader = reopened(twin)
    twin.flip(f"{LOG}/00000000000000000001.segment", 64 + 320)
    ref = reader.find(3)
    assert ref is not None
    with pytest.raises(Damaged, match="header"):
        reader.read(ref)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_other_octets_are_never_taken_for_a_chunk(twin: FaultyDisk, *, sealed: bool, told: bool) -> None:
    """Also in a segment that this process wrote: its index, or its file, may not be what the reader believes."""
    log = LogUnderTest(twin, LogOptions(segment_bytes=1 << 20))
    log.append(NewChunk(2, BODY), NewChunk(2, BODY[::-1]))
    log.append(NewChunk(2, BODY))
    if sealed:
        log.roll()
    first, second = log.reader.find(1), log.reader.find(3)
    assert first is not None
    assert second is not None
    reader = forgetful(log)
    file = twin.open(f"{LOG}/00000000000000000001.segment", "write")
    file.writev([file.pread(second.stored, second.offset)], first.offset)
    with pytest.raises(Damaged, match="its header does not verify; contents 1 to 2 are affected"):
        reader.place(first) if told else reader.read(first)
    assert bytes(reader.read(second)) == BODY[::-1]


def forgetful(log: LogUnderTest) -> LogReader:
    """The reader of a log, without the bodies that it keeps in memory."""
    log.reader._cache.forget_bodies(log.reader)
    return log.reader


@pytest.mark.parametrize("told", [True, False])
def test_a_tail_that_ends_too_early(twin: FaultyDisk, *, told: bool) -> None:
    log = LogUnderTest(twin)
    log.append(NewChunk(2, BODY))
    ref = log.reader.find(1)
    assert ref is not None
    twin.shorten(f"{LOG}/00000000000000000001.segment", ref.offset + (30 if told else 100))
    reader = forgetful(log)
    with pytest.raises(Damaged, match="the file ends too early"):
        reader.place(ref) if told else reader.read(ref)


def test_a_sealed_segment_that_is_too_short(twin: FaultyDisk) -> None:
    filled(twin).close()
    twin.shorten(f"{LOG}/00000000000000000001.segment", 500)
    reader = reopened(twin)
    with pytest.raises(Damaged, match=r"500 octets instead of 1024; contents from 3 on"):
        reader.find(1)
    assert reader.find(7) is not None


def test_a_sealed_segment_that_is_missing(twin: FaultyDisk) -> None:
    filled(twin).close()
    twin.unlink(f"{LOG}/00000000000000000007.segment")
    reader = reopened(twin)
    assert reader.find(6) is not None, "what lies before it is whole"
    with pytest.raises(Damaged, match="contents 7 to 12 should be there, but their segments are missing"):
        reader.find(8)


def test_an_index_that_does_not_verify_is_made_again_in_memory(twin: FaultyDisk) -> None:
    log = filled(twin)
    log.close()
    twin.flip(f"{LOG}/00000000000000000001.index", 100)
    log.open()
    log.check()


def test_a_disk_that_does_not_read_is_no_damage(twin: FaultyDisk) -> None:
    filled(twin).close()
    reader = reopened(twin)
    twin.fail("open", count=2)
    with pytest.raises(StorageFailed, match=r"reading .*1\.segment"):
        reader.find(1)
    with pytest.raises(StorageFailed):
        reader.find(1)
    ref = reader.find(1)
    assert ref is not None
    twin.fail("read")
    with pytest.raises(StorageFailed):
        reader.read(ref)
    assert bytes(reader.read(ref)) == b"\0" + BODY


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EMFILE])
def test_what_cannot_be_mapped_is_read(twin: FaultyDisk, code: int) -> None:
    log = filled(twin)
    log.close()
    twin.fail("map", count=100, error=code)
    log.open()
    log.check()
    log.check()


def test_a_segment_that_was_cut_below_its_mapping_is_damage(twin: FaultyDisk) -> None:
    filled(twin).close()
    reader = reopened(twin)
    ref = reader.find(3)
    assert ref is not None
    reader.read(ref)
    twin.shorten(f"{LOG}/00000000000000000001.segment", ref.offset + 70)
    with pytest.raises(Damaged, match="the file ends too early; contents 3 to 4 are affected"):
        reader.read(ref)
    first = reader.find(1)
    assert first is not None
    assert bytes(reader.read(first)) == b"\0" + BODY


def test_what_a_mapping_cannot_show_is_read(twin: FaultyDisk) -> None:
    """A bad sector below a mapping, or a system that cannot say that there is one."""
    filled(twin).close()
    reader = reopened(twin)
    ref = reader.find(3)
    assert ref is not None
    reader.read(ref)
    twin.fail("bring", count=2)
    assert bytes(reader.read(ref)) == b"\1" + BODY
    twin.fail("read")
    with pytest.raises(StorageFailed):
        reader.read(ref)


def test_a_map_that_fails_otherwise_is_told(twin: FaultyDisk) -> None:
    filled(twin).close()
    reader = reopened(twin)
    ref = reader.find(1)
    assert ref is not None
    twin.fail("map", error=errno.EIO)
    with pytest.raises(StorageFailed):
        reader.read(ref)


# --- memory -------------------------------------------------------------------------------------------------


def test_mappings_and_ghosts_are_counted(twin: FaultyDisk) -> None:
    log = filled(twin)
    cache = ReadCache(mapped_segments=2, tail_bytes=0)
    reader, writer, _ = open_log(twin, LOG, log.options, now_us=0, cache=cache)
    bodies = []
    for sequence in (1, 7, 13):  # a third mapping drops the first
        found = reader.find(sequence)
        assert found is not None
        bodies.append(reader.read(found))
    assert cache.mapped_bytes == 2 * 1024
    assert cache.ghost_bytes == 0
    reader.apply(Trimmed(13))
    writer.trim(13)
    assert (
        cache.ghost_bytes == 2 * 1024
    )  # two removed files are shown by frames, one of them not mapped any more
    del bodies[0]
    gc.collect()
    assert cache.ghost_bytes == 1024
    bodies.clear()
    gc.collect()
    assert cache.ghost_bytes == 0


def test_above_the_limit_of_ghosts_contents_are_copied(twin: FaultyDisk) -> None:
    log = filled(twin)
    cache = ReadCache(tail_bytes=0, ghost_limit=1024)
    reader, writer, _ = open_log(twin, LOG, log.options, now_us=0, cache=cache)
    ref = reader.find(1)
    assert ref is not None
    held = reader.read(ref)
    reader.apply(Trimmed(7))
    writer.trim(7)
    ref = reader.find(7)
    assert ref is not None
    assert bytes(reader.read(ref)) == b"\x03" + BODY
    assert cache.mapped_bytes == 0
    del held
    gc.collect()
    reader.read(ref)
    assert cache.mapped_bytes == 1024


def test_indexes_are_read_when_needed_and_bounded(twin: FaultyDisk) -> None:
    log = filled(twin, 60)
    cache = ReadCache(index_bytes=200)
    reader, _, _ = open_log(twin, LOG, log.options, now_us=0, cache=cache)
    assert read_all(reader) == log.visible
    assert read_all(reader) == log.visible
    loaded = [segment for segment in reader._segments if segment.index is not None]
    assert len(loaded) <= 3


# --- retention over a reader --------------------------------------------------------------------------------


def test_retention_plans_over_the_reader_and_reads_no_more_than_it_must(twin: FaultyDisk) -> None:
    log = filled(twin)
    reader = log.reader
    before = sum(segment.index is not None for segment in reader._segments)
    result = plan(
        reader.segments(),
        total_bytes=reader.bytes,
        next_sequence=reader.next,
        policy=RetentionPolicy(bytes=2036, groups=("g",)),
        holds=[Hold("g", 100, group=True)],
        too_old=lambda _: 0,
    )
    assert result.earliest == 13
    assert sum(segment.index is not None for segment in reader._segments) == before
    log.trim(result.earliest)
    log.check()
    by_age = plan(
        reader.segments(),
        total_bytes=reader.bytes,
        next_sequence=reader.next,
        policy=RetentionPolicy(age_s=1),
        holds=(),
        too_old=lambda age_s: log.now + 10_000_000 - int(age_s * 1e6),
    )
    assert by_age.earliest == [info.base for info in reader.segments()][-1]


def test_a_log_of_many_segments_opens_with_one_scan(twin: FaultyDisk) -> None:
    log = filled(twin, 600)
    opened: list[str] = []

    def note(path: str) -> bool:
        opened.append(path)
        return False

    log.close()
    twin.fail("open", when=note)
    log.open_only()
    assert len(opened) <= 8
    assert log.report.segments == 200
    assert log.report.scanned_bytes <= 1100

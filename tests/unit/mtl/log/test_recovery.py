"""Cuts, repairs and refusals at the opening of a log. Each case ends with a usable log or an unchanged one."""

from __future__ import annotations

import random

import pytest

from mtl.errors import Damaged, StorageError, UnknownFormat
from mtl.log.cache import ReadCache
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk, RunEntry, padded
from mtl.log.log import delete_log, open_log, rebuild_manifest
from mtl.log.manifest import MANIFEST
from mtl.log.segment import index_name, segment_name
from mtl.log.verify import verify_log
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest, files, filled_log, make_dirs, read_all
from tests.support.texts import in_order

BODY = bytes(range(100))
STORED = 64 + padded(len(BODY))
FIRST = f"{LOG}/{segment_name(1)}"


def chunk(count: int = 1, *runs: RunEntry) -> NewChunk:
    return NewChunk(count, BODY, runs)


@pytest.fixture
def log(twin: FaultyDisk) -> LogUnderTest:
    return LogUnderTest(twin, LogOptions(segment_bytes=1 << 20))


def copy_of(disk: FaultyDisk, directory: str = LOG) -> FaultyDisk:
    """The files of a log, durable, on a separate disk."""
    copy = FaultyDisk(random.Random(5))
    make_dirs(copy, "/data", directory)
    for name in disk.list_dir(directory):
        copy.put(f"{directory}/{name}", disk.content(f"{directory}/{name}"))
    return copy


def contents(disk: FaultyDisk) -> dict[str, bytes]:
    return {name: disk.content(f"{LOG}/{name}") for name in disk.list_dir(LOG)}


# --- the torn tail ------------------------------------------------------------------------------------------


def test_a_file_cut_at_any_octet_opens_with_the_complete_chunks(log: LogUnderTest) -> None:
    for count in (1, 3):
        log.append(*[chunk() for _ in range(count)])
    log.disk.kill()
    size = len(log.disk.content(FIRST))
    assert size > 64 + 4 * STORED, "there is room for more"
    for end in (*range(64, 64 + 4 * STORED + 1), size):
        disk = copy_of(log.disk)
        disk.shorten(FIRST, end)
        reader, writer, report = open_log(disk, LOG, now_us=0)
        whole = min(4, (end - 64) // STORED)
        assert [stored.body for stored in read_all(reader)] == [BODY] * whole
        is_torn = end < size and (end - 64) % STORED > 0
        assert (report.cut_bytes > 0, report.cut_file) == (is_torn, FIRST if is_torn else None)
        reader.apply(writer.append([NewChunk(1, b"next")], 0))
        writer.close()
        disk.crash()
        reader, _, _ = open_log(disk, LOG, now_us=0)
        assert [stored.body for stored in read_all(reader)] == [BODY] * whole + [b"next"]


@pytest.mark.parametrize("sector", [1, 2])
def test_a_hole_in_the_last_group_is_cut_with_the_chunks_behind_it(log: LogUnderTest, sector: int) -> None:
    """The pages of one unsynced group reach the disk in any order: valid chunks behind a bad one are normal."""
    log.append(chunk(), chunk())
    log.append(*[chunk() for _ in range(8)])
    log.disk.kill()
    image, end = bytearray(log.disk.content(FIRST)), 64 + 10 * STORED
    start = max(512 * sector, 64 + 2 * STORED)  # the first of these sectors was there before
    image[start : 512 * (sector + 1)] = bytes(512 * (sector + 1) - start)
    log.disk.put(FIRST, bytes(image))
    reader, writer, report = open_log(log.disk, LOG, now_us=0)
    whole = max(2, (start - 64) // STORED)
    assert reader.contents == whole
    assert (report.cut_at, report.cut_bytes) == (64 + whole * STORED, end - 64 - whole * STORED)
    assert (report.cut_first, report.cut_end) == (whole + 1, 11)
    reader.apply(writer.append([chunk()], 0))
    assert len(read_all(reader)) == whole + 1


@pytest.mark.parametrize("at", [0, 5, 40, 63, 64, 100, 163, 180])
def test_a_flipped_bit_in_the_last_group_is_detected_once_its_end_is_recorded(
    log: LogUnderTest, at: int
) -> None:
    """Before that it cannot be distinguished from an unfinished write."""
    log.append(chunk())
    log.append(chunk(), chunk())
    for recorded in (False, True):
        if recorded:
            assert log.writer.mark()
        log.disk.kill()
        disk = copy_of(log.disk)
        disk.flip(FIRST, 64 + STORED + at)
        if recorded:
            with pytest.raises(Damaged, match="contents 2 to"):
                open_log(disk, LOG, now_us=0)
        else:
            _, _, report = open_log(disk, LOG, now_us=0)
            assert (report.cut_first, report.cut_end) == (2, 4)
            log.open()


def test_a_missing_last_group_is_damage_once_its_end_is_recorded(log: LogUnderTest) -> None:
    """The file is cut at a boundary, so that it looks intact."""
    log.append(chunk())
    log.append(chunk(), chunk())
    assert log.writer.mark()
    log.disk.kill()
    log.disk.shorten(FIRST, 64 + STORED)
    with pytest.raises(Damaged, match="contents 2 to 3 are affected"):
        open_log(log.disk, LOG, now_us=0)


@pytest.mark.parametrize("bad", range(2))
@pytest.mark.parametrize("at", [0, 5, 40, 63, 64, 100, 163, 180])
def test_a_bad_chunk_attested_by_a_later_one_is_damage(log: LogUnderTest, bad: int, at: int) -> None:
    log.append(chunk(), chunk())
    log.append(chunk())
    log.disk.kill()
    offset = 64 + bad * STORED
    log.disk.flip(FIRST, offset + at)
    before = contents(log.disk)
    with pytest.raises(Damaged, match=rf"{FIRST}: damaged at octet {offset}: .*mtl verify") as caught:
        open_log(log.disk, LOG, now_us=0)
    damage = caught.value
    assert (damage.file, damage.offset, damage.first) == (FIRST, offset, 1 + bad)
    assert damage.end in {2 + bad, 3 + bad}
    assert contents(log.disk) == before, "a damaged log is left as it was found"


def test_damage_without_intact_chunks_behind_it_affects_the_rest(log: LogUnderTest) -> None:
    log.append(chunk())
    log.append(chunk(), chunk())
    log.close()  # its mark attests all three
    for offset in (64 + STORED, 64 + 2 * STORED):
        log.disk.flip(FIRST, offset)
    with pytest.raises(Damaged, match="contents 2 to 3 are affected"):
        open_log(log.disk, LOG, now_us=0)


@pytest.mark.parametrize("how", ["close", "mark", "open"])
def test_the_end_is_recorded_in_the_manifest(log: LogUnderTest, how: str) -> None:
    """Without one, damage to the last group cannot be told from a torn tail."""
    log.append(chunk(), chunk())
    if how == "close":
        log.close()
    elif how == "mark":
        log.mark()
    else:
        log.crash(power=False)
    log.disk.kill()
    log.disk.flip(FIRST, 64 + STORED + 70)
    with pytest.raises(Damaged):
        open_log(log.disk, LOG, now_us=0)


def test_reopening_a_log_does_not_grow_its_files(log: LogUnderTest) -> None:
    log.append(chunk())
    log.crash(power=False)
    size = len(log.disk.content(FIRST))
    for _ in range(3):
        log.crash(power=False)
        log.close()
        log.open()
    assert len(log.disk.content(FIRST)) == size == 64 + STORED


def test_a_log_without_a_tail_is_not_truncated(log: LogUnderTest) -> None:
    log.append(chunk())
    log.close()
    log.disk.fail("truncate")
    log.open()


def test_a_failed_recovery_leaves_no_file_open(log: LogUnderTest) -> None:
    log.append(chunk())
    log.disk.kill()
    log.disk.fail("sync")
    with pytest.raises(StorageError):
        open_log(log.disk, LOG, now_us=0)
    assert log.disk.open_files == 0


@pytest.mark.parametrize("seed", range(5))
def test_contents_of_a_failed_sync_are_durable_after_recovery(seed: int) -> None:
    """The system shows them, but the disk may not have all their pages."""
    disk = FaultyDisk(random.Random(seed))
    log = LogUnderTest(disk, LogOptions(segment_bytes=1 << 20))
    log.append(chunk())
    disk.fail("sync")
    disk.fail("create")  # else the writer ends the segment before the group
    with pytest.raises(StorageError):
        log.append(NewChunk(1, BODY * 300))
    disk.kill()
    disk.heal()
    for _ in range(2):
        reader, _, _ = open_log(disk, LOG, now_us=0)
        assert reader.contents == 2
        disk.crash(keep="none")


def test_chunks_inside_a_body_are_not_chunks_of_the_log(log: LogUnderTest) -> None:
    """Also if they are copies of the log's own octets: a header is valid only at its offset."""
    for _ in range(3):
        log.append(chunk())
    log.append(NewChunk(1, log.disk.content(FIRST)))
    log.disk.kill()
    log.disk.flip(FIRST, 64 + 3 * STORED)  # the last chunk's header, not attested
    reader, _, report = open_log(log.disk, LOG, now_us=0)
    assert reader.contents == 3
    assert report.cut_bytes


@pytest.mark.parametrize("zeros", [0, 64, 5000])
@pytest.mark.parametrize("tail", [b"", b"MTLc" * 100, b"\xff" * 63])
def test_garbage_behind_the_last_chunk_is_cut(log: LogUnderTest, tail: bytes, zeros: int) -> None:
    """Zeros are cut without a report: they are preallocated room."""
    log.append(chunk())
    log.disk.kill()
    log.disk.put(FIRST, log.disk.content(FIRST) + tail + bytes(zeros))
    reader, writer, report = open_log(log.disk, LOG, now_us=0)
    assert (reader.contents, report.cut_bytes) == (1, min(padded(len(tail)), len(tail) + zeros))
    reader.apply(writer.append([chunk()], 0))
    assert len(read_all(reader)) == 2


def test_chunks_of_a_removed_segment_in_reused_blocks_are_not_read(twin: FaultyDisk) -> None:
    """Blocks of a new file may have the content of an old one after a crash."""
    log = LogUnderTest(twin, LogOptions(segment_bytes=1 << 20))
    log.append(chunk(), chunk())
    log.append(chunk())
    old = twin.content(FIRST)
    delete_log(twin, LOG)
    log = LogUnderTest(twin)
    log.append(chunk())
    twin.kill()
    twin.put(FIRST, twin.content(FIRST) + old[64 + STORED :])
    reader, _, report = open_log(twin, LOG, now_us=0)
    assert (reader.contents, report.cut_bytes) == (1, 2 * STORED)
    assert len(twin.content(FIRST)) == 64 + STORED, "the bad tail is cut off the file"


# --- headers, names, versions -------------------------------------------------------------------------------


def test_a_newest_segment_too_short_for_a_header_is_created_again(log: LogUnderTest) -> None:
    log.append(chunk(2, RunEntry(3, 1, 2)))
    log.roll()
    log.disk.kill()
    log.disk.put(f"{LOG}/{segment_name(3)}", b"MTLSEG")
    log.open()
    log.append(chunk())
    log.crash()


def test_a_newest_segment_too_short_for_attested_contents_is_damage(log: LogUnderTest) -> None:
    log.append(chunk())
    log.close()
    log.disk.put(f"{LOG}/{segment_name(9)}", b"")
    with pytest.raises(Damaged, match="contents 2 to 8 should be there"):
        log.open()


@pytest.mark.parametrize("octet", [0, 16, 30, 63, 64 + 3])
def test_a_damaged_header_or_table_of_the_newest_segment_is_damage(log: LogUnderTest, octet: int) -> None:
    log.append(chunk(2, RunEntry(3, 1, 2)))
    log.roll()
    log.append(chunk())
    log.close()
    log.disk.flip(f"{LOG}/{segment_name(3)}", octet)
    before = contents(log.disk)
    with pytest.raises(Damaged, match="does not verify"):
        log.open()
    assert contents(log.disk) == before


def test_a_segment_under_a_wrong_name_is_damage(log: LogUnderTest) -> None:
    log.append(chunk())
    log.close()
    log.disk.rename(FIRST, f"{LOG}/{segment_name(7)}")
    log.disk.unlink(f"{LOG}/{MANIFEST}")
    rebuild_manifest(log.disk, LOG, b"")
    with pytest.raises(Damaged, match="belongs to another segment"):
        open_log(log.disk, LOG, now_us=0)


def test_a_log_without_files_is_damage(log: LogUnderTest) -> None:
    log.close()
    log.disk.unlink(FIRST)
    with pytest.raises(Damaged, match=in_order("from 1", "00000000000000000001.segment", "missing")):
        log.open()


@pytest.mark.parametrize(("metadata", "applied"), [(None, 15), (1, 15), (16, 16)])
def test_the_later_beginning_of_metadata_and_manifest_applies(
    twin: FaultyDisk, metadata: int | None, applied: int
) -> None:
    log = filled_log(twin)
    log.trim(15)
    log.close()
    reader, _, _ = open_log(log.disk, LOG, now_us=0, earliest=metadata)
    assert reader.earliest == applied


def test_contents_of_the_metadata_missing_in_the_files_are_damage(log: LogUnderTest) -> None:
    for _ in range(3):
        log.append(chunk())
        log.roll()
    log.close()
    log.disk.unlink(FIRST)
    with pytest.raises(Damaged, match="contents 1 to 1 should be there") as caught:
        log.open()
    assert (caught.value.first, caught.value.end) == (1, 2)
    with pytest.raises(Damaged, match="contents 1 to 1 should be there"):
        open_log(log.disk, LOG, now_us=0)  # the manifest has the same start


def test_a_later_version_is_refused_but_not_damage(
    log: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.log.segment.VERSION", 2)
    newer = LogUnderTest(FaultyDisk(random.Random(2)))
    newer.close()
    monkeypatch.undo()
    with pytest.raises(UnknownFormat, match="newer version of this software"):
        open_log(newer.disk, LOG, now_us=0)


def test_a_chunk_of_a_later_version_is_not_cut(log: LogUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(chunk())
    monkeypatch.setattr("mtl.log.chunk.VERSION", 2)
    log.append(chunk())
    monkeypatch.undo()
    log.disk.kill()
    with pytest.raises(UnknownFormat):
        log.open()


# --- rebuilt files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adopt", [True, False])
def test_missing_indexes_are_built_again(log: LogUnderTest, *, adopt: bool) -> None:
    for _ in range(2):
        log.append(chunk(2, RunEntry(1, log.next, 2)))
        log.commit([[chunk(3)], [chunk(1), chunk(2)]], adopt=adopt)
    refs = [log.reader.snapshot().find(chunk.base) for chunk in log.held]
    log.close()
    before = contents(log.disk)
    for name in before:
        if name.endswith(".index"):
            log.disk.unlink(f"{LOG}/{name}")
    log.open()
    log.check()
    assert [log.reader.snapshot().find(chunk.base) for chunk in log.held] == refs
    assert contents(log.disk) == before


def test_each_missing_index_is_built_again(log: LogUnderTest) -> None:
    log.append(chunk(2, RunEntry(1, 1, 2)))
    log.commit([[chunk(3)], [chunk(1), chunk(2)]], adopt=True)
    log.append(chunk(1))
    log.roll()
    log.close()
    before = contents(log.disk)
    for name in before:
        if not name.endswith(".index"):
            continue
        disk = copy_of(log.disk)
        disk.unlink(f"{LOG}/{name}")
        log.disk = disk
        log.open()
        assert log.report.rebuilt == (name,)
        assert contents(disk)[name] == before[name]
        log.writer.close()


def test_unfinished_files_and_orphans_are_removed(log: LogUnderTest) -> None:
    log.append(chunk())
    log.close()
    names = (
        "segment.tmp",
        "segment.new",
        "index.new",
        "link.new",
        "manifest.new",
        "00000000000000000099.index",
    )
    for name in names:
        log.disk.put(f"{LOG}/{name}", b"half")
    log.open()
    assert set(log.report.removed) == set(names)
    assert files(log.disk) == [segment_name(1)]


def test_a_foreign_index_of_the_newest_segment_is_ignored(log: LogUnderTest) -> None:
    """As after a crash between a stage's index and its segment that replace an empty newest segment."""
    log.append(chunk())
    log.roll()
    other = LogUnderTest(FaultyDisk(random.Random(9)))
    other.append(chunk())
    other.append(chunk())
    other.writer.seal()
    index = other.disk.content(f"{LOG}/00000000000000000001.index")
    log.disk.kill()
    log.disk.put(f"{LOG}/00000000000000000002.index", index)
    log.open()
    log.check()
    assert log.report.removed == ("00000000000000000002.index",)


def test_the_table_of_writers_survives_adopted_segments_that_are_the_newest(log: LogUnderTest) -> None:
    log.append(chunk(2, RunEntry(1, 1, 2)))
    log.commit([[chunk(3)]], adopt=True)
    log.close()
    log.disk.unlink(f"{LOG}/{segment_name(6)}")  # the segment that the adoption began after it
    log.open()
    assert log.writer.last_numbers == {1: 2}
    assert files(log.disk)[-1] == segment_name(6)
    report = log.report
    assert (report.cut_bytes, report.cut_file) == (0, None)
    assert report.cut_first == report.cut_end == 6


@pytest.mark.parametrize("left", [128, 192, 256])
def test_a_cut_table_of_writers_is_damage(log: LogUnderTest, left: int) -> None:
    """The log is left unchanged, because a copy of the file may replace it."""
    log.append(chunk(2, RunEntry(1, 1, 2)))
    log.commit([[chunk(3)]], adopt=True)
    log.close()
    log.disk.unlink(f"{LOG}/{segment_name(6)}")
    size = log.disk.sizes(LOG)[segment_name(1)]
    log.disk.shorten(FIRST, left)
    with pytest.raises(Damaged, match=f"has {left} octets instead of {size}"):
        log.open()


def test_a_missing_table_of_writers_is_damage(log: LogUnderTest) -> None:
    log.append(chunk(2, RunEntry(1, 1, 2)))
    log.commit([[chunk(3)]], adopt=True)
    log.close()
    for name in (segment_name(6), segment_name(1)):
        log.disk.unlink(f"{LOG}/{name}")
    log.earliest = 3
    with pytest.raises(Damaged, match="writers' last numbers are lost"):
        log.open()


# --- a trim that was interrupted ----------------------------------------------------------------------------


def test_segments_removed_by_recovery_are_not_missing_afterwards(log: LogUnderTest) -> None:
    """The metadata had the new start of the log; the kill came before the manifest had it."""
    log.append(chunk(2))
    log.roll()
    log.append(chunk(1))
    log.close()
    _, writer, report = open_log(log.disk, LOG, now_us=0, earliest=3)
    writer.close()
    assert report.removed == (segment_name(1), index_name(1))
    assert [report.problems for report in verify_log(log.disk, LOG)] == [()]


# --- a flipped bit ------------------------------------------------------------------------------------------


def small_log() -> LogUnderTest:
    """Three kinds of segment: sealed with writers' runs, adopted, and the newest, closed."""
    log = LogUnderTest(FaultyDisk(random.Random(3)), LogOptions(segment_bytes=1 << 20))
    for at in range(2):
        log.append(NewChunk(2, bytes([at]) * 70, (RunEntry(1, 1 + 2 * at, 2),)), NewChunk(1, b""))
    log.commit([[NewChunk(3, b"staged" * 10)]], adopt=True)
    log.append(NewChunk(1, b"tail" * 5))
    log.append(NewChunk(1, b"end" * 30))
    log.close()
    return log


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_detected_or_harmless(bit: int) -> None:
    """Every bit of every file: the log is Damaged, or all contents are correct."""
    log = small_log()
    outcomes = {"damaged": 0, "whole": 0}
    names = contents(log.disk)
    for name, data in names.items():
        newest = name == max(other for other in names if other.endswith(".segment"))
        for offset in range(len(data)):
            disk = copy_of(log.disk)
            disk.flip(f"{LOG}/{name}", offset, bit)
            try:
                reader, writer, _ = open_log(disk, LOG, now_us=0, earliest=1, cache=ReadCache())
                found = read_all(reader)
            except Damaged:
                outcomes["damaged"] += 1
                assert name.endswith(".segment") or name == MANIFEST
                continue
            assert found == log.visible, (name, offset)
            assert writer.last_numbers == log.numbers
            outcomes["whole"] += 1
            # An index is built again; of a sealed segment the head (not needed any more) and run tables (whose
            # numbers are in the next snapshot) are only read by `mtl verify`.
            in_head = offset < 64 and not newest
            assert name.endswith(".index") or in_head, (name, offset)
    assert outcomes["damaged"] > 1000

"""A writer of a log under each failure: kept and dropped contents. Crashes are in test_log.py."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from mtl.errors import StorageFailed, StorageFull
from mtl.log.change import Durability, LogOptions, Synced
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.group import WRITE_AHEAD
from mtl.log.log import open_log
from mtl.log.segment import index_name, segment_name
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest, files
from tests.support.texts import in_order

BODY = bytes(range(256)) * 3


def chunk(count: int = 2, *runs: RunEntry) -> NewChunk:
    return NewChunk(count, BODY, runs)


@pytest.fixture
def log() -> LogUnderTest:
    return LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(segment_bytes=1 << 20))


# --- appending ----------------------------------------------------------------------------------------------


def test_sequences_are_assigned_in_order(log: LogUnderTest) -> None:
    change = log.writer.append([chunk(3), chunk(1)], 2_000_000)
    assert (change.first, change.next, change.time_us) == (1, 5, 2_000_000)
    assert [(ref.base, ref.count, ref.end, ref.size) for ref in change.chunks] == [
        (1, 3, 4, len(BODY)),
        (4, 1, 5, len(BODY)),
    ]
    assert change.bytes == sum(ref.stored for ref in change.chunks)
    assert log.writer.next == 5


def test_times_of_contents_never_decrease(log: LogUnderTest) -> None:
    assert log.writer.append([chunk()], 5_000_000).time_us == 5_000_000
    assert log.writer.append([chunk()], 4_000_000).time_us == 5_000_000
    assert log.writer.roll(3_000_000).new_headers[0].time == 5_000_000
    assert log.writer.append([chunk()], 0).time_us == 5_000_000


def test_times_do_not_decrease_below_the_start_of_the_segment(log: LogUnderTest) -> None:
    log.append(chunk())
    log.reader.apply(log.writer.roll(9_000_000))
    assert log.writer.append([chunk()], 4_000_000).time_us == 9_000_000


def test_a_group_has_one_sync_or_with_durability_os_none() -> None:
    for durability, syncs in (("sync", 1), ("os", 0)):
        log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(durability=durability))  # type: ignore[arg-type]
        log.disk.fail("sync", nth=1 + syncs)
        log.append(*[chunk() for _ in range(50)])
        with pytest.raises(StorageFailed):
            log.sync()


def test_a_sync_returns_the_durable_end(log: LogUnderTest) -> None:
    assert log.writer.sync() == Synced(1)
    log.writer.append([chunk(3), chunk(1)], 0)
    assert log.writer.sync() == Synced(5)


def test_every_chunk_has_the_durable_end_at_the_start_of_its_group(log: LogUnderTest) -> None:
    ends = []
    for _ in range(3):
        change = log.writer.append([chunk(), chunk()], 0)
        ends.append(change.entries[-1].end)
    content = log.disk.content(f"{LOG}/{files(log.disk)[-1]}")
    durable = [int.from_bytes(content[at + 24 : at + 32], "little") for at in range(64, ends[-1], 832)]
    assert durable == [64, 64, ends[0], ends[0], ends[1], ends[1]]


def test_a_chunk_that_cannot_be_stored_does_not_change_the_log(log: LogUnderTest) -> None:
    with pytest.raises(ValueError, match="0 contents"):
        log.writer.append([chunk(), NewChunk(0, b"")], 0)
    log.check()
    log.append(chunk())
    log.check()


def test_the_dedup_table_follows_the_runs(log: LogUnderTest) -> None:
    log.append(chunk(5, RunEntry(7, 1, 2), RunEntry(8, 10, 3)))
    log.append(chunk(2, RunEntry(7, 3, 2)))
    assert log.writer.last_numbers == {7: 4, 8: 12}
    log.writer.forget([8, 99])
    log.roll()
    log.close()
    _, writer, _ = open_log(log.disk, LOG, now_us=0)
    assert writer.last_numbers == {7: 4}


# --- segments -----------------------------------------------------------------------------------------------


def test_a_segment_rolls_by_size(log: LogUnderTest) -> None:
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(segment_bytes=64 + 2 * 832))
    for _ in range(5):
        log.append(chunk())
    assert [info.end - info.base for info in log.reader.segments()] == [4, 4, 2]
    log.append(*[chunk() for _ in range(9)])  # a group is never split, however large
    assert [info.end - info.base for info in log.reader.segments()] == [4, 4, 2, 18]
    log.check()


def test_a_segment_rolls_by_the_age_of_its_first_content() -> None:
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(segment_age_s=10))
    start = 100_000_000
    log.reader.apply(log.writer.append([chunk()], start))
    assert not log.reader.roll_due(lambda age_s: start + 10_000_000 - int(age_s * 1e6), start)
    assert log.reader.roll_due(lambda age_s: start + 10_000_001 - int(age_s * 1e6), start)
    log.reader.apply(log.writer.append([chunk()], start + 10_000_000))
    assert len(list(log.reader.segments())) == 1
    log.reader.apply(log.writer.append([chunk()], start + 10_000_001))
    assert len(list(log.reader.segments())) == 2
    log.reader.apply(log.writer.roll(start + 10_000_001))
    assert not log.reader.roll_due(lambda _: start + 10**12, start + 10_000_001)  # nothing in it


def test_rolling_an_empty_segment_has_no_effect(log: LogUnderTest) -> None:
    assert log.writer.roll(0).new_headers == ()
    assert len(files(log.disk)) == 1


def test_a_sealed_log_continues_in_a_new_segment(log: LogUnderTest) -> None:
    log.append(chunk())
    log.reader.apply(log.writer.seal())
    assert [name.partition(".")[2] for name in files(log.disk)] == ["index", "segment"]
    assert log.writer.seal().next == 3
    log.check()
    log.append(chunk())
    log.check()
    assert len(files(log.disk)) == 3


def test_trim_removes_whole_segments_and_never_the_newest(log: LogUnderTest) -> None:
    for _ in range(3):
        log.append(chunk())
        log.roll()
    log.trim(log.next)
    assert files(log.disk) == ["00000000000000000007.segment"]
    log.check()
    log.append(chunk())
    log.crash()
    assert log.writer.next == 9


def test_an_emptied_log_keeps_its_next_sequence(log: LogUnderTest) -> None:
    log.append(chunk(5, RunEntry(1, 1, 5)))
    log.roll()
    log.trim(log.next)
    log.crash()
    assert (log.reader.contents, log.writer.next, log.writer.last_numbers) == (0, 6, {1: 5})


# --- a failed write -----------------------------------------------------------------------------------------


def test_a_group_on_a_full_disk_fails_and_later_ones_succeed(log: LogUnderTest) -> None:
    log.append(chunk())
    size = len(log.disk.content(f"{LOG}/{files(log.disk)[-1]}"))
    log.disk.capacity = size + 300
    with pytest.raises(StorageFull, match="appending in /data/log"):
        log.append(chunk(), chunk())
    assert not log.writer.stopped
    assert len(log.disk.content(f"{LOG}/{files(log.disk)[-1]}")) == size
    log.check()  # reads go on
    log.disk.capacity = None
    log.append(chunk())
    log.crash()


@pytest.mark.parametrize("seed", range(20))
def test_a_failed_group_does_not_reappear_after_a_crash(seed: int) -> None:
    log = LogUnderTest(FaultyDisk(random.Random(seed)), LogOptions(segment_bytes=1 << 20))
    log.append(chunk())
    log.disk.fail("write", when=lambda path: path.endswith(".segment"))
    with pytest.raises(StorageFailed):
        log.append(chunk(3), chunk(4))
    log.crash(keep="some")
    assert log.writer.next == 3


def test_a_log_that_cannot_be_truncated_stops(log: LogUnderTest) -> None:
    log.append(chunk())
    log.disk.fail("write")
    log.disk.fail("truncate")
    with pytest.raises(StorageFailed, match=r"was stopped: cutting back .* restart the broker"):
        log.append(chunk())
    assert log.writer.stopped
    for call in (
        lambda: log.writer.append([chunk()], 0),
        lambda: log.writer.roll(0),
        log.writer.sync,
        log.writer.mark,
    ):
        with pytest.raises(StorageFailed, match="stopped"):
            call()
    log.check()  # reads go on
    log.writer.close()
    log.crash(power=False)
    log.append(chunk())


# --- a limit of file sizes ----------------------------------------------------------------------------------


def too_large(log: LogUnderTest, name: str = ".segment", count: int = 1) -> None:
    """The next writes to a segment reach the limit of file sizes."""
    log.disk.fail("write", when=lambda path: name in path, error=errno.EFBIG, count=count)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_segment_that_may_not_grow_is_followed_by_another(durability: Durability) -> None:
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(durability=durability))
    log.append(chunk(3, RunEntry(1, 1, 3)))
    too_large(log)
    log.append(chunk(2))
    assert files(log.disk) == [index_name(1), segment_name(1), segment_name(4)]
    log.append(chunk())
    log.check()
    log.crash(power=False)


def test_a_commit_into_a_segment_that_may_not_grow_begins_another(log: LogUnderTest) -> None:
    log.append(chunk(3))
    too_large(log, f"log/{segment_name(1)}")
    log.commit([[chunk(2)]], adopt=False)
    log.crash()


def test_a_group_larger_than_a_file_may_be_is_refused_with_the_limit(
    log: LogUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.log.files.file_limit", lambda: 2_000_000)
    log.append(chunk(3))
    too_large(log, "segment", count=2)
    with pytest.raises(StorageFailed, match=in_order("2,000,000 octets", "ulimit -f, LimitFSIZE")):
        log.append(chunk(2))
    assert not log.writer.stopped
    log.append(chunk())
    log.crash()


def test_short_writes_are_completed() -> None:
    log = LogUnderTest(FaultyDisk(random.Random(1), short_writes=0.9))
    for _ in range(20):
        log.append(chunk(), chunk())
    log.crash()


# --- a failed sync ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_after_a_failed_sync_the_log_continues_in_a_new_segment(seed: int) -> None:
    log = LogUnderTest(FaultyDisk(random.Random(seed)), LogOptions(segment_bytes=1 << 20))
    log.append(chunk())
    log.disk.fail("sync")
    with pytest.raises(StorageFailed):
        log.append(chunk(3), chunk(4))
    assert not log.writer.stopped
    assert files(log.disk)[-1] == "00000000000000000003.segment"
    log.disk.drop_caches()
    log.check()
    log.append(chunk(2))
    assert log.held[-1].base == 3
    log.crash()
    assert [info.base for info in log.reader.segments()] == [1, 3]


@pytest.mark.parametrize("seed", range(8))
def test_a_failed_begin_sync_counts_as_a_failed_sync(seed: int) -> None:
    log = LogUnderTest(FaultyDisk(random.Random(seed)), LogOptions())
    log.append(chunk())
    large = [NewChunk(1, bytes(WRITE_AHEAD)) for _ in range(3)]
    log.disk.fail("begin_sync", nth=1 + seed % 3)
    with pytest.raises(StorageFailed):
        log.append(*large)
    assert not log.writer.stopped
    assert files(log.disk)[-1] == "00000000000000000003.segment"
    log.disk.drop_caches()
    log.check()
    log.append(*large)
    log.crash()


def test_under_durability_os_a_sync_is_never_started() -> None:
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(durability="os"))
    log.disk.fail("begin_sync")
    log.append(*[NewChunk(1, bytes(WRITE_AHEAD)) for _ in range(3)])
    log.sync()
    log.crash(keep="none")


def test_a_failed_sync_of_the_first_group_replaces_the_segment(log: LogUnderTest) -> None:
    log.disk.fail("sync")
    with pytest.raises(StorageFailed):
        log.append(chunk())
    log.disk.drop_caches()
    log.append(chunk(3))
    log.check()
    log.crash()
    assert files(log.disk) == ["00000000000000000001.segment"]


def test_a_second_failed_sync_stops_the_log(log: LogUnderTest) -> None:
    log.append(chunk())
    log.disk.fail("sync", count=2)
    with pytest.raises(StorageFailed, match="beginning a new segment after a failed sync"):
        log.append(chunk())
    assert log.writer.stopped


def test_a_failed_sync_is_not_retried_in_place(log: LogUnderTest) -> None:
    """The cached pages must be written again before they count as durable."""
    log.append(chunk())
    log.disk.fail("sync", count=2)
    with pytest.raises(StorageFailed):
        log.append(chunk())
    log.maybe = [chunk()]
    log.disk.heal()
    log.crash(power=False)  # the process only: the cache still shows the group
    log.crash(keep="none")  # what was found whole then is durable now


@pytest.mark.parametrize(
    "end", [lambda log: log.writer.seal(), lambda log: log.roll(), lambda log: log.close()]
)
def test_preallocated_room_is_cut_at_the_end_of_the_segment(
    log: LogUnderTest, end: Callable[[LogUnderTest], object]
) -> None:
    """Files used elsewhere (an adopted segment of a stage, a copy of the log) have no zeros at the end."""
    for _ in range(3):
        log.append(chunk())
    path = f"{LOG}/{files(log.disk)[-1]}"
    assert len(log.disk.content(path)) > 64 + 3 * 832
    end(log)
    assert len(log.disk.content(path)) == 64 + 3 * 832


def test_a_failed_write_releases_its_room(log: LogUnderTest) -> None:
    log.append(chunk())
    path = f"{LOG}/{files(log.disk)[-1]}"
    size = len(log.disk.content(path))
    log.disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.append(chunk())
    assert len(log.disk.content(path)) == size
    for _ in range(3):
        log.append(chunk())
    assert len(log.disk.content(path)) > size + 3 * 832
    log.crash()


def test_under_durability_os_a_failed_sync_stops_the_log() -> None:
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(durability="os"))
    log.append(chunk())
    log.disk.fail("sync")
    with pytest.raises(StorageFailed, match="syncing contents that were acknowledged"):
        log.sync()
    assert log.writer.stopped
    log.check()
    log.disk.heal()
    log.crash(power=False)
    log.crash(keep="none")
    assert log.writer.next == 3


def test_under_durability_os_the_visible_end_is_the_written_end() -> None:
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(durability="os"))
    log.append(chunk(2))
    assert log.reader.next == 3
    log.crash(power=False)  # the process is killed, the octets are in the page cache
    assert log.reader.next == 3
    log.append(chunk(2))
    log.crash(keep="none")
    assert log.reader.next == 3


# --- failures around segments -------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["create", "write", "sync", "rename"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_failed_roll_can_be_retried(log: LogUnderTest, op: str, nth: int) -> None:
    """The first file is the index, the second the new segment."""
    log.append(chunk(2, RunEntry(1, 1, 2)))
    log.disk.fail(op, nth=nth, error=errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.roll()
    assert not log.writer.stopped
    log.check()
    log.append(chunk())
    log.check()
    log.crash()


@pytest.mark.parametrize("nth", [1, 2])
def test_a_directory_that_cannot_be_synced_stops_the_log(log: LogUnderTest, nth: int) -> None:
    log.append(chunk())
    log.disk.fail("fsync_dir", nth=nth)
    with pytest.raises(StorageFailed, match="was stopped"):
        log.roll()
    log.check()
    log.crash()


def test_a_failed_trim_is_finished_by_the_next_start(log: LogUnderTest) -> None:
    for _ in range(4):
        log.append(chunk())
        log.roll()
    log.disk.fail("unlink", nth=3)
    with pytest.raises(StorageFailed):
        log.trim(log.next)
    log.check()
    log.disk.heal()
    log.crash()
    assert len(files(log.disk)) == 1


@pytest.mark.parametrize("op", ["write", "sync", "rename", "fsync_dir"])
def test_a_failed_record_of_the_end_is_retried(log: LogUnderTest, op: str) -> None:
    log.append(chunk())
    log.disk.fail(op, error=errno.ENOSPC)
    assert not log.writer.mark()
    assert not log.writer.stopped
    log.append(chunk())
    assert log.writer.mark()
    before = log.disk.steps
    assert log.writer.mark()  # once is enough
    assert log.disk.steps == before
    log.append(chunk())
    log.check()
    log.crash()


def test_recording_the_end_syncs_a_log_of_durability_os() -> None:
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(durability="os"))
    log.append(chunk())
    assert log.writer.mark()
    log.crash(keep="none")
    assert len(log.held) == 1


def test_a_mark_may_be_overwritten(log: LogUnderTest) -> None:
    log.append(chunk())
    log.crash(power=False)  # opening it writes an unsynced mark
    log.disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.roll()
    log.disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(StorageFull):
        log.append(chunk())
    log.roll()
    log.check()  # maps the segment, as long as its chunks are


def test_a_closed_writer_refuses_appends(log: LogUnderTest) -> None:
    log.append(chunk())
    log.writer.close()
    log.writer.close()
    with pytest.raises(StorageFailed, match="is closed"):
        log.writer.append([chunk()], 0)


def test_a_failed_close_is_an_error(log: LogUnderTest) -> None:
    log.append(chunk())
    log.append(chunk())  # with room for more behind it, which is cut
    log.disk.fail("sync")
    with pytest.raises(StorageFailed, match="closing"):
        log.writer.close()
    log.crash()

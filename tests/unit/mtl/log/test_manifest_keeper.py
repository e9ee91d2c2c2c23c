"""The manifest at every step of a writer: segments of other logs are detected, its own are accepted."""

from __future__ import annotations

from contextlib import suppress

import pytest

from mtl.errors import Damaged, StorageFailed
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk
from mtl.log.log import create_log, open_log
from mtl.log.manifest import Manifest
from mtl.log.segment import segment_base
from mtl.log.store import Store
from mtl.log.verify import verify_log
from tests.support.faulty_disk import Crashed, FaultyDisk
from tests.support.logs import LOG, LogUnderTest


def on_disk(log: LogUnderTest) -> Manifest:
    return Store(log.disk, LOG).manifest()


OTHER = f"{LOG}-other"


@pytest.fixture
def log(twin: FaultyDisk) -> LogUnderTest:
    return LogUnderTest(twin, LogOptions(segment_bytes=1 << 20))


def exchange(log: LogUnderTest, name: str) -> None:
    """A file of the log for the same one of another log."""
    mine, others = log.disk.content(f"{LOG}/{name}"), log.disk.content(f"{OTHER}/{name}")
    for path, data in ((f"{LOG}/{name}", others), (f"{OTHER}/{name}", mine)):
        log.disk.unlink(path)
        log.disk.put(path, data)


def make_other(log: LogUnderTest, *sizes: int) -> None:
    """Another log, a segment for each size; the last one has contents if its size is not 0."""
    create_log(log.disk, OTHER, 0)
    reader, writer, _ = open_log(log.disk, OTHER, now_us=0)
    for size in sizes:
        reader.apply(writer.roll(0))
        if size:
            reader.apply(writer.append([NewChunk(size, b"another's")], 0))
    writer.close()
    reader.close()


def assert_strange(log: LogUnderTest, name: str) -> None:
    """Opening and verifying report damage for both logs."""
    for directory in (LOG, OTHER):
        path = f"{directory}/{name}"
        with pytest.raises(Damaged, match=f"{path}: this is not the segment") as caught:
            open_log(log.disk, directory, now_us=0)
        damage = caught.value
        assert (damage.file, damage.offset, damage.first) == (path, 0, segment_base(name))
        problems = [p for report in verify_log(log.disk, directory) for p in report.problems]
        assert any("this is not the segment" in p.message for p in problems)


@pytest.mark.parametrize("closed", [True, False])
def test_the_newest_segments_of_two_logs_exchanged_are_damage(log: LogUnderTest, *, closed: bool) -> None:
    log.append(NewChunk(3, b"x"))
    log.roll()
    log.append(NewChunk(2, b"y"))
    if closed:
        log.close()
    else:
        log.disk.kill()
    make_other(log, 3, 2)
    exchange(log, f"{4:020d}.segment")
    assert_strange(log, f"{4:020d}.segment")


def test_a_commit_whose_undo_fails_is_not_damage(log: LogUnderTest) -> None:
    """The manifest names an older segment before contents of the newest one are removed."""
    log.append(NewChunk(3, b"x"))
    log.roll()
    log.writer.append([NewChunk(2, b"of a commit that was interrupted")], log.now)
    log.disk.kill()
    for op in ("create", "rename"):
        _, writer, _ = open_log(log.disk, LOG, now_us=log.now)
        log.disk.fail(op, nth=2)  # the first is the manifest's
        with pytest.raises(StorageFailed):
            writer.truncate_to(4)
        assert on_disk(log).newest == 1
        log.disk.kill()
    reader, writer, _ = open_log(log.disk, LOG, now_us=log.now)
    reader.apply(writer.truncate_to(4))
    assert reader.next == 4
    writer.close()


def test_a_segment_that_replaced_an_empty_one_is_accepted(
    log: LogUnderTest,
) -> None:
    """After a failed sync, a commit, and an undone commit."""
    log.append(NewChunk(3, b"x"))
    log.roll()
    log.disk.fail("sync")
    with pytest.raises(StorageFailed):
        log.append(NewChunk(1, b"y"))
    log.crash()
    log.commit([[NewChunk(2, b"z")]], adopt=True)
    log.crash()
    log.reader.apply(log.writer.truncate_to(4))
    del log.held[-1]
    log.crash()
    log.append(NewChunk(1, b"y"))
    log.crash()
    assert not [p for report in verify_log(log.disk, LOG) for p in report.problems]


@pytest.mark.parametrize("step", range(30))
def test_after_a_crash_at_any_step_segments_of_the_log_are_accepted(log: LogUnderTest, step: int) -> None:
    """At every step of replacing empty segments."""
    log.append(NewChunk(3, b"x"))
    log.roll()
    log.disk.fail("sync")
    log.disk.crash_after(step)
    with suppress(Crashed, StorageFailed):
        log.append(NewChunk(1, b"y"))
    with suppress(Crashed):
        log.writer.adopt((), log.now)
        log.writer.truncate_to(4)
        log.writer.append([NewChunk(1, b"z")], log.now)
    log.disk.crash_after(None)
    log.disk.heal()
    log.disk.kill()
    reader, writer, _ = open_log(log.disk, LOG, now_us=0)
    assert reader.next in (4, 5)
    writer.close()


def test_an_undone_commit_is_removed_from_a_half_written_manifest(log: LogUnderTest) -> None:
    """The failed write had stored the commit's end in the file, where it must not stay."""
    log.append(NewChunk(3, b"x"))
    log.writer.append([NewChunk(2, b"of a commit that was interrupted")], log.now)
    log.disk.kill()
    log.disk.fail("fsync_dir", nth=2)  # of the new manifest's name
    _, writer, _ = open_log(log.disk, LOG, now_us=log.now)
    assert (on_disk(log).end, writer.next) == (6, 6)
    writer.truncate_to(4)
    log.disk.kill()
    reader, writer, _ = open_log(log.disk, LOG, now_us=log.now)
    assert reader.next == 4
    writer.close()

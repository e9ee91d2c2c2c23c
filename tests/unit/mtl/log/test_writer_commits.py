"""Stages become contents of a log: adopted or copied, undone and redone."""

from __future__ import annotations

import errno
import random

import pytest

from mtl.errors import Damaged, StorageError, StorageFailed
from mtl.log.change import LogOptions, StagePart
from mtl.log.chunk import STAGE_WRITER, NewChunk, RunEntry
from mtl.log.segment import index_name, segment_name
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest, files

BODY = bytes(range(256)) * 3


def chunk(count: int = 2, *runs: RunEntry) -> NewChunk:
    return NewChunk(count, BODY, runs)


@pytest.fixture
def log() -> LogUnderTest:
    return LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(segment_bytes=1 << 20))


STAGES = [[chunk(2), chunk(3)], [chunk(1)], [chunk(4), chunk(5), chunk(6)]]


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("before", [0, 2])
def test_a_commit_appends_the_stages_in_order(log: LogUnderTest, before: int, *, adopt: bool) -> None:
    for _ in range(before):
        log.append(chunk(2, RunEntry(1, log.next, 2)))
    log.commit(STAGES, adopt=adopt)
    log.check()
    log.append(chunk(2, RunEntry(2, 1, 2)))
    log.commit(STAGES, adopt=adopt)
    log.commit(STAGES, adopt=not adopt)
    log.check()
    log.crash()


def test_adopted_contents_have_the_time_of_the_commit(log: LogUnderTest) -> None:
    log.append(chunk())
    log.commit(STAGES, adopt=True)
    times = {
        ref.time_us for chunk in log.held[1:] if (ref := log.reader.snapshot().find(chunk.base)) is not None
    }
    assert times == {log.now}
    first = log.reader.snapshot().at_time(log.now, log.now)
    assert first is not None
    assert first.base == 3


def test_adopting_or_copying_no_parts_has_no_effect(log: LogUnderTest) -> None:
    for change in (log.writer.adopt([], 0), log.writer.append_from([], 0)):
        assert change.first == change.next == 1
        log.reader.apply(change)
    log.check()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_segments_are_copied_if_links_are_unsupported(log: LogUnderTest, code: int) -> None:
    log.append(chunk())
    log.disk.fail("link", count=100, error=code)
    log.commit(STAGES, adopt=True)
    log.check()
    log.crash()


@pytest.mark.parametrize("adopt", [True, False])
def test_a_commit_can_be_redone(log: LogUnderTest, *, adopt: bool) -> None:
    log.append(chunk(2, RunEntry(1, 1, 2)))
    log.commit(STAGES, adopt=adopt)
    whole = log.visible
    log.reader.apply(log.writer.truncate_to(3))
    assert files(log.disk) == [index_name(1), segment_name(1), segment_name(3)], (
        "removed segments have no index"
    )
    del log.held[1:]
    log.check()
    log.append(chunk(9))
    log.check()
    log.crash()
    assert log.visible[:1] == whole[:1]


@pytest.mark.parametrize("base", [2, 1000])
def test_a_log_is_truncated_only_at_chunk_boundaries(log: LogUnderTest, base: int) -> None:
    log.append(chunk(2))
    log.append(chunk(2))
    with pytest.raises(Damaged, match="no chunk begins"):
        log.writer.truncate_to(base)
    log.check()
    log.append(chunk())
    log.check()


def test_contents_of_named_writers_are_never_truncated(log: LogUnderTest) -> None:
    log.append(chunk(2))
    log.append(chunk(2, RunEntry(1, 1, 2)))
    with pytest.raises(Damaged, match="named writers"):
        log.writer.truncate_to(3)
    log.roll()
    log.append(chunk(2))
    with pytest.raises(Damaged, match="named writers"):
        log.writer.truncate_to(3)
    log.check()


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_a_stage_with_writer_numbers_can_be_redone(log: LogUnderTest, *, adopt: bool, rolled: bool) -> None:
    """Otherwise a crash before the mark of the commit would block its resources for good."""
    log.append(chunk(2, RunEntry(1, 1, 2)))
    log.commit([[chunk(3, RunEntry(STAGE_WRITER, 1, 3))]], adopt=adopt)
    log.check()
    if rolled:
        log.writer.roll(log.now)
    log.close()
    log.open()
    assert log.writer.truncate_to(3).next == 3
    assert log.writer.last_numbers == {1: 2}


def test_a_file_is_never_truncated_while_it_may_be_mapped(log: LogUnderTest) -> None:
    """The twin asserts it: truncating below a mapping is SIGBUS."""
    log.append(chunk(2))
    log.writer.append([chunk(3)], log.now)  # of an interrupted commit
    log.writer.roll(log.now)
    log.close()
    log.held += [type(log.held[0])(3, 3, BODY)]
    log.run_of[3] = log.run
    log.open()
    first, second = log.reader.snapshot().find(1), log.reader.snapshot().find(3)
    assert first is not None
    assert second is not None
    bodies = log.reader.snapshot().read(first), log.reader.snapshot().read(second)
    log.reader.apply(log.writer.truncate_to(3))
    assert bytes(log.reader.snapshot().read(first)) == BODY
    del log.held[1:]
    log.append(chunk(1))
    log.check()
    assert [bytes(body) for body in bodies] == [BODY, BODY]
    log.crash()


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("nth", range(1, 25))
@pytest.mark.parametrize("op", ["create", "write", "rename", "link", "sync", "open", "unlink"])
def test_a_failed_commit_is_redone_in_the_same_process(op: str, nth: int, *, adopt: bool) -> None:
    log = LogUnderTest(FaultyDisk(random.Random(nth)))
    log.append(chunk(2, RunEntry(1, 1, 2)))
    log.append(chunk(2))
    log.disk.fail(op, nth=nth, when=lambda path: path.startswith(LOG))
    try:
        log.commit(STAGES, adopt=adopt)
    except StorageError:
        assert not log.writer.stopped
        if log.reader.next != log.writer.next:
            with pytest.raises(StorageFailed, match="unfinished commit at 5: redo it first"):
                log.writer.append([chunk()], 0)
        log.apply_commit()
    log.disk.heal()
    log.check()
    log.append(chunk(1, RunEntry(1, 3, 1)))
    log.check()
    log.crash()


def test_a_partly_undone_commit_can_be_undone_again(log: LogUnderTest) -> None:
    """A segment is removed and its index is not: the next attempt continues from there."""
    log.append(chunk())
    log.commit(STAGES, adopt=True)
    log.disk.fail("unlink", when=lambda path: path.endswith(".index"))
    with pytest.raises(StorageFailed):
        log.writer.truncate_to(3)
    assert log.writer.truncate_to(3).next == 3
    assert not log.writer.stopped


@pytest.mark.parametrize("adopt", [True, False])
def test_a_stage_that_differs_from_its_record_does_not_change_the_log(
    log: LogUnderTest, *, adopt: bool
) -> None:
    log.append(chunk())
    directory = log._write_stage([chunk(2), chunk(3)])
    part = StagePart(f"{directory}/00000000000000000001.segment", 2, 0)
    method = log.writer.adopt if adopt else log.writer.append_from
    with pytest.raises(Damaged, match="of 6 contents has 2"):
        method([StagePart(part.path, 6, 0)], 0)
    log.check()
    if not adopt:
        log.disk.flip(part.path, 64 + 64 + 5)
        with pytest.raises(Damaged, match="checksum"):
            method([part], 0)
        log.check()
    log.append(chunk())
    log.check()

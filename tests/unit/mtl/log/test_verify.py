from __future__ import annotations

import random

import pytest

from mtl.errors import StorageFailed
from mtl.log import LogOptions, NewChunk, RunEntry, verify_log
from mtl.log.files import Disk
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest


@pytest.fixture
def log() -> LogUnderTest:
    """Sealed, adopted and newest segments, cleanly closed."""
    log = LogUnderTest(FaultyDisk(random.Random(3)), LogOptions(segment_bytes=1 << 20))
    log.append(NewChunk(2, b"a" * 70, (RunEntry(1, 1, 2),)), NewChunk(1, b""))
    log.commit([[NewChunk(3, b"staged" * 10)]], adopt=True)
    log.append(NewChunk(1, b"tail" * 5))
    log.append(NewChunk(1, b"end" * 30))
    log.close()
    return log


def problems(disk: Disk) -> list[str]:
    return [problem.message for report in verify_log(disk, LOG) for problem in report.problems]


def test_a_whole_log(log: LogUnderTest) -> None:
    reports = list(verify_log(log.disk, LOG))
    assert [(one.base, one.end, one.chunks, one.contents, one.sealed) for one in reports] == [
        (1, 4, 2, 3, True),
        (4, 7, 1, 3, True),
        (7, 9, 2, 2, False),
    ]
    assert all(one.bytes == len(log.disk.content(one.path)) for one in reports)
    assert not problems(log.disk)


def test_finds_a_bit_flipped_in_any_octet(log: LogUnderTest) -> None:
    """Except in the last mark, which cannot be told from a torn tail and holds nothing."""
    disk = log.disk
    for name in disk.list_dir(LOG):
        path = f"{LOG}/{name}"
        size = len(disk.content(path)) - (64 if name.endswith("7.segment") else 0)
        for offset in range(size):
            disk.flip(path, offset, offset % 8)
            found = [problem for report in verify_log(disk, LOG) for problem in report.problems]
            assert any(problem.path == path for problem in found), (path, offset)
            disk.flip(path, offset, offset % 8)
    assert not problems(disk)


def test_changes_nothing(log: LogUnderTest) -> None:
    log.disk.shorten(f"{LOG}/00000000000000000007.segment", 200)
    log.disk.flip(f"{LOG}/00000000000000000004.segment", 100)
    before = {name: log.disk.content(f"{LOG}/{name}") for name in log.disk.list_dir(LOG)}
    steps = log.disk.steps
    assert problems(log.disk)
    assert log.disk.steps == steps
    assert {name: log.disk.content(f"{LOG}/{name}") for name in log.disk.list_dir(LOG)} == before


def test_a_missing_segment(log: LogUnderTest) -> None:
    log.disk.unlink(f"{LOG}/00000000000000000004.segment")
    assert any("ends at 4, but the next segment begins at 7" in message for message in problems(log.disk))


def test_a_missing_index(log: LogUnderTest) -> None:
    log.disk.unlink(f"{LOG}/00000000000000000001.index")
    assert [message.partition(": ")[2] for message in problems(log.disk)] == [
        "the index is missing or does not verify; it is made again from the segment"
    ]


def test_a_torn_tail_is_no_problem(log: LogUnderTest) -> None:
    path = f"{LOG}/00000000000000000007.segment"
    log.disk.put(path, log.disk.content(path) + b"torn")
    assert not problems(log.disk)


def test_no_log_at_all(log: LogUnderTest) -> None:
    log.disk.make_dir("/data/empty")
    (report,) = verify_log(log.disk, "/data/empty")
    assert "without a segment" in report.problems[0].message


def test_a_disk_that_does_not_read(log: LogUnderTest) -> None:
    log.disk.fail("read", nth=3)
    with pytest.raises(StorageFailed, match="verifying /data/log"):
        list(verify_log(log.disk, LOG))

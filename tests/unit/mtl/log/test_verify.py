from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable

import pytest

from mtl.errors import StorageFailed
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.files import Disk, Mode
from mtl.log.log import delete_log
from mtl.log.manifest import MANIFEST
from mtl.log.segment import index_name, segment_name
from mtl.log.verify import Problem, SegmentReport, verify_log
from tests.support.faulty_disk import FaultyDisk, FaultyFile
from tests.support.logs import LOG, LogUnderTest
from tests.support.texts import in_order


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
    reports = verify_log(disk, LOG)
    return [problem.message for report in reports for problem in report.problems]


def test_an_intact_log_has_no_problems(log: LogUnderTest) -> None:
    reports = list(verify_log(log.disk, LOG))
    assert [
        (report.base, report.end, report.chunks, report.contents, report.sealed) for report in reports
    ] == [
        (1, 4, 2, 3, True),
        (4, 7, 1, 3, True),
        (7, 9, 2, 2, False),
    ]
    assert all(report.bytes == len(log.disk.content(report.path)) for report in reports)
    assert not problems(log.disk)


def test_verify_finds_a_flipped_bit_in_any_octet(log: LogUnderTest) -> None:
    disk = log.disk
    for name in disk.list_dir(LOG):
        path = f"{LOG}/{name}"
        for offset in range(len(disk.content(path))):
            disk.flip(path, offset, offset % 8)
            found = [problem for report in verify_log(disk, LOG) for problem in report.problems]
            assert any(problem.path == path for problem in found), (path, offset)
            disk.flip(path, offset, offset % 8)
    assert not problems(disk)


def test_verify_changes_no_file(log: LogUnderTest) -> None:
    log.disk.shorten(f"{LOG}/00000000000000000007.segment", 200)
    log.disk.flip(f"{LOG}/00000000000000000004.segment", 100)
    before = {name: log.disk.content(f"{LOG}/{name}") for name in log.disk.list_dir(LOG)}
    steps = log.disk.steps
    assert problems(log.disk)
    assert log.disk.steps == steps
    assert {name: log.disk.content(f"{LOG}/{name}") for name in log.disk.list_dir(LOG)} == before


@pytest.mark.parametrize(("base", "affected"), [(1, "1 to 3"), (4, "4 to 6"), (7, "7 to 8")])
def test_a_missing_segment_is_one_problem(log: LogUnderTest, base: int, affected: str) -> None:
    """The missing segment is reported, its neighbours as intact."""
    log.disk.unlink(f"{LOG}/{segment_name(base)}")
    (message,) = problems(log.disk)
    assert f"contents {affected} should be there" in message
    assert "missing" in message


def test_a_shortened_segment_is_a_problem(log: LogUnderTest) -> None:
    """It is cut at a boundary of two groups, so that the file looks intact."""
    log.disk.shorten(f"{LOG}/{segment_name(7)}", 128)  # behind its table of writers
    (message,) = problems(log.disk)
    assert "contents 7 to 8 are affected" in message


def test_a_missing_or_damaged_manifest_is_a_problem(log: LogUnderTest) -> None:
    log.disk.flip(f"{LOG}/{MANIFEST}", 20)
    (message,) = problems(log.disk)
    assert "mtl recover" in message
    log.disk.unlink(f"{LOG}/{MANIFEST}")
    (message,) = problems(log.disk)
    assert "the file is missing" in message


class _Meanwhile(FaultyDisk):
    """A disk that runs a function once during a verification."""

    def __init__(self, disk: FaultyDisk, when: str, then: Callable[[], None]) -> None:
        self.__dict__ = disk.__dict__
        self._when, self._then = when, then

    def open(self, path: str, mode: Mode) -> FaultyFile:
        if path.endswith(self._when) and self._then is not None:
            then, self._then = self._then, None  # type: ignore[assignment]
            then()
        return super().open(path, mode)


class _Writing(FaultyDisk):
    """A disk that runs a function after each read of a file with this in its name."""

    def __init__(self, disk: FaultyDisk, where: str, then: Callable[[], None]) -> None:
        self.__dict__ = disk.__dict__
        self._where, self._then = where, then

    def open(self, path: str, mode: Mode) -> FaultyFile:
        file = super().open(path, mode)
        if self._where in path and mode == "read":
            read = file.pread

            def pread(size: int, offset: int) -> bytes:
                octets = read(size, offset)
                self._then()
                return octets

            file.pread = pread  # type: ignore[method-assign]
        return file


def small_group(log: LogUnderTest) -> None:
    """Zeros follow it, as room for the next ones."""
    log.append(NewChunk(1, b"small"))


def small_groups(log: LogUnderTest) -> None:
    """The later ones attest the first one."""
    for _ in range(3):
        small_group(log)


def test_groups_written_during_verification_are_not_damage(log: LogUnderTest) -> None:
    log.open()
    small_group(log)
    small_group(log)
    disk = _Writing(log.disk, segment_name(7), lambda: small_groups(log))
    assert not problems(disk)
    assert not problems(log.disk)


def test_damage_is_found_beside_a_writer(log: LogUnderTest) -> None:
    log.open()
    for _ in range(9):
        small_group(log)
    path = f"{LOG}/{segment_name(7)}"
    at = log.disk.content(path).rindex(b"small")
    small_group(log)
    log.disk.flip(path, at)
    disk = _Writing(log.disk, segment_name(7), lambda: small_groups(log))
    (message,) = problems(disk)
    assert "damaged at octet" in message


@pytest.mark.parametrize("name", [MANIFEST, index_name(7), segment_name(7)])
@pytest.mark.parametrize("change", ["roll", "commit", "adopt", "mark"])
def test_segments_replaced_during_verification_are_not_damage(
    log: LogUnderTest, name: str, change: str
) -> None:
    log.open()
    log.append(NewChunk(1, b"small"))
    log.roll()  # the newest segment is empty: a commit replaces it

    def grow() -> None:
        if change == "roll":
            small_group(log)
            log.roll()
        elif change == "mark":
            small_group(log)
            log.mark()
        else:
            log.commit([[NewChunk(3, b"staged" * 10)]], adopt=change == "adopt")

    for at in (name, segment_name(10), index_name(10)):
        assert not problems(_Meanwhile(log.disk, at, grow))


@pytest.mark.parametrize("name", [MANIFEST, index_name(1), segment_name(1), segment_name(4), segment_name(7)])
def test_a_log_deleted_during_verification_has_no_problem(log: LogUnderTest, name: str) -> None:
    disk = _Meanwhile(log.disk, name, lambda: delete_log(log.disk, LOG))
    assert not problems(disk)


@pytest.mark.parametrize("name", [index_name(1), segment_name(1), segment_name(4)])
def test_segments_removed_by_retention_during_verification_are_not_reported(
    log: LogUnderTest, name: str
) -> None:
    log.open()
    disk = _Meanwhile(log.disk, name, lambda: log.trim(7))
    assert not problems(disk)


@pytest.mark.parametrize("manifest_damaged", [False, True])
@pytest.mark.parametrize(("base", "end"), [(1, 4), (4, 7)])
def test_a_segment_removed_by_another_program_during_verification_is_a_problem(
    log: LogUnderTest, base: int, end: int, manifest_damaged: bool
) -> None:
    def remove() -> None:
        log.disk.unlink(f"{LOG}/{segment_name(base)}")
        if manifest_damaged:
            log.disk.flip(f"{LOG}/{MANIFEST}", 20)

    disk = _Meanwhile(log.disk, index_name(base), remove)
    (report,) = [report for report in verify_log(disk, LOG) if report.problems]
    message = f"{LOG}/{segment_name(base)}: was removed while this ran"
    problem = Problem(LOG, 0, base, end, message)
    assert report == SegmentReport(LOG, base, base, 0, 0, 0, sealed=False, problems=(problem,))


def test_a_failed_open_of_a_segment_that_exists_is_reported(log: LogUnderTest) -> None:
    log.disk.fail("open", when=lambda path: path.endswith(segment_name(4)), error=errno.ENOENT)
    with pytest.raises(StorageFailed, match="verifying /data/log"):
        list(verify_log(log.disk, LOG))


def test_a_missing_index_is_a_problem(log: LogUnderTest) -> None:
    log.disk.unlink(f"{LOG}/00000000000000000001.index")
    (message,) = problems(log.disk)
    assert re.search(in_order("index", "missing", "segment"), message)


def test_a_torn_tail_is_not_a_problem(log: LogUnderTest) -> None:
    path = f"{LOG}/00000000000000000007.segment"
    log.disk.put(path, log.disk.content(path) + b"torn")
    assert not problems(log.disk)


def test_a_directory_without_segments_is_a_problem(log: LogUnderTest) -> None:
    log.disk.make_dir("/data/empty")
    (report,) = verify_log(log.disk, "/data/empty")
    problem = Problem("/data/empty", 0, None, None, "/data/empty: a log without a segment")
    assert report == SegmentReport("/data/empty", 0, 0, 0, 0, 0, sealed=False, problems=(problem,))


def test_a_failed_read_is_reported(log: LogUnderTest) -> None:
    log.disk.fail("read", nth=3)
    with pytest.raises(StorageFailed, match="verifying /data/log"):
        list(verify_log(log.disk, LOG))

"""Properties of a disk that closes files between uses; the contract of every disk is in test_files.py."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from mtl.log import frugal
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk
from mtl.log.files import File, Mode
from mtl.log.frugal import FrugalDisk
from mtl.log.log import create_log, open_log
from tests.support.faulty_disk import FaultyDisk, FaultyFile


class Counting(FaultyDisk):
    """Counts open files, and refuses more than `allowed`."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.now = 0
        self.allowed = 1_000
        self.make_dir("/data")
        self.fsync_dir("/")

    def open(self, path: str, mode: Mode) -> FaultyFile:
        if self.now >= self.allowed:
            raise OSError(errno.EMFILE, "too many open files", path)
        file = super().open(path, mode)
        self.now += 1
        file.close = self._closing(file.close)  # type: ignore[method-assign]
        return file

    def _closing(self, close: Callable[[], None]) -> Callable[[], None]:
        def counted() -> None:
            self.now -= 1
            close()

        return counted


def test_without_any_file_left_the_reserve_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Counting()

    def with_reserve(work: Callable[[], object]) -> object:
        disk.allowed += 1
        return work()

    monkeypatch.setattr(frugal, "with_reserve", with_reserve)
    disk.allowed = 0
    file = FrugalDisk(disk).open("/data/a", "create")
    assert disk.now == 1
    file.close()


@pytest.fixture
def inner() -> Counting:
    return Counting()


def files(disk: FrugalDisk, count: int) -> list[File]:
    return [disk.open(f"/data/{number}", "create") for number in range(count)]


def test_open_files_are_bounded(inner: Counting) -> None:
    kept = files(FrugalDisk(inner, 8), 100)
    for turn in range(3):
        for number, file in enumerate(kept):
            file.writev([b"%d" % number], turn * 8)
            file.sync()
            assert inner.now <= 9  # the one in use, and eight
    for number, file in enumerate(kept):
        assert file.pread(3, 16) == b"%d" % number
        file.close()
    assert inner.now == 0


def test_the_least_recently_used_files_are_closed(inner: Counting) -> None:
    disk = FrugalDisk(inner, 8)
    kept = files(disk, 8)
    for file in kept[2:]:
        file.size()
    disk.open("/data/new", "create")  # one above the limit: an eighth is closed with it
    inner.fail("open", count=100)
    for file in kept[2:]:
        assert file.size() == 0
    with pytest.raises(OSError, match="error"):
        kept[0].size()


def test_a_written_file_is_synced_before_it_is_closed(inner: Counting) -> None:
    file = FrugalDisk(inner, 0).open("/data/a", "create")
    inner.fsync_dir("/data")
    file.writev([b"written"], 0)
    assert inner.now == 0
    inner.crash(keep="none")
    assert inner.content("/data/a") == b"written"


def test_a_failed_sync_at_closing_is_reported_by_the_next_sync(inner: Counting) -> None:
    file = FrugalDisk(inner, 0).open("/data/a", "create")
    inner.fail("sync")
    file.writev([b"lost"], 0)
    for _ in range(2):
        with pytest.raises(OSError, match="error"):
            file.sync()


def test_a_failed_begin_sync_is_reported_by_the_next_sync(inner: Counting) -> None:
    file = FrugalDisk(inner, 0).open("/data/a", "create")
    inner.fail("begin_sync")
    file.writev([b"lost"], 0)
    file.begin_sync(0, 4)
    with pytest.raises(OSError, match="error"):
        file.sync()


def test_a_file_is_found_under_its_new_name(inner: Counting) -> None:
    disk = FrugalDisk(inner, 0)
    file = disk.open("/data/a", "create")
    file.writev([b"before"], 0)
    disk.rename("/data/a", "/data/b")
    assert inner.now == 0
    file.writev([b" after"], 6)
    assert inner.content("/data/b") == b"before after"


def test_a_file_without_a_name_stays_open(inner: Counting) -> None:
    disk = FrugalDisk(inner, 0)
    gone, replaced = files(disk, 2)
    gone.writev([b"gone"], 0)
    replaced.writev([b"replaced"], 0)
    disk.unlink("/data/0")
    disk.open("/data/2", "create").writev([b"new"], 0)
    disk.rename("/data/2", "/data/1")
    disk.open("/data/0", "create").writev([b"another"], 0)
    assert (gone.pread(9, 0), replaced.pread(9, 0)) == (b"gone", b"replaced")
    assert inner.now == 2
    gone.close()
    replaced.close()
    assert inner.now == 0


def test_idle_files_are_closed_when_the_system_has_no_descriptors(inner: Counting) -> None:
    disk = FrugalDisk(inner, 100)
    kept = files(disk, 10)
    inner.allowed = 10
    disk.open("/data/one-more", "create")
    assert inner.now == 1
    assert [file.size() for file in kept] == [0] * 10


def test_a_closed_file_is_not_opened_again(inner: Counting) -> None:
    file = FrugalDisk(inner, 0).open("/data/a", "create")
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.size()


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_log_works_with_any_number_of_open_files(inner: Counting, durability: str) -> None:
    disk = FrugalDisk(inner, 0)
    options = LogOptions(segment_bytes=1_000, durability=durability)  # type: ignore[arg-type]
    create_log(disk, "/data/log", 0)
    reader, writer, _ = open_log(disk, "/data/log", options, now_us=1)
    for number in range(1, 50):
        reader.apply(writer.append([NewChunk(1, b"%d" % number)], number))
        ref = reader.snapshot().find(number)
        assert ref is not None
        assert bytes(reader.snapshot().read(ref)) == b"%d" % number
        assert inner.now <= 1
    writer.close()
    again, writer, _ = open_log(disk, "/data/log", options, now_us=1)
    assert (again.earliest, again.next) == (1, 50)
    writer.close()

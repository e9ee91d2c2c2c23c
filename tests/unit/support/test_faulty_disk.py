"""The twin loses exactly the octets that a real disk may lose."""

from __future__ import annotations

import errno
import random

import pytest

from mtl.log.files import write_fully
from tests.support.faulty_disk import Crashed, FaultyDisk

PAGE = 4096


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(random.Random(1))


def write(disk: FaultyDisk, path: str, data: bytes, *, sync: bool) -> None:
    file = disk.open(path, "create")
    write_fully(file, [data], 0)
    if sync:
        file.sync()
    file.close()


def outcomes(prepare: str, seeds: int = 200) -> set[bytes | None]:
    """The possible contents of /f after a crash; `prepare` selects how the file was written."""
    found: set[bytes | None] = set()
    for seed in range(seeds):
        disk = FaultyDisk(random.Random(seed))
        file = disk.open("/f", "create")
        if "named" in prepare:
            disk.fsync_dir("/")
        write_fully(file, [b"a" * PAGE + b"b" * PAGE], 0)
        if "synced" in prepare:
            file.sync()
        if "overwritten" in prepare:
            write_fully(file, [b"X" * PAGE + b"Y" * PAGE], 0)
        disk.crash()
        found.add(disk.content("/f") if disk.exists("/f") else None)
    return found


def test_a_synced_file_with_a_synced_name_survives() -> None:
    assert outcomes("synced named") == {b"a" * PAGE + b"b" * PAGE}


def test_an_unsynced_name_may_be_lost() -> None:
    assert outcomes("synced") == {b"a" * PAGE + b"b" * PAGE, None}


def test_pages_are_lost_independently_and_torn_at_sectors() -> None:
    found = outcomes("synced named overwritten", 400)
    firsts = {content[:PAGE] for content in found if content is not None}
    assert {b"a" * PAGE, b"X" * PAGE} < firsts
    torn = firsts - {b"a" * PAGE, b"X" * PAGE}
    assert torn
    assert all(len(set(page[at : at + 512])) == 1 for page in torn for at in range(0, PAGE, 512))
    kept = {(content[0], content[PAGE]) for content in found if content is not None}
    assert {(97, 98), (88, 98), (97, 89), (88, 89)} <= kept


def test_size_and_pages_are_lost_independently() -> None:
    found = outcomes("named")
    assert b"" in found
    assert bytes(PAGE) + b"b" * PAGE in found


def test_kill_keeps_written_octets_and_closes_files(disk: FaultyDisk) -> None:
    write(disk, "/f", b"never synced", sync=False)
    file = disk.open("/f", "read")
    disk.kill()
    assert disk.content("/f") == b"never synced"
    with pytest.raises(Crashed):
        file.pread(1, 0)


def test_after_a_failed_sync_the_cache_shows_octets_missing_on_disk() -> None:
    lost = 0
    for seed in range(50):
        disk = FaultyDisk(random.Random(seed))
        file = disk.open("/f", "create")
        disk.fsync_dir("/")
        write_fully(file, [b"x" * 100], 0)
        disk.fail("sync")
        with pytest.raises(OSError, match="error"):
            file.sync()
        assert file.pread(100, 0) == b"x" * 100
        file.sync()  # succeeds, and proves nothing
        disk.crash()
        lost += disk.content("/f") != b"x" * 100
    assert lost


def test_a_page_rewritten_after_a_failed_sync_is_durable_at_the_next_sync(disk: FaultyDisk) -> None:
    file = disk.open("/f", "create")
    disk.fsync_dir("/")
    write_fully(file, [b"x" * 100], 0)
    disk.fail("sync")
    with pytest.raises(OSError, match="error"):
        file.sync()
    write_fully(file, [file.pread(100, 0)], 0)
    file.sync()
    disk.crash(keep="none")
    assert disk.content("/f") == b"x" * 100


def test_the_cache_may_drop_clean_pages(disk: FaultyDisk) -> None:
    file = disk.open("/f", "create")
    write_fully(file, [b"x" * 100], 0)
    disk.rng = random.Random(3)
    disk.fail("sync")
    with pytest.raises(OSError, match="error"):
        file.sync()
    disk.drop_caches()
    assert file.pread(100, 0) in {bytes(100), b"x" * 100}


def test_any_subset_of_names_is_durable_but_renames_are_atomic() -> None:
    found = set()
    for seed in range(100):
        disk = FaultyDisk(random.Random(seed))
        for name in ("a", "b"):
            write(disk, f"/{name}", name.encode(), sync=True)
        disk.fsync_dir("/")
        disk.rename("/a", "/c")
        disk.unlink("/b")
        disk.crash()
        found.add(tuple(disk.list_dir("/")))
    assert found == {("a", "b"), ("b", "c"), ("a",), ("c",)}


def test_failures_are_selected_by_count_and_path(disk: FaultyDisk) -> None:
    disk.fail("create", nth=2, count=2, when=lambda path: path.startswith("/x"), error=errno.ENOSPC)
    disk.open("/x1", "create")
    disk.open("/y", "create")
    for name in ("/x2", "/x3"):
        with pytest.raises(OSError, match="space"):
            disk.open(name, "create")
    disk.open("/x4", "create")
    disk.fail("create")
    disk.heal()
    disk.open("/x5", "create")


def test_a_failed_write_may_be_partial(disk: FaultyDisk) -> None:
    sizes = set()
    for name in range(50):
        file = disk.open(f"/{name}", "create")
        disk.fail("write")
        with pytest.raises(OSError, match="error"):
            file.writev([b"x" * 10], 0)
        sizes.add(file.size())
    assert {0, 10} < sizes


def test_a_full_disk_accepts_octets_that_fit(disk: FaultyDisk) -> None:
    write(disk, "/a", bytes(60), sync=True)
    disk.capacity = 100
    file = disk.open("/b", "create")
    assert file.writev([b"x" * 100], 0) == 40
    with pytest.raises(OSError, match="space"):
        file.writev([b"x"], 40)
    assert file.writev([b"y" * 40], 0) == 40  # in place there is room
    disk.unlink("/a")
    disk.fsync_dir("/")
    assert file.writev([b"x" * 60], 40) == 60


def test_writes_can_be_short(disk: FaultyDisk) -> None:
    disk.short_writes = 1.0
    file = disk.open("/f", "create")
    assert 0 < file.writev([b"x" * 100], 0) < 100
    disk.short_writes = 0.0
    disk.fail("short")
    assert file.writev([b"x" * 100], 0) < 100
    assert file.writev([b"x" * 100], 0) == 100


def test_the_disk_crashes_after_a_number_of_steps_until_restarted(disk: FaultyDisk) -> None:
    file = disk.open("/f", "create")
    disk.crash_after(1)
    file.writev([b"one"], 0)
    with pytest.raises(Crashed):
        file.writev([b"two"], 3)
    for call in (lambda: disk.list_dir("/"), file.size, lambda: disk.open("/g", "create")):
        with pytest.raises(Crashed):
            call()
    disk.crash()
    disk.open("/g", "create")


def test_files_can_be_flipped_shortened_and_replaced(disk: FaultyDisk) -> None:
    disk.put("/f", b"abc")
    disk.flip("/f", 1, 0)
    assert disk.content("/f") == b"acc"
    disk.shorten("/f", 2)
    disk.crash()
    assert disk.content("/f") == b"ac"


def test_the_same_seed_gives_the_same_result() -> None:
    assert outcomes("named overwritten", 5) == outcomes("named overwritten", 5)


def test_a_crash_frees_locks(disk: FaultyDisk) -> None:
    disk.lock("/")
    disk.kill()
    disk.lock("/").release()

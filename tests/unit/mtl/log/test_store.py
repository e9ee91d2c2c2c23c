from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from mtl.errors import Damaged
from mtl.log.files import Disk
from mtl.log.manifest import Manifest
from mtl.log.segment import NEW_INDEX, STASHED, TEMPORARY, Entry, Index, segment_name
from mtl.log.store import NamesNotSynced, Store, read_header
from tests.support.faulty_disk import FaultyDisk


def test_a_segment_gets_its_name_when_it_is_complete(place: tuple[Disk, str]) -> None:
    store = Store(*place)
    file, header = store.write_segment(5, 77, {3: 4})
    assert store.disk.list_dir(store.directory) == [TEMPORARY]
    store.stash()
    assert store.snapshot(STASHED, header) == {3: 4}
    store.place(STASHED, segment_name(5))
    assert store.disk.list_dir(store.directory) == [segment_name(5)]
    assert store.header(5) == header
    assert (header.base, header.time, header.writers, file.size()) == (5, 77, 1, header.start)
    file.close()


def test_salts_of_segments_differ(place: tuple[Disk, str]) -> None:
    store = Store(*place)
    salts = set()
    for _ in range(3):
        file, header = store.write_segment(5, 77, {})
        file.close()
        salts.add(header.salt)
    assert len(salts) == 3


def test_an_index_is_written_and_read(place: tuple[Disk, str]) -> None:
    store = Store(*place)
    assert store.index(5) is None
    index = Index(5, 1, 2)
    index.add(Entry(64, 0, 3, 4, 0, 192))
    store.write_index(index)
    found = store.index(5)
    assert found is not None
    assert (found.contents, list(found.offsets)) == (3, [64])
    store.disk.rename(store.path("00000000000000000005.index"), store.path("00000000000000000006.index"))
    assert store.index(6) is None  # not its own


@pytest.mark.parametrize("op", ["create", "write", "sync", "rename"])
def test_a_failed_write_leaves_no_file_under_the_final_name(twin: FaultyDisk, op: str) -> None:
    store = Store(twin, "/data")
    twin.fail(op)
    with pytest.raises(OSError, match="error"):
        store.write_index(Index(5, 1, 2))
    assert store.index(5) is None
    assert twin.open_files == 0
    store.write_index(Index(5, 1, 2))
    assert store.index(5) is not None


def test_the_file_of_a_failed_write_is_not_used_again(twin: FaultyDisk) -> None:
    store = Store(twin, "/data")
    twin.fail("sync")
    with pytest.raises(OSError, match="error"):
        store.write_index(Index(5, 1, 2))
    twin.link(store.path(NEW_INDEX), "/former")
    former = twin.content("/former")
    store.write_index(Index(6, 1, 2))
    assert twin.content("/former") == former


def test_what_was_written_is_durable(twin: FaultyDisk) -> None:
    store = Store(twin, "/data")
    file, header = store.write_segment(5, 77, {3: 4})
    file.close()
    store.stash()
    twin.crash(keep="none")
    assert store.snapshot(STASHED, header) == {3: 4}
    store.write_index(Index(5, 1, 2))
    twin.crash(keep="none")
    assert store.index(5) is not None
    store.write_manifest(Manifest(5, 5))
    twin.crash(keep="none")
    assert store.manifest() == Manifest(5, 5)


def test_a_missing_manifest_is_damage(twin: FaultyDisk) -> None:
    with pytest.raises(Damaged, match="the file is missing"):
        Store(twin, "/data").manifest()


def test_a_directory_that_fails_to_sync_has_its_own_error(twin: FaultyDisk) -> None:
    twin.fail("fsync_dir")
    with pytest.raises(NamesNotSynced):
        Store(twin, "/data").sync_names()


def test_removing_a_missing_file_has_no_effect(place: tuple[Disk, str]) -> None:
    Store(*place).remove("nothing")


@pytest.mark.parametrize("code", [0, errno.EXDEV, errno.EPERM])
def test_a_file_is_adopted_by_link_or_copy(
    twin: FaultyDisk, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.log.store.SCAN_BLOCK", 1_000)
    octets = bytes(range(255, -1, -1)) * 50
    twin.put("/source", octets)
    twin.put("/data/link.new", b"of an attempt that failed")
    if code:
        twin.fail("link", error=code)
    store = Store(twin, "/data")
    for _ in range(2):  # again is the same
        store.adopt_file("/source", "taken")
        twin.crash(keep="none")
        assert twin.content("/data/taken") == octets


def test_an_unexpected_error_of_a_link_is_raised(twin: FaultyDisk) -> None:
    twin.put("/source", b"x")
    twin.fail("link", error=errno.ENOSPC)
    with pytest.raises(OSError, match="space"):
        Store(twin, "/data").adopt_file("/source", "taken")


@pytest.mark.parametrize("fails", [False, True])
def test_files_are_closed_after_reading(twin: FaultyDisk, *, fails: bool) -> None:
    store = Store(twin, "/data")
    file, header = store.write_segment(5, 77, {3: 4})
    file.close()
    store.place(TEMPORARY, segment_name(5))
    store.write_index(Index(5, 1, 2))
    store.write_manifest(Manifest(5, 5))
    readings: list[Callable[[], object]] = [
        lambda: store.header(5),
        lambda: store.snapshot(segment_name(5), header),
        lambda: store.index(5),
        store.manifest,
        lambda: store.adopt_file(store.segment_path(5), "copy"),
    ]
    for read in readings:
        twin.fail("link", error=errno.EXDEV)
        if fails:
            rule = twin.fail("read")
            with pytest.raises(OSError, match="error"):
                read()
            twin.spare(rule)
        else:
            read()
        assert twin.open_files == 0


def test_headers_and_snapshots_are_verified(twin: FaultyDisk) -> None:
    store = Store(twin, "/data")
    file, header = store.write_segment(5, 77, {3: 4})
    file.close()
    store.place(TEMPORARY, segment_name(5))
    twin.flip(store.segment_path(5), 70)
    with pytest.raises(Damaged, match="table of writers"):
        store.snapshot(segment_name(5), header)
    twin.flip(store.segment_path(5), 20)
    assert read_header(twin, store.segment_path(5)) is None
    with pytest.raises(Damaged, match="header does not verify") as caught:
        store.header(5)
    assert (caught.value.file, caught.value.offset, caught.value.first) == (store.segment_path(5), 0, 5)

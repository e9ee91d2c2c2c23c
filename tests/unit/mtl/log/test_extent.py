"""The extent of a log, determined from its files."""

from __future__ import annotations

import random

import pytest

from mtl.errors import StorageFailed
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk
from mtl.log.extent import extent
from mtl.log.log import create_log, open_log
from mtl.log.manifest import MANIFEST
from tests.support.faulty_disk import FaultyDisk

LOG = "/log"
NOW = 1_700_000_000_000_000


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk(random.Random(1))
    create_log(disk, LOG, NOW, owner=b"owner")
    return disk


def fill(disk: FaultyDisk, groups: int) -> None:
    _, writer, _ = open_log(disk, LOG, LogOptions(segment_bytes=1_000), now_us=NOW)
    for _ in range(groups):
        writer.append([NewChunk(2, b"x" * 200)], NOW)
    writer.close()


def test_an_empty_log(disk: FaultyDisk) -> None:
    found = extent(disk, LOG)
    assert (found.first, found.end, found.is_empty) == (1, 1, True)
    assert found.manifest is not None
    assert found.manifest.owner == b"owner"


@pytest.mark.parametrize("groups", [1, 3, 20])
def test_a_log_with_contents(disk: FaultyDisk, groups: int) -> None:
    fill(disk, groups)
    found = extent(disk, LOG)
    assert (found.first, found.end, found.is_empty) == (1, 1 + 2 * groups, False)


def test_a_trimmed_log(disk: FaultyDisk) -> None:
    fill(disk, 20)
    _, writer, _ = open_log(disk, LOG, LogOptions(segment_bytes=1_000), now_us=NOW)
    writer.trim(15)
    writer.close()
    assert extent(disk, LOG)[:2] == (15, 41)


def test_a_missing_or_damaged_manifest(disk: FaultyDisk) -> None:
    fill(disk, 3)
    disk.flip(f"{LOG}/{MANIFEST}", 3)
    assert extent(disk, LOG)[:3] == (1, 7, None)
    disk.unlink(f"{LOG}/{MANIFEST}")
    assert extent(disk, LOG)[:3] == (1, 7, None)


def test_contents_that_cannot_be_read_count_as_contents(disk: FaultyDisk) -> None:
    fill(disk, 3)
    name = max(x for x in disk.list_dir(LOG) if x.endswith(".segment"))
    for offset in (3, 150):
        disk.flip(f"{LOG}/{name}", offset)
        found = extent(disk, LOG)
        assert found.damage is not None
        assert not found.is_empty
        disk.flip(f"{LOG}/{name}", offset)
    for file in disk.list_dir(LOG):
        if file != MANIFEST:
            disk.unlink(f"{LOG}/{file}")
    assert extent(disk, LOG).damage == "its segments are missing"
    assert not extent(disk, LOG).is_empty


def test_an_empty_directory(disk: FaultyDisk) -> None:
    disk.make_dir("/nothing")
    assert extent(disk, "/nothing").is_empty


def test_a_failed_read(disk: FaultyDisk) -> None:
    disk.fail("read")
    with pytest.raises(StorageFailed, match="looking at the log /log"):
        extent(disk, LOG)

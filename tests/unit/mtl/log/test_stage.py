from __future__ import annotations

import random

import pytest

from mtl.errors import Damaged, StorageFailed
from mtl.log.change import LogOptions, StagePart
from mtl.log.chunk import NewChunk
from mtl.log.files import Disk, RealDisk
from mtl.log.log import create_log, open_log
from mtl.log.stage import chunks, open_parts, stage_parts
from tests.support.faulty_disk import FaultyDisk

BODY = random.Random(1).randbytes(500)


def stage(disk: Disk, root: str, count: int = 5, *, seal: bool = True) -> str:
    """Chunks of 2 contents, two of them in a segment."""
    directory = f"{root}/stage"
    create_log(disk, directory, 0)
    _, writer, _ = open_log(disk, directory, LogOptions(segment_bytes=64 + 2 * 576), now_us=0)
    for _ in range(count):
        writer.append([NewChunk(2, BODY)], 0)
    if seal:
        writer.seal()
    writer.close()
    return directory


def test_a_sealed_stage_has_its_segments_as_parts(place: tuple[Disk, str]) -> None:
    disk, root = place
    directory = stage(disk, root)
    parts = stage_parts(disk, directory)
    assert [(part.path.rsplit("/", 1)[1], part.count, part.bytes) for part in parts] == [
        ("00000000000000000001.segment", 4, 64 + 2 * 576),
        ("00000000000000000005.segment", 4, 64 + 2 * 576),
        ("00000000000000000009.segment", 2, 64 + 576),
    ]
    bodies = [found.body() for part in open_parts(disk, parts) for found in chunks(disk, part)]
    assert bodies == [BODY] * 5


def test_a_stage_without_contents_has_no_parts(twin: FaultyDisk) -> None:
    assert stage_parts(twin, stage(twin, "/data", 0)) == ()


def test_a_stage_left_open_is_sealed_after_a_restart(twin: FaultyDisk) -> None:
    directory = stage(twin, "/data", 2, seal=False)
    with pytest.raises(Damaged, match="not sealed"):
        stage_parts(twin, directory)
    twin.crash()
    _, writer, _ = open_log(twin, directory, now_us=0)
    writer.seal()
    writer.close()
    assert [part.count for part in stage_parts(twin, directory)] == [4]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda disk, path: disk.flip(path, 3), "header does not verify"),
        (lambda disk, path: disk.shorten(path, 700), "700 octets instead of 1216"),
        (lambda disk, path: disk.unlink(path.replace(".segment", ".index")), "not sealed"),
    ],
)
def test_an_incomplete_part_is_damage(twin: FaultyDisk, harm: object, reason: str) -> None:
    directory = stage(twin, "/data")
    parts = stage_parts(twin, directory)
    harm(twin, parts[1].path)  # type: ignore[operator]
    with pytest.raises(Damaged, match=reason):
        open_parts(twin, parts)
    with pytest.raises(Damaged, match=reason):
        stage_parts(twin, directory)


@pytest.mark.parametrize(("name", "message"), [(1, "contents 1 to 4"), (5, "contents 5 to 8")])
def test_a_missing_part_is_damage(twin: FaultyDisk, name: int, message: str) -> None:
    directory = stage(twin, "/data")
    twin.unlink(f"{directory}/{name:020d}.segment")
    with pytest.raises(Damaged, match=message):
        stage_parts(twin, directory)


def test_contents_are_verified_when_copied(twin: FaultyDisk) -> None:
    parts = stage_parts(twin, stage(twin, "/data"))
    twin.flip(parts[1].path, 64 + 576 + 70)
    first, second, _ = open_parts(twin, parts)
    assert len(list(chunks(twin, first))) == 2
    with pytest.raises(Damaged, match="damaged at octet 640: its contents do not match"):
        list(chunks(twin, second))


def test_a_path_that_is_not_a_segment_is_refused(twin: FaultyDisk) -> None:
    directory = stage(twin, "/data")
    with pytest.raises(Damaged, match="not a segment's name"):
        open_parts(twin, [StagePart(f"{directory}/lock", 1, 1)])


def test_a_stage_directory_that_cannot_be_read_is_an_error(tmp_path: object) -> None:
    with pytest.raises(StorageFailed, match="reading the stage"):
        stage_parts(RealDisk(), f"{tmp_path}/missing")

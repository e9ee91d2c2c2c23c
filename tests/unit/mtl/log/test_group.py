from __future__ import annotations

import random

import pytest

from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.group import WRITE_AHEAD, Group
from mtl.log.recovery import Active
from mtl.log.scan import FoundChunk, scan
from mtl.log.segment import SegmentHeader, empty_index
from tests.support.faulty_disk import FaultyDisk, FaultyFile

HEADER = SegmentHeader(base=100, time=1_000, salt=7)


def begin() -> tuple[Active, FaultyFile]:
    file = FaultyDisk(random.Random(1)).open("/f", "create")
    return Active(file, HEADER, empty_index(HEADER), HEADER.start), file


def found_in(file: FaultyFile) -> list[FoundChunk]:
    return [item for item in scan(file, HEADER, "/f", file.size()) if isinstance(item, FoundChunk)]


def test_a_group_counts_its_chunks_before_writing() -> None:
    active, file = begin()
    group = Group(active, 100, 1_500, sync=True)
    group.add(NewChunk(3, b"abc", (RunEntry(1, 1, 3),)))
    group.add(NewChunk(1, bytes(65)))
    assert (group.first, group.next, group.start, group.end) == (100, 104, 64, 64 + 192 + 192)
    assert [
        (ref.base, ref.count, ref.time_us, ref.size, ref.stored, ref.offset, ref.place) for ref in group.refs
    ] == [
        (100, 3, 1_500, 3, 192, 64, 0),
        (103, 1, 1_500, 65, 192, 256, 1),
    ]
    assert file.size() == len(active.index) == 0


def test_a_group_enters_the_index_as_a_whole_when_kept() -> None:
    active, file = begin()
    group = Group(active, 100, 1_500, sync=True)
    group.add(NewChunk(3, b"abc"))
    group.write()
    assert file.size() == group.end
    group.add(NewChunk(2, b""))
    group.write()
    assert len(active.index) == 0
    group.add_to_index()
    assert (len(active.index), active.index.contents, active.index.length) == (2, 5, group.end)
    assert [(item.header.sequence, item.header.time, item.header.durable) for item in found_in(file)] == [
        (0, 500, 64),
        (3, 500, 64),
    ]


def test_a_copied_chunk_has_its_own_header_and_no_runs() -> None:
    source, source_file = begin()
    old = Group(source, 100, 1_500, sync=True)
    old.add(NewChunk(1, b"before"))
    old.add(NewChunk(3, b"abc" * 50, (RunEntry(0, 1, 3),)))
    old.write()
    copied = found_in(source_file)[1]

    active, file = begin()
    group = Group(active, 100, 2_500, sync=True)
    group.add(NewChunk(copied.header.contents, copied.body()))
    group.write()
    group.add_to_index()
    (found,) = found_in(file)
    assert (found.header.sequence, found.header.time, found.header.contents) == (0, 1_500, 3)
    assert found.body() == b"abc" * 50
    assert found.runs() == []
    assert active.index.body(0) == 150


def write(active: Active, *sizes: int) -> Group:
    """One group of contents of these sizes, kept."""
    group = Group(active, HEADER.base + active.index.contents, 1_500, sync=True)
    for size in sizes:
        group.add(NewChunk(1, b"x" * size))
    group.write()
    group.add_to_index()
    return group


@pytest.mark.parametrize("sync", [True, False])
def test_a_large_group_is_written_ahead_and_starts_its_sync(sync: bool) -> None:
    active, file = begin()
    begun: list[tuple[int, int]] = []
    file.begin_sync = lambda offset, size: begun.append((offset, size))  # type: ignore[method-assign]
    group = Group(active, 100, 1_500, sync=sync)
    ends, sizes = [], []
    for _ in range(3):
        group.add(NewChunk(1, bytes(WRITE_AHEAD // 2)))
        group.write_ahead()
        ends.append(group.end)
        sizes.append(file.size())
    assert sizes == [0, ends[1], ends[1]], "half of the bound is not written ahead"
    assert begun == ([(group.start, ends[1] - group.start)] if sync else [])
    group.write()
    group.add_to_index()
    assert file.size() == group.end
    assert len(found_in(file)) == 3


def test_small_groups_use_preallocated_room() -> None:
    active, file = begin()
    assert file.size() == 0
    first = write(active, 100)
    assert file.size() == first.end == active.room, "it may be the only one"
    second = write(active, 100)
    size = file.size()
    assert size == active.room > second.end + 16 * second.end
    assert set(file.pread(size, second.end)) == {0}
    assert size % 4096 == 0
    for _ in range(50):
        within = write(active, 100)
        assert within.end < file.size() == size
    assert len(found_in(file)) == 52


def test_room_is_preallocated_again_when_used_up() -> None:
    active, file = begin()
    sizes: set[int] = set()
    while len(sizes) < 5:
        assert write(active, 100).end <= file.size() == active.room
        sizes.add(file.size())
    assert set(file.pread(file.size(), active.index.length)) <= {0}
    assert len(found_in(file)) == len(active.index)


def test_large_groups_preallocate_no_room() -> None:
    active, file = begin()
    write(active, 100)
    assert write(active, 1 << 20).end == active.room == file.size()
    assert write(active, *[1_000] * 100).end == active.room == file.size()
    assert write(active, 100).end < file.size()


def test_a_large_group_uses_the_room_and_extends_the_file() -> None:
    active, file = begin()
    write(active, 100)
    write(active, 100)
    room = active.room
    assert write(active, 1 << 20).end == active.room == file.size() > room
    assert len(found_in(file)) == 3

from __future__ import annotations

import random

import pytest

from mtl.errors import Damaged
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.cutting import CutPlan, plan_cut
from mtl.log.log import create_log, open_log
from mtl.log.segment import segment_name
from mtl.log.store import Store
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest


@pytest.fixture
def log() -> LogUnderTest:
    """Contents 1..2 of a writer, then 3..6 and, in the newest segment, 7..10, all in twos."""
    log = LogUnderTest(FaultyDisk(random.Random(1)), LogOptions(segment_bytes=1 << 20))
    log.append(NewChunk(2, b"w", (RunEntry(1, 1, 2),)))
    log.roll()
    for _ in range(2):
        log.append(NewChunk(2, b"x"), NewChunk(2, b"y"))
        if log.next == 7:
            log.roll()
    return log


def cut(log: LogUnderTest, sequence: int) -> CutPlan:
    active = log.writer._active
    assert active is not None
    return plan_cut(Store(log.disk, LOG), [1, 3, 7], active.index, sequence)


@pytest.mark.parametrize(
    ("sequence", "victims", "ends"),
    [(3, [3, 7], None), (5, [7], (3, 2)), (7, [7], None), (9, [], (7, 2)), (11, [], (7, 4))],
)
def test_a_cut_names_removed_segments_and_the_new_end(
    log: LogUnderTest, sequence: int, victims: list[int], ends: tuple[int, int] | None
) -> None:
    steps = log.disk.steps
    plan = cut(log, sequence)
    assert plan.victims == victims
    assert (plan.index and (plan.index.base, plan.index.contents)) == ends
    assert log.disk.steps == steps, "nothing is changed"


@pytest.mark.parametrize("sequence", [0, 4, 8, 12, 1000])
def test_a_cut_inside_a_chunk_is_refused(log: LogUnderTest, sequence: int) -> None:
    with pytest.raises(Damaged, match="no chunk begins"):
        cut(log, sequence)


def test_contents_of_named_writers_are_not_cut(log: LogUnderTest) -> None:
    with pytest.raises(Damaged, match="named writers"):
        cut(log, 1)


def test_a_segment_without_a_valid_index_is_read(log: LogUnderTest) -> None:
    log.disk.flip(f"{LOG}/00000000000000000003.index", 90)
    plan = cut(log, 5)
    assert plan.index is not None
    assert (plan.index.base, plan.index.contents, plan.index.length) == (3, 2, 128 + 128)
    log.disk.unlink(f"{LOG}/{segment_name(3)}")
    with pytest.raises(FileNotFoundError):
        cut(log, 5)


def test_a_segment_unknown_to_the_index_belongs_to_another_log(log: LogUnderTest) -> None:
    """Otherwise it would get an index of this log, and its contents would be served."""
    other = f"{LOG}-other"
    create_log(log.disk, other, 0, base=3)
    _, writer, _ = open_log(log.disk, other, now_us=0)
    writer.append([NewChunk(2, b"x"), NewChunk(2, b"y")], 0)
    writer.close()
    log.disk.put(f"{LOG}/{segment_name(3)}", log.disk.content(f"{other}/{segment_name(3)}"))
    with pytest.raises(Damaged, match="this is not the segment"):
        cut(log, 5)

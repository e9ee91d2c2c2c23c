"""A segment that grows while it is scanned, and one that is damaged."""

from __future__ import annotations

import random

import pytest

from mtl.errors import Damaged
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.scanned import Scanned, count_runs, damaged, scan_segment
from mtl.log.segment import segment_name
from mtl.log.store import Store
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest

PATH = f"{LOG}/{segment_name(1)}"


@pytest.fixture
def log() -> LogUnderTest:
    log = LogUnderTest(FaultyDisk(random.Random(3)))
    for number in range(4):
        log.append(NewChunk(1, b"body", (RunEntry(1, number + 1, 1),)))
    return log


def scan(log: LogUnderTest, contents: int | None = None) -> Scanned:
    store = Store(log.disk, LOG)
    return scan_segment(store, 1, store.header(1), store.segment_size(1), contents)


def test_the_room_after_the_last_chunk_is_no_damage(log: LogUnderTest) -> None:
    found = scan(log)
    assert (found.index.contents, found.numbers, found.was_durable) == (4, {1: 4}, False)
    assert found.bad is not None


def test_a_scan_may_end_before_the_segment_does(log: LogUnderTest) -> None:
    found = scan(log, contents=2)
    assert (found.index.contents, found.bad) == (2, None)


def test_a_bad_chunk_that_a_later_header_attests_was_durable(log: LogUnderTest) -> None:
    at = log.disk.content(PATH).index(b"body")
    log.disk.flip(PATH, at)
    found = scan(log)
    assert found.bad is not None
    assert (found.index.contents, found.was_durable, found.beyond.sequence) == (0, True, 1)
    error = damaged(PATH, found)
    assert (error.first, error.end) == (1, 2)


def test_a_number_above_64_bits_is_damage() -> None:
    numbers = {1: 5}
    count_runs(numbers, [RunEntry(1, 6, 2), RunEntry(2, 1, 1)], PATH)
    assert numbers == {1: 7, 2: 1}
    with pytest.raises(Damaged, match="above 64 bits"):
        count_runs(numbers, [RunEntry(1, 1 << 63, 1 << 63 | 1)], PATH)

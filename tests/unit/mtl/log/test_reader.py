"""A log's reader: the tail in memory, and the writer's changes applied to it. Reads are in test_snapshot."""

from __future__ import annotations

import pytest

from mtl.log.cache import ReadCache
from mtl.log.chunk import NewChunk
from mtl.log.log import create_log, open_log
from mtl.log.queries import ByTime, Chunk, Contents, NewestTime, NotInMemory, RangeFrom
from mtl.log.retention import Hold, RetentionPlan, RetentionPolicy, plan
from mtl.log.segment import INDEX_ENTRY
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest, filled_log, range_of

BODY = bytes(range(200))


def test_only_the_tail_is_in_memory(twin: FaultyDisk) -> None:
    log = filled_log(twin)
    reader, writer, _ = open_log(twin, LOG, log.options, now_us=0)
    reader.apply(writer.append([NewChunk(2, b"new"), NewChunk(2, b"newest")], 0))
    twin.fail("open", count=100)
    assert reader.tail(24) is None
    assert reader.tail(29) is None
    chunk = reader.tail(28)
    assert chunk is not None
    assert (chunk.ref.base, bytes(chunk.body), chunk.place) == (27, b"newest", None)
    for query in (Contents(1, 25, 10, 64), RangeFrom(1), ByTime(0, 0), NewestTime(1)):
        with pytest.raises(NotInMemory):
            reader.answer_from_memory(query)
    assert reader.answer_from_memory(Contents(25, 27, 10, 64)) == (reader.tail(25),)
    assert reader.answer_from_memory(RangeFrom(25, contents=2)) == range_of(reader, 25, contents=2)
    writer.close()


def test_a_place_in_the_tail_is_found_without_the_disk(twin: FaultyDisk) -> None:
    log = LogUnderTest(twin)
    log.append(NewChunk(2, BODY))
    chunk = log.reader.tail(2)
    assert chunk is not None
    placed = log.reader.place(chunk)
    assert placed.place is not None
    path, offset = placed.place
    assert twin.open(path, "read").pread(len(BODY), offset) == BODY
    assert bytes(placed.body) == b""


def test_the_tail_has_no_contents_below_the_earliest(twin: FaultyDisk) -> None:
    log = filled_log(twin)
    log.trim(13)
    snapshot = log.reader.snapshot()
    assert snapshot.find(12) is None
    (first, *_) = snapshot.answer(Contents(1, 25, 0, 64))  # type: ignore[misc]
    assert isinstance(first, Chunk)
    assert first.ref.base == 13  # a visible jump
    log.check()


def test_a_trim_within_a_segment_hides_contents_after_a_restart_too(twin: FaultyDisk) -> None:
    log = filled_log(twin)
    log.trim(15)
    assert log.reader.earliest == 15
    assert next(log.reader.segments()).base == 13
    log.earliest = 15
    log.close()
    log.open()
    assert log.reader.earliest == 15
    assert log.reader.snapshot().at_time(0, 0) == log.reader.snapshot().find(15)


def test_retention_plans_over_the_reader_with_few_index_reads(twin: FaultyDisk) -> None:
    log = filled_log(twin)
    reader = log.reader
    before = sum(segment.index is not None for segment in reader._segments)
    result = plan(
        reader.segments(),
        total_bytes=reader.bytes,
        next_sequence=reader.next,
        policy=RetentionPolicy(bytes=2036, groups=("g",)),
        holds=[Hold("g", 100, group=True)],
        too_old=lambda _: 0,
    )
    assert result.earliest == 13
    assert sum(segment.index is not None for segment in reader._segments) == before
    log.trim(result.earliest)
    log.check()

    def by_age() -> RetentionPlan:
        return plan(
            reader.segments(),
            total_bytes=reader.bytes,
            next_sequence=reader.next,
            policy=RetentionPolicy(age_s=1),
            holds=(),
            too_old=lambda age_s: log.now + 10_000_000 - int(age_s * 1e6),
        )

    log.close()
    log.open_only()
    reader = log.reader
    assert by_age() == RetentionPlan(13, unknown=13)
    assert isinstance(reader.snapshot().answer(NewestTime(13)), int)
    assert by_age() == RetentionPlan([info.base for info in reader.segments()][-1])


def test_the_index_of_a_sealed_segment_counts_with_its_octets(twin: FaultyDisk) -> None:
    create_log(twin, LOG, 0)
    two_indexes = 2 * 3 * INDEX_ENTRY
    for limit, kept in ((two_indexes, [True, True, True]), (two_indexes - 1, [False, True, True])):
        reader, writer, _ = open_log(twin, LOG, now_us=0, cache=ReadCache(index_bytes=limit))
        first = len(reader._segments) - 1
        for _ in range(2):
            for change in (writer.append([NewChunk(1, BODY)] * 3, 0), writer.roll(0)):
                reader.apply(change)
        assert [segment.index is not None for segment in reader._segments[first:]] == kept
        reader.close()
        writer.close()


def test_opening_a_log_of_many_segments_scans_only_the_newest(twin: FaultyDisk) -> None:
    log = filled_log(twin, 600)
    opened: list[str] = []

    def note(path: str) -> bool:
        opened.append(path)
        return False

    log.close()
    twin.fail("open", when=note)
    log.open_only()
    assert len(opened) <= 8
    assert log.report.segments == 200

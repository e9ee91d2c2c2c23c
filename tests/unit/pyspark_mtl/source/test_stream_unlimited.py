from __future__ import annotations

import logging

import pytest

from mtl.errors import OptionError
from pyspark_mtl.source import stream_unlimited
from pyspark_mtl.source.stream_unlimited import UnlimitedStreamReader
from tests.support.fake_client import FakeClient
from tests.support.readers import BEGINNING, EMPTY, settings, tasks

pytestmark = pytest.mark.usefixtures("logs")


def stream(**options: str) -> UnlimitedStreamReader:
    return UnlimitedStreamReader(settings(streaming=True, **options))


def ends_at(n: int, first: int | None = None) -> dict[str, object]:
    position = {"i": "i1", "n": n} if first is None else {"f": first, "i": "i1", "n": n}
    return {"resources": {"a": position}, "version": 1}


def test_a_batch_reads_all_contents_and_the_next_one_continues(client: FakeClient) -> None:
    reader = stream()
    first = reader.latestOffset()
    assert first == ends_at(51, first=1)
    assert tasks(reader.partitions(reader.initialOffset(), first)) == [("a", 1, 51)]
    client.logs["a"].bodies += [b""] * 5
    second = reader.latestOffset()
    assert second == ends_at(56)
    assert tasks(reader.partitions(first, second)) == [("a", 51, 56)]
    reader.commit(first)
    assert client.holders[0].confirmed == [("a", 50)]


def test_an_idle_query_keeps_its_offset_and_sends_no_requests(client: FakeClient) -> None:
    reader = stream(startingOffsets="latest")
    first = reader.latestOffset()
    assert first == ends_at(51, first=51)
    assert reader.latestOffset() == first
    looks = client.looks
    assert reader.latestOffset() == first
    assert client.looks == looks
    client.logs["a"].bodies += [b""] * 5
    assert reader.latestOffset() == ends_at(56)


def test_a_restarted_query_continues_at_its_last_offset() -> None:
    """The starting options apply only to new queries."""
    reader = stream(startingOffsets="latest")
    assert reader.partitions(ends_at(20), ends_at(20)) == []
    assert reader.latestOffset() == ends_at(51)


@pytest.mark.parametrize(("before", "first"), [([], 51), ([(BEGINNING, EMPTY)], 1), ([(EMPTY, EMPTY)], 1)])
def test_a_restarted_query_with_an_empty_offset_reads_from_the_beginning(
    before: list[tuple[dict[str, object], dict[str, object]]], first: int
) -> None:
    """Resources found now were created later. Only a query without offsets starts at `latest`."""
    reader = stream(startingOffsets="latest", resourcePattern="a")
    for start, end in before:
        assert reader.partitions(start, end) == []
    assert reader.latestOffset() == ends_at(51, first=first)


def test_the_batch_after_a_repeated_one_starts_at_its_end(client: FakeClient) -> None:
    reader = stream()
    assert reader.partitions(ends_at(40), ends_at(40)) == []
    assert tasks(reader.partitions(ends_at(20), ends_at(40))) == [("a", 20, 40)]
    assert reader.latestOffset() == ends_at(51)
    assert client.holders[0].confirmed == []


def test_progress_is_confirmed_at_the_start_of_a_batch_if_asked(client: FakeClient) -> None:
    reader = stream(confirmOn="start")
    reader.partitions(BEGINNING, reader.latestOffset())
    reader.latestOffset()
    assert client.holders[0].confirmed == [("a", 50)]


def test_features_missing_in_this_spark_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stream_unlimited._log_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        stream().latestOffset()
        stream().latestOffset()
    (record,) = caplog.records
    assert "Trigger.AvailableNow is one batch" in record.message


def test_an_error_of_the_construction_is_raised_at_the_first_call() -> None:
    reader = UnlimitedStreamReader(OptionError("wrong"))
    for call in (reader.latestOffset, reader.initialOffset, lambda: reader.partitions(BEGINNING, BEGINNING)):
        with pytest.raises(OptionError, match="wrong"):
            call()
    reader.stop()

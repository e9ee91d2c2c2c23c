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


def test_a_batch_is_all_that_there_is_and_the_next_one_goes_on_there(client: FakeClient) -> None:
    reader = stream()
    first = reader.latestOffset()
    assert first == ends_at(51, first=1)
    assert tasks(reader.partitions(reader.initialOffset(), first)) == [("a", 1, 51)]
    client.logs["a"].bodies += [b""] * 5
    second = reader.latestOffset()
    assert second == ends_at(56)
    assert tasks(reader.partitions(first, second)) == [("a", 51, 56)]
    reader.commit(first)
    assert client.readers[0].confirmed == [50]


def test_an_idle_query_stands_still_and_looks_at_nothing(client: FakeClient) -> None:
    reader = stream(startingOffsets="latest")
    first = reader.latestOffset()
    assert first == ends_at(51, first=51)
    assert reader.latestOffset() == first
    looks = client.looks
    assert reader.latestOffset() == first
    assert client.looks == looks
    client.logs["a"].bodies += [b""] * 5
    assert reader.latestOffset() == ends_at(56)


def test_a_query_that_starts_again_goes_on_where_its_log_ends() -> None:
    """Its options say where new queries begin, and not this one."""
    reader = stream(startingOffsets="latest")
    assert reader.partitions(ends_at(20), ends_at(20)) == []
    assert reader.latestOffset() == ends_at(51)


@pytest.mark.parametrize(("before", "first"), [([], 51), ([(BEGINNING, EMPTY)], 1), ([(EMPTY, EMPTY)], 1)])
def test_a_query_that_starts_again_without_a_resource_is_not_new(
    before: list[tuple[dict[str, object], dict[str, object]]], first: int
) -> None:
    """What it finds now came later. Only the query whose log is empty begins at `latest`."""
    reader = stream(startingOffsets="latest", resourcePattern="a")
    for start, end in before:
        assert reader.partitions(start, end) == []
    assert reader.latestOffset() == ends_at(51, first=first)


def test_a_batch_that_is_repeated_is_where_the_next_one_starts(client: FakeClient) -> None:
    reader = stream()
    assert reader.partitions(ends_at(40), ends_at(40)) == []
    assert tasks(reader.partitions(ends_at(20), ends_at(40))) == [("a", 20, 40)]
    assert reader.latestOffset() == ends_at(51)
    assert client.readers[0].confirmed == []


def test_progress_is_confirmed_at_the_start_of_a_batch_if_asked(client: FakeClient) -> None:
    reader = stream(confirmOn="start")
    reader.partitions(BEGINNING, reader.latestOffset())
    reader.latestOffset()
    assert client.readers[0].confirmed == [50]


def test_what_this_spark_lacks_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stream_unlimited._log_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        stream().latestOffset()
        stream().latestOffset()
    (record,) = caplog.records
    assert "Trigger.AvailableNow is one batch" in record.message


def test_what_was_wrong_when_it_was_made_is_told_when_it_is_used() -> None:
    reader = UnlimitedStreamReader(OptionError("wrong"))
    for call in (reader.latestOffset, reader.initialOffset, lambda: reader.partitions(BEGINNING, BEGINNING)):
        with pytest.raises(OptionError, match="wrong"):
            call()
    reader.stop()

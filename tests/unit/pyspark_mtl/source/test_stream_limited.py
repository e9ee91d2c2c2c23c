from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_mtl.limits import PACED_S
from pyspark_mtl.source.progress import WAIT_S
from pyspark_mtl.source.stream_limited import LimitedStreamReader
from tests.support.fake_client import FakeClient
from tests.support.readers import BEGINNING, EMPTY, settings

pytestmark = pytest.mark.usefixtures("logs")


def stream(**options: str) -> LimitedStreamReader:
    return LimitedStreamReader(settings(streaming=True, **options))


def test_the_read_limit_is_a_marker() -> None:
    assert stream().getDefaultReadLimit() == ReadAllAvailable()
    assert stream(maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert stream(maxBytesPerTrigger="7").getDefaultReadLimit() == ReadMaxRows((1 << 63) - 1)


def test_what_a_batch_leaves_is_reported(client: FakeClient) -> None:
    reader = stream(maxOffsetsPerTrigger="10", endingOffsets='{"a": 41}')
    reader.latestOffset(BEGINNING, ReadMaxRows(10))
    reported = {"a": {"i": "i1", "n": 41, "bytes": 300, "since": 1_000_011}}
    assert reader.reportLatestOffset() == {"resources": reported, "version": 1}


def test_what_a_batch_leaves_may_be_gone_meanwhile(client: FakeClient) -> None:
    reader = stream(maxOffsetsPerTrigger="10")
    reader.latestOffset(BEGINNING, ReadMaxRows(10))
    del client.logs["a"]
    assert reader.reportLatestOffset() == {"resources": {"a": {"i": "i1", "n": 51}}, "version": 1}


def test_a_trigger_without_news_looks_at_nothing(client: FakeClient) -> None:
    reader = stream()
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    idle = [reader.latestOffset(end, ReadAllAvailable()) for _ in range(2)]
    looks, reported = client.looks, reader.reportLatestOffset()
    idle += [reader.latestOffset(end, ReadAllAvailable()) for _ in range(3)]
    assert idle == [end] * 5
    assert (client.looks, client.silences) == (looks, 4)
    assert reader.reportLatestOffset() is reported
    client.logs["a"].bodies += [b""] * 5
    assert reader.latestOffset(end, ReadAllAvailable())["resources"]["a"]["n"] == 56
    assert reader.reportLatestOffset() == {"resources": {"a": {"i": "i1", "n": 56}}, "version": 1}


@pytest.mark.parametrize(("between", "waits"), [(0.011, WAIT_S), (2 * PACED_S, 0.0)])
def test_who_takes_time_between_triggers_is_answered_at_once(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, between: float, waits: float
) -> None:
    now = 0.0
    monkeypatch.setattr("pyspark_mtl.source.source.time.monotonic", lambda: now)
    reader, end = stream(), BEGINNING
    for _ in range(5):
        end = reader.latestOffset(end, ReadAllAvailable())
        now += between
    assert client.waits[1:] == [waits] * 4


def test_a_query_that_begins_elsewhere_looks_again(client: FakeClient) -> None:
    reader = stream()
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.latestOffset({**end, "resources": {}}, ReadAllAvailable()) == end
    assert client.silences == 0


@pytest.mark.parametrize(("start", "first"), [(BEGINNING, 51), (EMPTY, 1)])
def test_a_query_that_starts_again_without_a_resource_is_not_new(
    start: dict[str, object], first: int
) -> None:
    reader = stream(startingOffsets="latest", resourcePattern="a")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["resources"]["a"] == {"f": first, "i": "i1", "n": 51}


def test_a_query_that_finds_nothing_has_begun() -> None:
    reader = stream(startingOffsets="latest", resourcePattern="none")
    assert reader.latestOffset(BEGINNING, ReadAllAvailable()) == EMPTY
    assert reader.latestOffset(EMPTY, ReadAllAvailable()) == EMPTY
    assert reader.reportLatestOffset() == EMPTY


def test_limits_hold_unless_spark_says_once() -> None:
    reader = stream(maxOffsetsPerTrigger="10")
    assert reader.latestOffset(BEGINNING, ReadMaxRows(10))["resources"]["a"]["n"] == 11
    assert reader.latestOffset(BEGINNING, ReadAllAvailable())["resources"]["a"]["n"] == 51


def test_the_last_batch_of_available_now_is_confirmed(client: FakeClient) -> None:
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    reader.partitions(BEGINNING, end)
    client.logs["a"].bodies += [b""] * 5
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert client.readers[0].confirmed == [50]
    assert client.readers[0].closed


@pytest.mark.parametrize(("confirm_on", "confirmed"), [("commit", []), ("start", [50])])
def test_progress_is_confirmed_where_the_option_says(
    client: FakeClient, confirm_on: str, confirmed: list[int]
) -> None:
    reader = stream(confirmOn=confirm_on)
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    reader.partitions(BEGINNING, end)
    reader.latestOffset(end, ReadAllAvailable())
    assert client.readers[0].confirmed == confirmed


def test_the_progress_of_a_query_shows_what_there_is() -> None:
    reader = stream()
    assert reader.reportLatestOffset() is None
    reader.latestOffset(BEGINNING, ReadAllAvailable())
    assert reader.reportLatestOffset() == {"resources": {"a": {"i": "i1", "n": 51}}, "version": 1}

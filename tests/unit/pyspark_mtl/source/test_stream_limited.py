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


def test_contents_left_by_a_batch_are_reported(client: FakeClient) -> None:
    reader = stream(maxOffsetsPerTrigger="10", endingOffsets='{"a": 41}')
    reader.latestOffset(BEGINNING, ReadMaxRows(10))
    reported = {"a": {"i": "i1", "n": 41, "bytes": 300, "since": 1_000_011}}
    assert reader.reportLatestOffset() == {"resources": reported, "version": 1}


def test_the_report_works_after_a_deletion_of_the_resource(client: FakeClient) -> None:
    reader = stream(maxOffsetsPerTrigger="10")
    reader.latestOffset(BEGINNING, ReadMaxRows(10))
    del client.logs["a"]
    assert reader.reportLatestOffset() == {"resources": {"a": {"i": "i1", "n": 51}}, "version": 1}


def test_a_trigger_without_news_sends_no_requests(client: FakeClient) -> None:
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
def test_a_trigger_after_a_pause_is_answered_at_once(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, between: float, waits: float
) -> None:
    now = 0.0
    monkeypatch.setattr("pyspark_mtl.source.source.time.monotonic", lambda: now)
    reader, end = stream(), BEGINNING
    for _ in range(5):
        end = reader.latestOffset(end, ReadAllAvailable())
        now += between
    assert client.waits == [waits] * 4


def test_a_trigger_from_another_offset_describes_again(client: FakeClient) -> None:
    reader = stream()
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.latestOffset({**end, "resources": {}}, ReadAllAvailable()) == end
    assert client.silences == 0


@pytest.mark.parametrize(("start", "first"), [(BEGINNING, 51), (EMPTY, 1)])
def test_a_restarted_query_with_an_empty_offset_reads_from_the_beginning(
    start: dict[str, object], first: int
) -> None:
    reader = stream(startingOffsets="latest", resourcePattern="a")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["resources"]["a"] == {"f": first, "i": "i1", "n": 51}


def test_a_query_that_finds_no_resource_has_an_empty_offset() -> None:
    reader = stream(startingOffsets="latest", resourcePattern="none")
    assert reader.latestOffset(BEGINNING, ReadAllAvailable()) == EMPTY
    assert reader.latestOffset(EMPTY, ReadAllAvailable()) == EMPTY
    assert reader.reportLatestOffset() == EMPTY


def test_limits_apply_except_with_trigger_once() -> None:
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
    assert client.holders[0].confirmed == [("a", 50)]
    assert client.holders[0].closed


@pytest.mark.parametrize(("confirm_on", "confirmed"), [("commit", []), ("start", [("a", 50)])])
def test_progress_is_confirmed_as_the_option_says(
    client: FakeClient, confirm_on: str, confirmed: list[tuple[str, int]]
) -> None:
    reader = stream(confirmOn=confirm_on)
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    reader.partitions(BEGINNING, end)
    reader.latestOffset(end, ReadAllAvailable())
    assert client.holders[0].confirmed == confirmed


def test_the_progress_of_a_query_has_the_latest_offset() -> None:
    reader = stream()
    assert reader.reportLatestOffset() is None
    reader.latestOffset(BEGINNING, ReadAllAvailable())
    assert reader.reportLatestOffset() == {"resources": {"a": {"i": "i1", "n": 51}}, "version": 1}

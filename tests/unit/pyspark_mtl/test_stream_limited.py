from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_mtl.stream_limited import LimitedStreamReader
from tests.support.fake_client import FakeClient
from tests.support.readers import EMPTY, settings

pytestmark = pytest.mark.usefixtures("logs")


def stream(**options: str) -> LimitedStreamReader:
    return LimitedStreamReader(settings(streaming=True, **options))


def test_the_read_limit_is_a_marker() -> None:
    assert stream().getDefaultReadLimit() == ReadAllAvailable()
    assert stream(maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert stream(maxBytesPerTrigger="7").getDefaultReadLimit() == ReadMaxRows((1 << 63) - 1)


def test_what_a_batch_leaves_is_reported(client: FakeClient) -> None:
    reader = stream(maxOffsetsPerTrigger="10", endingOffsets='{"a": 41}')
    reader.latestOffset(EMPTY, ReadMaxRows(10))
    reported = {"a": {"i": "i1", "n": 41, "bytes": 300, "since": 1_000_011}}
    assert reader.reportLatestOffset() == {"resources": reported, "version": 1}
    del client.logs["a"]  # meanwhile
    assert reader.reportLatestOffset() == {"resources": {"a": {"i": "i1", "n": 41}}, "version": 1}


def test_limits_hold_unless_spark_says_once() -> None:
    reader = stream(maxOffsetsPerTrigger="10")
    assert reader.latestOffset(EMPTY, ReadMaxRows(10))["resources"]["a"]["n"] == 11
    assert reader.latestOffset(EMPTY, ReadAllAvailable())["resources"]["a"]["n"] == 51


def test_the_last_batch_of_available_now_is_confirmed(client: FakeClient) -> None:
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(EMPTY, ReadAllAvailable())
    reader.partitions(EMPTY, end)
    client.logs["a"].bodies += [b""] * 5
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert client.readers[0].confirmed == [50]
    assert client.readers[0].closed


@pytest.mark.parametrize(("confirm_on", "confirmed"), [("commit", []), ("start", [50])])
def test_progress_is_confirmed_where_the_option_says(
    client: FakeClient, confirm_on: str, confirmed: list[int]
) -> None:
    reader = stream(confirmOn=confirm_on)
    end = reader.latestOffset(EMPTY, ReadAllAvailable())
    reader.partitions(EMPTY, end)
    reader.latestOffset(end, ReadAllAvailable())
    assert client.readers[0].confirmed == confirmed


def test_the_progress_of_a_query_shows_what_there_is() -> None:
    reader = stream()
    assert reader.reportLatestOffset() is None
    reader.latestOffset(EMPTY, ReadAllAvailable())
    assert reader.reportLatestOffset() == {"resources": {"a": {"i": "i1", "n": 51}}, "version": 1}

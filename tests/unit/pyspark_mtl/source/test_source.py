from __future__ import annotations

import pickle
import signal
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from mtl.errors import DataLoss, OffsetError, OptionError, Refused
from pyspark_mtl.source.source import BatchReader, TaskPartition
from pyspark_mtl.source.stream_limited import LimitedStreamReader
from tests.support.fake_client import FakeClient, FakeLog
from tests.support.readers import BEGINNING, settings, tasks

pytestmark = pytest.mark.usefixtures("logs")


def stream(**options: str) -> LimitedStreamReader:
    return LimitedStreamReader(settings(streaming=True, **options))


# --- streams ------------------------------------------------------------------------------------------------


def test_a_batch_is_planned_read_and_committed(client: FakeClient) -> None:
    reader = stream()
    assert reader.initialOffset() == BEGINNING
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    assert end == {"resources": {"a": {"f": 1, "i": "i1", "n": 51}}, "version": 1}
    assert tasks(reader.partitions(BEGINNING, end)) == [("a", 1, 51)]
    reader.commit(end)
    assert client.holders[0].confirmed == [("a", 50)]
    assert reader.partitions(end, end) == []


def test_constructing_a_reader_opens_no_connection(client: FakeClient) -> None:
    pickle.dumps(stream())
    assert client.readers == []
    assert client.looks == 0


def test_a_reader_can_be_pickled(client: FakeClient) -> None:
    reader: LimitedStreamReader = pickle.loads(pickle.dumps(stream()))
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    (partition,) = pickle.loads(pickle.dumps(reader.partitions(BEGINNING, end)))
    rows = [
        n for batch in pickle.loads(pickle.dumps(stream())).read(partition) for n in batch.column("sequence")
    ]
    assert [n.as_py() for n in rows] == list(range(1, 51))


def test_an_error_of_the_construction_is_raised_at_the_first_call() -> None:
    reader = LimitedStreamReader(OptionError("wrong"))
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    for call in (
        reader.initialOffset,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset(BEGINNING, ReadAllAvailable()),
        lambda: reader.partitions(BEGINNING, BEGINNING),
    ):
        with pytest.raises(OptionError, match="wrong"):
            call()
    reader.stop()


def test_a_batch_is_split_into_tasks_with_the_holders_epoch() -> None:
    reader = stream(group="g", minPartitions="3", maxRecordsPerPartition="10")
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    partitions = reader.partitions(BEGINNING, end)
    assert tasks(partitions) == [("a", first, first + 10) for first in range(1, 51, 10)]
    assert {
        (partition.tasks[0].group, partition.tasks[0].holding_epoch)
        for partition in partitions
        if isinstance(partition, TaskPartition)
    } == {("g", 7)}


def test_a_loss_before_the_plan_of_a_batch_is_an_error(client: FakeClient) -> None:
    reader = stream()
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    client.logs["a"].earliest = 20
    with pytest.raises(DataLoss, match=r"contents 1 to 19 \(19 in all\) are gone.*failOnDataLoss=false"):
        reader.partitions(BEGINNING, end)


def test_a_loss_before_the_plan_of_a_batch_may_be_skipped_and_is_logged(
    client: FakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream(failOnDataLoss="false")
    end = reader.latestOffset(BEGINNING, ReadAllAvailable())
    client.logs["a"].earliest = 20
    assert tasks(reader.partitions(BEGINNING, end)) == [("a", 20, 51)]
    client.logs["a"] = FakeLog(incarnation="i2")
    assert reader.partitions(BEGINNING, end) == []
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


MOVED = {"resources": {"a": {"i": "i1", "n": 21}, "b": {"i": "i2", "n": 5}}, "version": 1}


REPEATED = {"resources": {"a": {"i": "i1", "n": 21}, "b": {"i": "i2", "n": 9}}, "version": 1}


@pytest.mark.parametrize("options", [{"resources": "a"}, {"resourcePattern": "[ac]"}])
@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.latestOffset(MOVED, ReadAllAvailable()),
        lambda reader: reader.partitions(MOVED, MOVED),
        lambda reader: reader.partitions(MOVED, REPEATED),
        lambda reader: reader.commit(MOVED),
    ],
)
def test_a_checkpoint_of_another_source_is_an_error(
    client: FakeClient, options: dict[str, str], call: Callable[[LimitedStreamReader], object]
) -> None:
    """Before anything is read or planned; also if Spark begins with the repetition of a batch."""
    with pytest.raises(OffsetError, match=r"has read 'b' up to \d, .* are resource.*formerPattern=b"):
        call(stream(**options))
    assert client.readers == []


@pytest.mark.parametrize("options", [{"formerPattern": "b"}, {"failOnDataLoss": "false"}])
def test_a_resource_that_is_read_no_more_keeps_its_position(
    client: FakeClient, options: dict[str, str]
) -> None:
    """It is neither held nor confirmed: another query may read it with the same group."""
    reader = stream(group="g", **options)
    end: dict[str, Any] = reader.latestOffset(MOVED, ReadAllAvailable())
    assert end["resources"]["b"] == {"i": "i2", "n": 5}
    assert tasks(reader.partitions(MOVED, end)) == [("a", 21, 51)]
    reader.commit(end)
    assert [list(holder.positions) for holder in client.holders] == [["a"]]
    client.logs["b"] = FakeLog([b"x"] * 20, incarnation="i2")
    again = stream(group="g", resources="a,b")
    end = again.latestOffset(end, ReadAllAvailable())
    assert end["resources"]["b"] == {"i": "i2", "n": 21}, "it continues where it was"


def test_a_batch_that_was_planned_before_a_change_of_the_options_is_read_as_planned(
    client: FakeClient,
) -> None:
    client.logs["b"] = FakeLog([b"x"] * 20, incarnation="i2")
    end = {"resources": {"a": {"i": "i1", "n": 31}, "b": {"i": "i2", "n": 9}}, "version": 1}
    assert tasks(stream(formerPattern="b").partitions(MOVED, end)) == [("a", 21, 31), ("b", 5, 9)]


def test_stop_closes_the_holders(client: FakeClient) -> None:
    reader = stream()
    reader.stop()
    reader.partitions(BEGINNING, reader.latestOffset(BEGINNING, ReadAllAvailable()))
    reader.stop()
    assert client.holders[0].closed


def test_sigterm_exits_the_process_and_stops_the_reader() -> None:
    stream().initialOffset()
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # Spark sends two


# --- batches ------------------------------------------------------------------------------------------------


def batch(**options: str) -> list[tuple[str, int, int]]:
    return tasks(BatchReader(settings(streaming=False, **options)).partitions())


def test_a_batch_read_covers_all_contents() -> None:
    assert batch(resources="a,b") == [("a", 1, 51), ("b", 1, 10)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"a": 20}'}, [("a", 20, 51)]),
        ({"endingOffsets": '{"a": 20}'}, [("a", 1, 20)]),
        ({"endingOffsets": '{"a": 1}'}, []),
        ({"endingTimestamp": "5"}, [("a", 1, 30)]),
        ({"startingOffsets": '{"a": 40}', "endingTimestamp": "5"}, []),
        ({"minPartitions": "2"}, [("a", 1, 26), ("a", 26, 51)]),
    ],
)
def test_start_and_end_of_a_batch_read(
    client: FakeClient, options: dict[str, str], expected: list[tuple[str, int, int]]
) -> None:
    client.times[5000] = 30
    assert batch(**options) == expected


def test_a_batch_read_may_start_at_a_groups_cursor_without_moving_it(client: FakeClient) -> None:
    client.positions["g", "a"] = 33
    assert batch(group="g", startingOffsets="group") == [("a", 33, 51)]
    assert batch(group="h", startingOffsets="group") == [("a", 1, 51)]
    assert client.positions == {("g", "a"): 33}
    assert client.readers == []


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"resources": "a,none"}, Refused, "the resource 'none' to read does not exist"),
        (
            {"startingOffsets": '{"a": 20}', "endingOffsets": '{"a": 10}'},
            OptionError,
            "ends .10. before it starts",
        ),
        ({"endingOffsets": '{"a": 90}'}, DataLoss, "ends at 51: contents 51 to 89"),
    ],
)
def test_a_batch_read_of_missing_contents_is_an_error(
    options: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        batch(**options)


def test_an_empty_plan_is_readable_by_spark() -> None:
    assert list(BatchReader(settings(streaming=False)).read(InputPartition(None))) == []

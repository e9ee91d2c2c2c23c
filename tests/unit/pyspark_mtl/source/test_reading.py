from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from mtl.errors import DataLoss, Refused
from mtl.wire.control import UNKNOWN_RESOURCE
from pyspark_mtl.source.offsets import OffsetRange
from pyspark_mtl.source.reading import Task, read
from tests.support.fake_client import DEFAULT, FakeClient, FakeLog

BODIES = [str(n).encode() for n in range(1, 31)]


def rows(task: Task, *, fail_on_data_loss: bool = True) -> list[pa.RecordBatch]:
    return list(read(DEFAULT, task, include_properties=False, fail_on_data_loss=fail_on_data_loss))


def sequences(batches: list[pa.RecordBatch]) -> list[int]:
    return [sequence for batch in batches for sequence in batch.column("sequence").to_pylist()]


@pytest.fixture(autouse=True)
def _log(client: FakeClient) -> None:
    client.logs["a"] = FakeLog(list(BODIES))


def test_a_task_reads_its_range() -> None:
    batches = rows(Task(OffsetRange("a", "i1", 3, 12)))
    assert sequences(batches) == list(range(3, 12))
    assert [body for batch in batches for body in batch.column("body").to_pylist()] == BODIES[2:11]
    assert batches[0].column("timestamp")[0].as_py().timestamp() == pytest.approx(1.000003)


def test_a_task_reads_on_its_own_lease_as_a_member(client: FakeClient) -> None:
    rows(Task(OffsetRange("a", "i1", 3, 12), "g", 7))
    (reader,) = client.readers
    assert reader.asked == {
        "group": "g",
        "holding_epoch": 7,
        "packed": True,
        "incarnation": "i1",
        "log_epoch": None,
        "until_epoch": None,
    }
    assert reader.closed


def test_a_task_requests_the_epochs_of_its_contents(client: FakeClient) -> None:
    epochs = ((1, "1.aaaaaaaa"), (7, "2.bbbbbbbb"))
    client.logs["a"].epochs = epochs
    rows(Task(OffsetRange("a", "i1", 3, 12, epochs=epochs)))
    asked = client.readers[0].asked
    assert (asked["log_epoch"], asked["until_epoch"]) == ("1.aaaaaaaa", "2.bbbbbbbb")


def test_a_stopped_task_closes_its_lease(client: FakeClient) -> None:
    generator = read(
        DEFAULT, Task(OffsetRange("a", "i1", 1, 31)), include_properties=False, fail_on_data_loss=True
    )
    next(generator)
    generator.close()  # type: ignore[attr-defined]
    assert client.readers[0].closed


def test_contents_removed_since_the_plan_are_a_loss(client: FakeClient) -> None:
    client.logs["a"].earliest = 5
    with pytest.raises(DataLoss, match=r"contents 3 to 4 \(2 in all\)"):
        rows(Task(OffsetRange("a", "i1", 3, 12)))
    assert sequences(rows(Task(OffsetRange("a", "i1", 3, 12)), fail_on_data_loss=False)) == list(range(5, 12))


def test_a_gap_is_a_loss_without_repeated_contents(client: FakeClient) -> None:
    client.gaps = {5: 9}
    with pytest.raises(DataLoss, match=r"contents 5 to 8 \(4 in all\)"):
        rows(Task(OffsetRange("a", "i1", 3, 12)))
    kept = sequences(rows(Task(OffsetRange("a", "i1", 3, 12)), fail_on_data_loss=False))
    assert kept == [3, 4, 9, 10, 11]


def test_a_lease_that_ends_early_is_a_loss(client: FakeClient) -> None:
    client.gaps = {9: 31}
    with pytest.raises(DataLoss, match="contents 9 to 11"):
        rows(Task(OffsetRange("a", "i1", 3, 12)))
    assert sequences(rows(Task(OffsetRange("a", "i1", 3, 12)), fail_on_data_loss=False)) == list(range(3, 9))


@pytest.mark.parametrize("log", [None, FakeLog([b"new"], incarnation="i2")])
def test_a_resource_deleted_since_the_plan_is_a_loss(client: FakeClient, log: FakeLog | None) -> None:
    client.logs = {} if log is None else {"a": log}
    with pytest.raises(DataLoss, match=r"contents 3 to 11 \(9 in all\)"):
        rows(Task(OffsetRange("a", "i1", 3, 12)))
    assert rows(Task(OffsetRange("a", "i1", 3, 12)), fail_on_data_loss=False) == []


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (Refused(404, UNKNOWN_RESOURCE, "no such resource"), r"contents 7 to 11 \(5 in all\)"),
        (
            DataLoss("a", 7, 7, "it was deleted and created again"),
            "created again",
        ),  # the client's error for a 409
    ],
)
def test_a_resource_deleted_during_reading_is_a_loss(
    client: FakeClient, refusal: Refused, words: str
) -> None:
    client.vanishes_at, client.vanishing = 7, refusal
    with pytest.raises(DataLoss, match=words):
        rows(Task(OffsetRange("a", "i1", 3, 12)))
    assert sequences(rows(Task(OffsetRange("a", "i1", 3, 12)), fail_on_data_loss=False)) == [3, 4, 5, 6]


def test_a_task_can_be_pickled() -> None:
    task = Task(OffsetRange("a", "i1", 3, 12), "g", 7)
    assert pickle.loads(pickle.dumps(task)) == task

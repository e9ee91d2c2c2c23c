from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from mtl.errors import OptionError, Refused, Unreachable
from mtl.wire.control import OTHER_CONTENTS
from pyspark_mtl.options.settings import WriteSettings, parse, write_settings
from pyspark_mtl.rows.bodies.shape import of_sink
from pyspark_mtl.sink import sink
from pyspark_mtl.sink.sink import BATCH_ID, QUERY_ID, BatchWriter, StageMessage, StreamWriter
from tests.support.fake_client import FakeClient, FakeLog, FakeWriter
from tests.support.texts import in_order


class FakeTask:
    """In the place of pyspark's TaskContext: the local properties of a streaming task."""

    properties: ClassVar[dict[str, str]] = {}

    @classmethod
    def get(cls) -> type[FakeTask]:
        return cls

    @classmethod
    def getLocalProperty(cls, name: str) -> str | None:  # noqa: N802 Spark's name
        return cls.properties.get(name)


def settings(*, streaming: bool = True, overwrite: bool = False, **options: str) -> WriteSettings:
    options = {"resource": "a", **options}
    if overwrite:
        options["overwriteMode"] = "truncate"
    given = parse({name.lower(): value for name, value in options.items() if value})
    return write_settings(given, streaming=streaming, overwrite=overwrite)


def frames(*counts: int, body: bytes = b"x") -> Iterator[Any]:
    for count in counts:
        yield pa.RecordBatch.from_arrays([pa.array([body] * count, pa.binary())], names=["body"])


@pytest.fixture(autouse=True)
def _task(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.logs["a"] = FakeLog()
    monkeypatch.setattr(sink, "TaskContext", FakeTask)
    monkeypatch.setattr(FakeTask, "properties", {QUERY_ID: "query", BATCH_ID: "7"})


def message(writer: StreamWriter | BatchWriter, *counts: int, body: bytes = b"x") -> StageMessage:
    found = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(frames(*counts, body=body))))
    assert isinstance(found, StageMessage)
    return found


# --- streams ------------------------------------------------------------------------------------------------


def test_a_batch_is_published_by_its_commit(client: FakeClient) -> None:
    writer = StreamWriter(settings())
    messages = [message(writer, 2, 1), message(writer), message(writer, 0, 4)]
    assert client.logs["a"].bodies == []
    StreamWriter(settings()).commit(list(messages), 7)
    assert len(client.logs["a"].bodies) == 7
    assert client.commits["query"][0] == 7


def test_a_task_without_rows_sends_no_request(client: FakeClient) -> None:
    assert message(StreamWriter(settings()), 0, 0) == StageMessage(query="query")
    assert client.writers == []


def test_a_batch_without_rows_counts_as_a_version(client: FakeClient) -> None:
    """Otherwise a repetition that has lost its rows would succeed, and the next batch would publish them."""
    writer = StreamWriter(settings())
    writer.commit([message(writer), message(writer), None], 7)
    assert client.commits["query"][0] == 7
    writer.commit([message(writer, 3)], 8)
    with pytest.raises(Refused, match=in_order("3 rows", 0)):
        writer.commit([message(writer)], 8)


def test_a_batch_without_tasks_commits_nothing(client: FakeClient) -> None:
    StreamWriter(settings()).commit([], 7)
    assert client.commits == {}


def test_a_repeated_commit_is_recognised_and_logged_in_one_line(
    client: FakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyspark_mtl.sink.sink")
    writer = StreamWriter(settings())
    for _ in range(2):
        writer.commit([message(writer, 3)], 7)
    assert len(client.logs["a"].bodies) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "batch already published: application=query query=query batch=7"
    ]


def test_a_repeated_commit_of_other_rows_is_an_error(client: FakeClient) -> None:
    """A copied checkpoint, or one without its last entry, plans another batch under the same number."""
    writer = StreamWriter(settings())
    writer.commit([message(writer, 3)], 7)
    for count in (2, 4):
        with pytest.raises(Refused, match="the checkpoint was rolled back or copied") as caught:
            writer.commit([message(writer, count)], 7)
        assert (caught.value.status, caught.value.reason) == (409, OTHER_CONTENTS)
        assert re.search(in_order("3 rows", count), str(caught.value))
        assert "`mtl stages forget query`" in str(caught.value)
    with pytest.raises(Refused, match="as many other rows"):
        writer.commit([message(writer, 3, body=b"y")], 7)
    assert len(client.logs["a"].bodies) == 3


def test_a_repeated_commit_for_other_resources_is_an_error(client: FakeClient) -> None:
    client.logs["b"] = FakeLog()
    for check in ("", "counts"):
        first, second = (
            StreamWriter(settings(resource=name, txnAppId=f"app-{check}", replayCheck=check)) for name in "ab"
        )
        first.commit([message(first, 3)], 7)
        with pytest.raises(Refused, match=in_order("as many", "other resources")):
            second.commit([message(second, 3)], 7)


@pytest.mark.parametrize(("first", "second"), [("counts", "counts"), ("", "counts"), ("counts", "")])
def test_the_check_of_a_query_that_is_not_repeatable_is_weakened_to_counts(
    client: FakeClient, first: str, second: str
) -> None:
    """Also after a repetition was refused: the published batch has a hash, and the repetition has none."""
    StreamWriter(settings(replayCheck=first)).commit(
        [message(StreamWriter(settings(replayCheck=first)), 3)], 7
    )
    writer = StreamWriter(settings(replayCheck=second))
    writer.commit([message(writer, 3, body=b"y")], 7)
    with pytest.raises(Refused, match=in_order("3 rows", 4)):
        writer.commit([message(writer, 4)], 7)


def test_failed_and_second_attempts_are_not_part_of_the_digest(client: FakeClient) -> None:
    writer = StreamWriter(settings())
    message(writer, 3, body=b"of a failed attempt")
    writer.commit([None, message(writer, 3), message(writer, 1, body=b"y")], 7)
    message(writer, 3)  # a speculative attempt, which the commit does not name
    writer.commit([message(writer, 1, body=b"y"), message(writer, 3)], 7)
    writer.commit([message(writer, 2), message(writer, 1), message(writer, 1, body=b"y")], 7)
    assert len(client.logs["a"].bodies) == 4


def test_a_repeated_commit_of_other_rows_is_accepted_without_fail_on_loss(
    client: FakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    writer = StreamWriter(settings(failOnDataLoss="false"))
    writer.commit([message(writer, 3)], 7)
    writer.commit([message(writer, 4)], 7)
    assert re.search(in_order("3 rows", 4), caplog.text)
    assert len(client.logs["a"].bodies) == 3
    assert client.aborted == ["query/7/1"], "the stages of the repetition would stay until they expire"


@pytest.mark.parametrize("body_format", ["json", "msgpack", "arrow"])
def test_a_repeated_commit_has_the_same_rows_in_other_tasks_and_bodies(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, body_format: str
) -> None:
    """For example a restart with another minPartitions splits the same rows into more tasks and bodies."""
    open_writer = client.writer

    def roomy(*arguments: Any, **options: Any) -> FakeWriter:
        opened = open_writer(*arguments, **options)
        opened.max_content = opened.max_pack = 10_000
        return opened

    monkeypatch.setattr(client, "writer", roomy)
    given = settings(bodyFormat=body_format)
    given = settings(bodyFormat=body_format)
    assert given.bodies is not None
    shape = of_sink(pa.schema([("n", pa.int64()), ("s", pa.string())]), given.bodies)
    writer = StreamWriter(given, shape)

    def commit(*tasks: range, offset: int = 0) -> None:
        made = [
            pa.RecordBatch.from_pydict({"n": [n + offset for n in task], "s": [str(n) for n in task]})
            for task in tasks
        ]
        writer.commit([writer.write(iter([frame])) for frame in made], 7)

    commit(range(10))
    bodies = len(client.logs["a"].bodies)
    commit(range(7, 10), range(7))
    commit(*(range(n, n + 1) for n in range(10)))
    with pytest.raises(Refused, match=in_order("10 rows", "as many other rows")):
        commit(range(7), range(7, 10), offset=1)
    with pytest.raises(Refused, match=in_order("10 rows", 9)):
        commit(range(9))
    assert len(client.logs["a"].bodies) == bodies


def test_the_application_name_may_be_an_option(client: FakeClient) -> None:
    writer = StreamWriter(settings(txnAppId="mine"))
    writer.commit([message(writer, 3)], 7)
    assert list(client.commits) == ["mine"]


def test_the_application_of_a_user_has_its_name_as_prefix(client: FakeClient) -> None:
    client.user = "etl"
    stream, batch = StreamWriter(settings()), BatchWriter(settings())
    stream.commit([message(stream, 3)], 7)
    batch.commit([message(batch, 3)])
    assert [name.split("-")[0] for name in client.commits] == ["etl.query", "etl.write"]
    assert client.forgotten == [name for name in client.commits if "write" in name]


def test_at_least_once_commits_no_stages(client: FakeClient) -> None:
    writer = StreamWriter(settings(deliveryGuarantee="at-least-once"))
    messages = [message(writer, 3)]
    assert len(client.logs["a"].bodies) == 3
    writer.commit(list(messages), 7)
    writer.abort(list(messages), 7)
    assert (client.commits, client.aborted) == ({}, [])


def test_an_abort_discards_the_stages(client: FakeClient) -> None:
    writer = StreamWriter(settings())
    writer.abort([message(writer, 3), None, StageMessage()], 7)
    assert client.aborted == ["query/7/0"]


def test_an_abort_does_not_hide_the_cause_of_the_failure(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable(_stages: object) -> None:
        raise Unreachable("tcp://127.0.0.1:5975", 30.0, "Stage.Abort")

    writer = StreamWriter(settings())
    messages = [message(writer, 3)]
    monkeypatch.setattr(client, "stage_abort", unreachable)
    writer.abort(list(messages), 7)
    assert re.search(in_order("1 stages", "expire"), caplog.text)


def test_a_task_without_query_id_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTask, "properties", {})
    with pytest.raises(OptionError, match=r"did not set the property 'sql.streaming.queryId'"):
        StreamWriter(settings()).write(frames(1))


def visible(client: FakeClient, name: str = "a") -> int:
    return client.logs[name].next - client.logs[name].earliest


def test_an_overwriting_batch_replaces_the_former_one(client: FakeClient) -> None:
    writer = StreamWriter(settings(overwrite=True))
    for batch, counts in enumerate([(2, 1), (4,), (4,), (0, 0)]):
        messages = [message(writer, count) for count in counts]
        writer.commit([*messages, message(writer)], batch)
        assert visible(client) == sum(counts)
    with pytest.raises(Refused, match=in_order("batch 3", "query", "0 rows", 9)):
        writer.commit([message(writer, 9)], 3)
    assert visible(client) == 0, "batch 3 was there already"


def test_an_overwrite_by_column_replaces_only_resources_with_rows(client: FakeClient) -> None:
    client.logs.update(b=FakeLog([b"stays"]))
    writer = StreamWriter(settings(overwrite=True, resource=""))
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["a"], pa.string()), pa.array([b"x"], pa.binary())], names=["resource", "body"]
    )
    client.logs["a"].bodies.append(b"goes")
    writer.commit([writer.write(iter([rows]))], 7)
    assert (visible(client), visible(client, "b")) == (1, 1)
    writer.commit([message(writer)], 8)
    assert visible(client) == 1, "no row says which resource is to be empty"


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_write_without_rows_creates_the_resource_if_requested(client: FakeClient, guarantee: str) -> None:
    def missing(name: str, *, streaming: bool, create: str = "true") -> WriteSettings:
        wanted: dict[str, Any] = {"resource": name, "createResource": create, "deliveryGuarantee": guarantee}
        return settings(streaming=streaming, **wanted)

    writer = BatchWriter(missing("batch", streaming=False))
    writer.commit([message(writer, 0), message(writer)])
    BatchWriter(missing("no task", streaming=False)).commit([])
    stream = StreamWriter(missing("stream", streaming=True))
    stream.commit([message(stream, 0)], 0)
    stream.commit([message(stream, 0)], 1)
    StreamWriter(missing("stream without a task", streaming=True)).commit([], 0)
    BatchWriter(missing("not wanted", streaming=False, create="")).commit([])
    assert set(client.logs) == {"a", "batch", "no task", "stream", "stream without a task"}


def test_an_existing_resource_needs_no_right_to_create_it(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(client.__class__, "create_resource")
    BatchWriter(settings(streaming=False, createResource="true")).commit([])
    assert client.logs["a"].bodies == []


def test_an_overwrite_without_rows_creates_the_resource_if_requested(client: FakeClient) -> None:
    with pytest.raises(OptionError, match="'new' to write to does not exist"):
        BatchWriter(settings(streaming=False, overwrite=True, resource="new")).commit([StageMessage()])
    wanted = settings(streaming=False, overwrite=True, resource="new", createResource="true")
    BatchWriter(wanted).commit([StageMessage()])
    assert visible(client, "new") == 0


def test_an_overwrite_without_tasks_is_an_error(client: FakeClient) -> None:
    with pytest.raises(OptionError, match="the id of the query is unknown"):
        StreamWriter(settings(overwrite=True)).commit([], 7)
    assert client.commits == {}


# --- batches ------------------------------------------------------------------------------------------------


def test_a_batch_write_is_atomic_under_its_own_application(client: FakeClient) -> None:
    writer = BatchWriter(settings(streaming=False))
    messages = [message(writer, 3), message(writer, 2)]
    assert client.logs["a"].bodies == []
    writer.commit(list(messages))
    assert len(client.logs["a"].bodies) == 5
    assert client.forgotten == list(client.commits)


def test_two_batch_writes_are_independent(client: FakeClient) -> None:
    for _ in range(2):
        writer = BatchWriter(settings(streaming=False))
        writer.commit([message(writer, 3)])
    assert len(client.logs["a"].bodies) == 6


def test_a_repeatable_write_happens_once(client: FakeClient) -> None:
    for _ in range(2):
        writer = BatchWriter(settings(streaming=False, txnAppId="loader", txnVersion="4"))
        writer.commit([message(writer, 3)])
    assert len(client.logs["a"].bodies) == 3
    assert client.forgotten == []


def test_a_repeatable_write_repeated_with_other_rows_is_an_error(client: FakeClient) -> None:
    writer = BatchWriter(settings(streaming=False, txnAppId="loader", txnVersion="4"))
    writer.commit([message(writer, 3)])
    for counts in ((), (2,)):
        with pytest.raises(Refused, match=in_order("batch 4", "loader")):
            writer.commit([message(writer, *counts)])
    with pytest.raises(Refused, match=in_order("3 rows", "as many other rows")):
        writer.commit([message(writer, 3, body=b"y")])
    assert len(client.logs["a"].bodies) == 3


def test_a_write_without_rows_commits_nothing(client: FakeClient) -> None:
    writer = BatchWriter(settings(streaming=False))
    writer.commit([message(writer)])
    writer.abort([message(writer)])
    assert client.commits == {}


def test_a_failed_write_is_discarded(client: FakeClient) -> None:
    writer = BatchWriter(settings(streaming=False))
    writer.abort([message(writer, 3), None])
    assert len(client.aborted) == 1

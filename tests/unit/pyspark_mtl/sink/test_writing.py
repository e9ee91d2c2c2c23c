from __future__ import annotations

import pyarrow as pa
import pytest

from mtl.errors import ContentTooLarge, OptionError, SchemaError
from mtl.wire.control import Retention
from pyspark_mtl.options.settings import WriteSettings, parse, write_settings
from pyspark_mtl.sink import writing
from pyspark_mtl.sink.writing import write
from tests.support.fake_client import FakeClient, FakeLog


def settings(**options: str) -> WriteSettings:
    return write_settings(parse({name.lower(): value for name, value in options.items()}), streaming=True)


def frame(*rows: tuple[str, bytes]) -> pa.RecordBatch:
    names, bodies = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(names, pa.string()), pa.array(bodies, pa.binary())], names=["resource", "body"]
    )


@pytest.fixture(autouse=True)
def _logs(client: FakeClient) -> None:
    client.logs.update(a=FakeLog(), b=FakeLog())


def test_resources_of_a_frame_share_a_stage(client: FakeClient) -> None:
    written = write(settings(), [frame(("a", b"1"), ("b", b"2")), frame(("a", b"3"))], "app", 7)
    assert (written.stages, written.contents) == (("app/7/0",), (("a", 2), ("b", 1)))
    assert client.stages == {"app/7/0": {"a": [b"1", b"3"], "b": [b"2"]}}
    assert client.logs["a"].bodies == []


def test_new_resources_of_a_later_frame_get_their_own_stage(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "GATHERED_OCTETS", 1)
    written = write(settings(), [frame(("b", b"1")), frame(("a", b"2"), ("b", b"3"))], "app", 7)
    assert (written.stages, written.contents) == (("app/7/0", "app/7/1"), (("b", 2), ("a", 1)))
    assert client.stages == {"app/7/0": {"b": [b"1", b"3"]}, "app/7/1": {"a": [b"2"]}}


@pytest.mark.parametrize("options", [{}, {"resource": "a"}])
def test_small_frames_are_sent_in_one_pack(client: FakeClient, options: dict[str, str]) -> None:
    frames = [frame(("a", b"%d" % n)) for n in range(5)]
    assert write(settings(**options), frames, "app", 7).contents == (("a", 5),)
    assert [writer.packs for writer in client.writers] == [[5]]


def test_at_least_once_appends(client: FakeClient) -> None:
    written = write(settings(deliveryGuarantee="at-least-once"), [frame(("a", b"1"))], "app", 7)
    assert (written.stages, written.contents, written.digest.contents) == ((), (("a", 1),), None)
    assert client.logs["a"].bodies == [b"1"]


def test_a_failed_task_leaves_no_stage(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GATHERED_OCTETS", 1)
    with pytest.raises(SchemaError, match="null"):
        write(settings(), [frame(("a", b"1"), ("b", b"2")), frame(("a", None))], "app", 7)  # type: ignore[arg-type]
    assert [writer.ended for writer in client.writers] == ["abandoned"]
    assert client.stages == {}


def test_a_body_above_the_brokers_limit_is_an_error() -> None:
    with pytest.raises(ContentTooLarge, match="101 octets is above the broker's limit of 100"):
        write(settings(), [frame(("a", b"x" * 101))], "app", 7)


def test_a_missing_resource_is_an_error_unless_create_resource_is_set(client: FakeClient) -> None:
    with pytest.raises(
        OptionError, match=r"the resource 'new' to write to does not exist.*createResource=true"
    ):
        write(settings(resource="new"), [frame(("a", b"1"))], "app", 7)
    write(settings(resource="new", createResource="true"), [frame(("a", b"1"))], "app", 8)
    assert list(client.stages.values()) == [{"new": [b"1"]}]
    assert client.created["new"] == {"durability": "sync", "retention": None}
    several = settings(createResource="true")
    write(several, [frame(("x", b"1"), ("a", b"2"), ("y", b"3"))], "app", 10)
    assert client.stages["app/10/1"] == {"x": [b"1"], "a": [b"2"], "y": [b"3"]}
    assert {"x", "y"} <= client.created.keys()
    assert "a" not in client.created
    kept = settings(resource="kept", createResource="true", createDurability="os", createRetainFor="etl")
    write(kept, [frame(("a", b"1"))], "app", 9)
    assert client.created["kept"] == {"durability": "os", "retention": Retention(groups=("etl",))}


def test_the_resources_of_a_task_are_limited(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_OPEN_RESOURCES_PER_TASK", 2)
    rows = frame(("a", b"1"), ("b", b"2"), ("c", b"3"))
    with pytest.raises(OptionError, match="more than 2 resources; repartition"):
        write(settings(createResource="true"), [rows], "app", 7)

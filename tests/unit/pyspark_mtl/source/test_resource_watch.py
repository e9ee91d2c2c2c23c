from __future__ import annotations

import pytest

from mtl.errors import Refused
from pyspark_mtl.source.offsets import Position
from pyspark_mtl.source.resource_watch import ResourceWatch
from tests.support.fake_client import FakeClient, FakeLog

WAIT_S = 0.25
END = {"a": Position("i1", 6)}

AFTER = {"a": 6}
"""END as a watch tells it."""


@pytest.fixture
def watch(client: FakeClient) -> ResourceWatch:
    """ResourceWatch of the resource `a`, which was described once and has five contents."""
    client.logs.update(a=FakeLog([b""] * 5))
    watch = ResourceWatch(lambda: client, ["a"], None)  # type: ignore[arg-type, return-value]
    assert watch.find({}, WAIT_S)["a"].next == 6
    return watch


def test_further_triggers_without_news_send_no_requests(watch: ResourceWatch, client: FakeClient) -> None:
    assert watch.find(END, WAIT_S)["a"].earliest == 1
    client.logs["a"].earliest = 3  # this change is not reported
    assert [watch.find(END, WAIT_S)["a"].earliest for _ in range(3)] == [1, 1, 1]
    assert client.watches == [AFTER]


def test_after_news_the_next_long_poll_has_the_new_position(watch: ResourceWatch, client: FakeClient) -> None:
    watch.find(END, WAIT_S)
    client.logs["a"].bodies.append(b"")
    assert watch.find(END, WAIT_S)["a"].next == 7
    assert watch.find({"a": Position("i1", 7)}, WAIT_S)["a"].next == 7
    assert client.watches == [AFTER, {"a": 7}]


def test_after_an_interruption_the_broker_is_asked_for_news(watch: ResourceWatch, client: FakeClient) -> None:
    watch.find(END, WAIT_S)
    client.away = True  # the broker restarted and has no pending long poll yet
    client.logs["a"].bodies.append(b"")
    assert watch.find(END, WAIT_S)["a"].next == 7


def test_an_answer_without_news_updates_the_description(watch: ResourceWatch, client: FakeClient) -> None:
    watch.find(END, WAIT_S)
    client.logs["a"].earliest, client.time_is_up = 3, True
    assert watch.find(END, WAIT_S)["a"].earliest == 3
    client.time_is_up = False
    assert watch.find(END, WAIT_S)["a"].earliest == 3
    assert client.watches == [AFTER] * 3


def test_contents_left_by_a_limited_batch_are_found_at_once(watch: ResourceWatch, client: FakeClient) -> None:
    assert watch.find({"a": Position("i1", 3)}, WAIT_S)["a"].next == 6
    assert watch.find({"a": Position("i1", 5)}, WAIT_S)["a"].next == 6
    assert client.watches == []


def test_a_deletion_is_reported_and_the_resource_awaited(watch: ResourceWatch, client: FakeClient) -> None:
    watch.find(END, WAIT_S)
    del client.logs["a"]
    assert [watch.find(END, WAIT_S) for _ in range(2)] == [{}, {}]
    assert client.watches[0] == AFTER
    client.logs["a"] = FakeLog([b""], incarnation="i2")
    assert watch.find(END, WAIT_S)["a"].incarnation == "i2"


@pytest.mark.parametrize("names", [["a"], None])
@pytest.mark.parametrize(
    "again", [None, FakeLog([b""], incarnation="i2"), FakeLog([b""] * 5, incarnation="i2")]
)
def test_a_deletion_just_before_the_long_poll_is_found(
    client: FakeClient, again: FakeLog | None, names: list[str] | None
) -> None:
    """There are no later events, so only a long poll with the known state is answered before its end."""
    client.logs.update(a=FakeLog([b""] * 5))
    watch = ResourceWatch(lambda: client, names, "a" if names is None else None)  # type: ignore[arg-type, return-value]

    def delete() -> None:
        client.between = lambda: None
        del client.logs["a"]
        if again is not None:
            client.logs["a"] = again

    client.between = delete
    assert not watch.is_silent(WAIT_S)
    assert {name: description.incarnation for name, description in watch.find(END, WAIT_S).items()} == (
        {} if again is None else {"a": "i2"}
    )


def test_a_recreated_resource_is_found_without_a_long_poll(watch: ResourceWatch, client: FakeClient) -> None:
    client.logs["a"] = FakeLog([b""], incarnation="i2")
    assert watch.find(END, WAIT_S)["a"].incarnation == "i2"
    assert client.watches == []


def test_find_without_known_positions_describes_once(watch: ResourceWatch, client: FakeClient) -> None:
    client.logs["a"].bodies.append(b"")
    assert watch.find(None, WAIT_S)["a"].next == 7
    assert client.watches == []


def test_a_trigger_without_wait_leaves_a_long_poll_pending(watch: ResourceWatch, client: FakeClient) -> None:
    assert watch.find(END, 0.0)["a"].next == 6
    assert client.watches == [AFTER]
    client.logs["a"].bodies.append(b"")
    assert watch.find(END, 0.0)["a"].next == 7


def test_is_silent_holds_while_a_long_poll_is_pending(watch: ResourceWatch, client: FakeClient) -> None:
    assert not watch.is_silent(0.0)  # no long poll is pending
    watch.find(END, WAIT_S)
    assert watch.is_silent(0.0)
    client.away = True
    assert not watch.is_silent(0.0)
    client.away = False
    client.logs["a"].bodies.append(b"")
    assert not watch.is_silent(0.0)


def test_other_refusals_are_errors(
    watch: ResourceWatch, client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise Refused(403, "not-permitted", "no")

    monkeypatch.setattr(client, "describe", denied)
    with pytest.raises(Refused, match="no"):
        watch.find(END, WAIT_S)


# --- logs that the broker cannot open -----------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_mtl.source.resource_watch.STOPPED_RETRY_S", 0.0)


@pytest.mark.usefixtures("hasty")
def test_a_resource_with_unknown_end_is_described_again(watch: ResourceWatch, client: FakeClient) -> None:
    client.shut = 3
    assert watch.find(None, 0.0)["a"].next == 6
    assert client.shut == 0
    watch.find(END, WAIT_S)
    client.logs["a"].bodies.append(b"")
    client.shut = 2
    assert watch.find(END, WAIT_S)["a"].next == 7


@pytest.mark.usefixtures("hasty")
def test_a_resource_whose_end_stays_unknown_is_a_storage_error(
    watch: ResourceWatch, client: FakeClient
) -> None:
    client.settings.retry_deadline = 0.01
    client.shut = 1_000_000
    with pytest.raises(Refused, match=r"503 storage.*'a' is stopped: no space left"):
        watch.find(None, 0.0)


# --- the query's own dead letters ---------------------------------------------------------------------------


def test_an_excluded_resource_is_not_found_and_its_contents_are_no_news(client: FakeClient) -> None:
    client.logs.update(a=FakeLog([b""] * 5), dead=FakeLog([b""]))
    watch = ResourceWatch(lambda: client, None, ".*", "dead")  # type: ignore[arg-type, return-value]
    assert list(watch.find({}, WAIT_S)) == ["a"]
    assert list(watch.find(END, WAIT_S)) == ["a"]
    client.logs["dead"].bodies.append(b"")
    assert list(watch.find(END, WAIT_S)) == ["a"]
    assert list(watch.find(END, WAIT_S)) == ["a"]
    assert client.watches == [{"a": 6, "dead": 2}, {"a": 6, "dead": 3}]
    assert watch.is_silent(WAIT_S)
    client.logs["a"].bodies.append(b"")
    assert {name: found.next for name, found in watch.find(END, WAIT_S).items()} == {"a": 7}


def test_an_excluded_resource_that_was_read_before_is_not_missing(client: FakeClient) -> None:
    client.logs.update(a=FakeLog([b""] * 5))
    watch = ResourceWatch(lambda: client, None, ".*", "dead")  # type: ignore[arg-type, return-value]
    known = END | {"dead": Position("i0", 3)}
    for _ in range(3):
        assert list(watch.find(known, WAIT_S)) == ["a"]
    assert client.watches == [AFTER], "no request for each trigger"

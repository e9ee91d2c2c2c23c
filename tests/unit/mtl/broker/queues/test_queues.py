"""Queues and their records: recovery, the time of writes, and the end of a queue (PROTOCOL.md 6.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.queues import limits as queue_limits
from mtl.errors import Refused
from mtl.storage.api import OpenLog, Save
from mtl.storage.records import AnyRecord, QueueRecord
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.faulty_store import refuse
from tests.support.texts import in_order
from tests.unit.mtl.broker.queues.test_consumers import bodies, consumer, deliveries_of, position, window


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.client("queue")
    client.create("a")
    return client


def records(rig: Rig) -> list[QueueRecord]:
    return [x for x in rig.store.load().records if isinstance(x, QueueRecord)]


# --- crashes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
def test_saved_settlements_survive_a_crash(rig: Rig, client: Client, power: bool) -> None:
    client.fill("a", bodies(8))
    flow = consumer(client, "a")
    flow.contents()
    flow.confirm(2)
    flow.confirm(4, multiple=False)
    flow.reject(6, recycle=True)
    rig.sleep(0.1)
    rig.crash(power=power)
    flow = consumer(rig.client("queue"), "a")
    assert deliveries_of(flow.contents()) == [(n, "a", at, True) for n, at in enumerate((3, 5, 6, 7, 8), 1)]
    queue = rig.broker.parts.queues.of(rig.broker.parts.resources.need("/", "a"))["default"]
    flow.reject(3, recycle=True)
    assert queue.state.deliveries() == {6: 2}


def test_a_content_with_an_unsaved_confirm_is_redelivered_marked(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(3))
    flow = consumer(client, "a")
    flow.contents()
    flow.confirm(3)
    rig.kill()
    flow = consumer(rig.client("queue"), "a")
    assert deliveries_of(flow.contents()) == [(1, "a", 1, True), (2, "a", 2, True), (3, "a", 3, True)]


def test_the_delivery_limit_is_durable_before_contents_are_sent(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(queue_limits.QUEUE_AHEAD + 5))
    flow = consumer(client, "a", window=control.Window(contents=2 * queue_limits.QUEUE_AHEAD))
    assert len(flow.contents()) == queue_limits.QUEUE_AHEAD + 5
    assert records(rig)[0].ahead > queue_limits.QUEUE_AHEAD + 5
    flow.confirm(queue_limits.QUEUE_AHEAD + 5)
    rig.hold(Save)
    client.fill("a", bodies(queue_limits.QUEUE_AHEAD))
    sent = len(flow.contents())
    assert sent < queue_limits.QUEUE_AHEAD
    rig.kill()
    places = [
        x for x in deliveries_of(consumer(rig.client("queue"), "a", window=window(9_999)).contents()) if x[3]
    ]
    assert len(places) >= queue_limits.QUEUE_AHEAD + 5 + sent, "everything that was delivered is marked"


def test_the_delivery_limit_is_raised_only_for_new_contents(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_limits, "QUEUE_AHEAD", 1)
    rig.restart()
    client = rig.client("queue")
    flow = consumer(client, "a")
    for number in (1, 2):
        client.fill("a", bodies(1, number))
        assert flow.bodies() == bodies(1, number)
        assert records(rig)[0].ahead == number + 1


def test_after_a_clean_stop_only_delivered_contents_are_marked(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(4))
    flow = consumer(client, "a", window=window(2))
    flow.contents()
    flow.confirm(1)
    rig.restart()
    flow = consumer(rig.client("queue"), "a")
    assert deliveries_of(flow.contents()) == [(1, "a", 2, True), (2, "a", 3, True), (3, "a", 4, False)]


def test_after_a_clean_stop_without_new_settlements_only_delivered_contents_are_marked(
    rig: Rig, client: Client
) -> None:
    client.fill("a", bodies(2))
    flow = consumer(client, "a", window=window(1))
    flow.contents()
    rig.sleep(0.2)
    rig.restart()
    flow = consumer(rig.client("queue"), "a")
    assert deliveries_of(flow.contents()) == [(1, "a", 1, True), (2, "a", 2, False)]


def test_a_broker_that_stops_before_the_log_is_open_leaves_the_record(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(2))
    flow = consumer(client, "a")
    flow.contents()
    flow.confirm(1)
    rig.sleep(0.2)
    rig.kill()
    rig.stop()
    before = records(rig)
    assert before[0].ahead > before[0].low
    rig.start(OpenLog)
    rig.broker.close(rig.now())
    rig.run()
    assert records(rig) == before


def test_a_stopping_broker_delivers_no_new_contents(rig: Rig, client: Client) -> None:
    """The delivery limit is saved at that time."""
    client.fill("a", bodies(queue_limits.QUEUE_AHEAD + 50))
    flow = consumer(client, "a", window=window(2))
    assert len(flow.contents()) == 2
    rig.hold(Save)
    flow.confirm(1)
    assert flow.numbers() == [3]
    rig.broker.close(rig.now())
    flow.confirm(3)
    assert flow.sent() == []
    rig.let_go()
    assert flow.sent() == []
    assert records(rig)[0].ahead == 4


def test_confirms_are_saved_in_batches(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(500))
    flow = consumer(client, "a")
    flow.contents()
    saves = rig.store.saves
    for number in range(1, 501):
        flow.confirm(number, multiple=False)
    rig.sleep(0.1)
    assert rig.store.saves - saves <= 2
    assert records(rig)[0].low == 501


def test_the_broker_is_not_idle_until_its_queues_are_written(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(1))
    flow = consumer(client, "a")
    flow.contents()
    idle = [rig.broker.idle]
    flow.confirm(1)
    idle.append(rig.broker.idle)
    rig.sleep(0.1)
    idle.append(rig.broker.idle)
    assert idle == [True, False, True]


def test_a_queue_that_was_just_written_is_not_written_again(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_limits, "QUEUE_AHEAD", 1)
    rig.restart()
    client = rig.client("queue")
    client.fill("a", bodies(1))
    flow = consumer(client, "a")
    flow.contents()
    flow.confirm(1)
    client.fill("a", bodies(1, 2))
    assert flow.bodies() == bodies(1, 2), "its delivery limit was raised"
    saves = rig.store.saves
    rig.sleep(0.2)
    assert rig.store.saves == saves


def test_a_failed_save_of_a_record_is_retried(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(2))
    flow = consumer(client, "a")
    flow.contents()

    def fail(at: str) -> None:
        raise refuse(full=False)

    rig.store.hook = fail
    flow.confirm(2)
    rig.sleep(0.5, 0.1)
    assert records(rig)[0].low == 1
    rig.store.hook = lambda _: None
    rig.sleep(0.2, 0.1)
    assert records(rig)[0].low == 3


# --- bounds -------------------------------------------------------------------------------------------------


def test_a_queue_at_the_limit_of_ranges_waits_for_its_oldest_content(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_limits, "QUEUE_RANGES", 5)
    client.fill("a", bodies(60))
    flow, other = consumer(client, "a", window=window(20)), consumer(client, "a", window=window(1_000))
    assert len(other.numbers()) == 60 - 20
    assert flow.numbers() == list(range(1, 21))
    for number in range(2, 21, 2):
        flow.confirm(number, multiple=False)
    client.fill("a", bodies(5, 61))
    assert flow.sent() == other.sent() == []
    flow.confirm(20)
    other.confirm(40)
    assert len(flow.numbers() + other.numbers()) == 5
    assert position(client).position == 61


def test_queues_are_limited(rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_QUEUES", 1)
    consumer(client, "a")
    refused = client.refused(control.ConnectionReader(resources=["a"], group="other"))
    assert (refused.status, refused.reason) == (503, control.OVERLOADED)
    assert (
        client.flow(
            client.ask(control.ConnectionReader(resources=[], group="other"), control.DataLease)
        ).summon("a")
        == 400
    )


# --- retention ----------------------------------------------------------------------------------------------


def test_retention_keeps_unsettled_contents_of_its_named_queues(rig: Rig) -> None:
    rig.settings["segment_bytes"] = 1_200
    rig.restart()
    client = rig.client("queue")
    client.create("a", retention=control.Retention(contents=2, groups=("default",)))
    client.create("free", retention=control.Retention(contents=2))
    for name in ("a", "free"):
        flow = consumer(client, name, window=window(2))
        client.fill(name, [bytes(1_000)] * 9)
        flow.contents()
    rig.sleep(10)
    assert client.describe("a").earliest == 1
    assert client.describe("free").earliest > 2
    rest = consumer(client, "a", window=window(100))
    assert len(rest.contents()) >= 7
    rest.confirm(99)
    rest.confirm(7)
    flow = consumer(client, "free", window=window(100))
    found = [x[2] for x in deliveries_of(flow.contents())]
    assert found == sorted(found)
    assert found[0] == client.describe("free").earliest
    assert position(client, "free").position == found[0]


# --- Describe, Delete ---------------------------------------------------------------------------------------


def test_describe_counts_contents_per_state(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(10))
    flow = consumer(client, "a", window=window(6))
    flow.contents()
    flow.confirm(1)
    flow.reject(2, recycle=True)
    info = position(client)
    assert (info.group, info.resource, info.dead_letter, info.max_deliveries) == (
        "default", "a", "a.dead", queue_limits.QUEUE_DELIVERIES,
    )  # fmt: skip
    assert (info.position, info.next, info.unsettled) == (2, 11, 9)
    assert (info.ready, info.delivered, info.delayed, info.dead, info.consumers) == (2, 6, 1, 0, 1)
    assert client.ask(control.QueueDescribe(group="none"), control.QueueList).queues == []


def test_a_queue_without_consumers_can_be_deleted(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(2))
    lease = client.reader("a", start=None)
    flow = client.flow(lease)
    flow.summon("a")
    flow.confirm(2)
    refused = client.refused(control.QueueDelete(group="default", resource="a"))
    assert (refused.status, refused.reason) == (409, control.IN_USE)
    client.close_lease(lease)
    client.ask(control.QueueDelete(group="default", resource="a"), control.Ok)
    assert records(rig) == []
    assert client.refused(control.QueueDelete(group="default", resource="a")).reason == control.UNKNOWN_QUEUE
    assert deliveries_of(consumer(client, "a").contents()) == [(1, "a", 1, False), (2, "a", 2, False)]


def test_a_deleted_queue_is_not_written_again(rig: Rig, client: Client) -> None:
    """A consumer that dismissed it may still settle its contents."""
    client.fill("a", bodies(2))
    flow = consumer(client, "a")
    flow.contents()
    flow.dismiss("a")
    client.ask(control.QueueDelete(group="default", resource="a"), control.Ok)
    flow.confirm(2)
    rig.sleep(0.2)
    assert records(rig) == []
    rig.restart()
    assert deliveries_of(consumer(rig.client("queue"), "a").contents()) == [
        (1, "a", 1, False),
        (2, "a", 2, False),
    ]


def test_a_queue_that_is_being_deleted_cannot_be_summoned(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(2))
    flow = consumer(client, "a", window=window(1))
    assert flow.numbers() == [1]
    flow.dismiss("a")
    rig.hold(Save)
    deletion = client.begin(control.QueueDelete(group="default", resource="a"))
    assert flow.summon("a") == 400
    rig.let_go()
    deletion.reply(control.Ok)
    assert flow.summon("a") == 200
    flow.confirm(1)
    assert deliveries_of(flow.contents()) == [(2, "a", 1, False)]


def test_a_queue_whose_delete_fails_remains(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(2))
    client.close_lease(client.reader("a", start=None))

    def fail(at: str) -> None:
        raise refuse(full=False)

    rig.store.hook = fail
    delete = control.QueueDelete(group="default", resource="a")
    assert client.refused_in_time(delete).reason == control.STORAGE
    assert client.refused(delete).reason == control.OVERLOADED
    assert client.refused(control.ConnectionReader(resources=["a"])).reason == control.OVERLOADED, (
        "not certain to be there"
    )
    rig.store.hook = lambda _: None
    rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    assert position(client).unsettled == 2
    client.close_lease(client.reader("a", start=None))


def test_settlements_during_a_delete_that_fails_are_saved(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(2))
    flow = consumer(client, "a")
    flow.contents()
    flow.dismiss("a")

    def fail(at: str) -> None:
        raise refuse(full=False)

    rig.store.hook = fail
    deletion = client.begin(control.QueueDelete(group="default", resource="a"))
    flow.confirm(2)
    rig.sleep(0.2)
    assert not deletion.answered
    rig.store.hook = lambda _: None
    rig.sleep(2 * broker_limits.SAVE_RETRY_S)
    with pytest.raises(Refused):
        deletion.reply(control.Ok)
    rig.sleep(queue_limits.QUEUE_TICK_S)
    assert records(rig)[0].low == 3


def test_a_deleted_queue_leaves_room_for_another_one_and_keeps_others(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_limits, "MAX_QUEUES", 2)
    for group in ("one", "two"):
        client.close_lease(client.reader("a", start=None, group=group))
    client.ask(control.QueueDelete(group="one", resource="a"), control.Ok)
    client.close_lease(client.reader("a", start=None, group="three"))
    assert [q.group for q in client.ask(control.QueueDescribe(), control.QueueList).queues] == [
        "three",
        "two",
    ]
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    assert not rig.broker.parts.queues.has_queues
    assert not rig.broker.parts.queues._of, "nor is anything kept of its resource"


def test_a_queue_that_did_not_change_is_not_written_when_the_broker_stops(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.fill("a", bodies(1))
    consumer(client, "a").confirm(1)
    rig.restart()
    saved: list[AnyRecord] = []
    save = rig.store.save

    def watched(put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        saved.extend(put)
        save(put, forget)

    monkeypatch.setattr(rig.store, "save", watched)
    rig.restart()
    assert not [x for x in saved if isinstance(x, QueueRecord)]


def test_a_queue_is_deleted_with_its_resource(rig: Rig, client: Client) -> None:
    client.create("b")
    client.fill("a", bodies(2))
    client.fill("b", bodies(1))
    flow = consumer(client, summon=["a", "b"])
    assert len(flow.contents()) == 3
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    assert {x.resource for x in records(rig)} == {"b"}
    client.create("a")
    client.fill("a", bodies(2, 7))
    assert flow.sent() == []
    flow.confirm(3)
    assert flow.dismiss("a") == 200
    assert flow.summon("a") == 200
    assert deliveries_of(flow.contents()) == [(4, "a", 1, False), (5, "a", 2, False)]


def test_consumers_of_a_queue_that_is_being_deleted_get_no_further_contents(rig: Rig, client: Client) -> None:
    """Leases that do not name the resource go on."""
    client.fill("a", bodies(2))
    flow = consumer(client, summon=["a"], window=window(1))
    assert flow.numbers() == [1]
    rig.hold(Save)
    client.begin(control.ResourceDelete(resource="a"))
    flow.confirm(1)
    assert flow.sent() == []
    rig.let_go()
    assert flow.sent() == []


def test_contents_settled_for_a_consumer_of_a_queue_that_is_being_deleted_are_not_sent(
    rig: Rig, client: Client
) -> None:
    flow = consumer(client, summon=["a"], confirm="none")
    client.fill("a", bodies(1))
    assert flow.bodies() == bodies(1)
    rig.hold(Save)
    client.fill("a", bodies(1, 2))
    deletion = client.begin(control.ResourceDelete(resource="a"))
    rig.let_go()
    deletion.reply(control.Ok)
    assert flow.sent() == []


def test_a_queue_of_another_incarnation_starts_from_the_beginning(rig: Rig, client: Client) -> None:
    client.create("fast")
    client.fill("fast", bodies(2))
    flow = consumer(client, "fast")
    flow.contents()
    flow.confirm(2)
    rig.sleep(0.2)
    assert {x.resource for x in records(rig)} == {"fast"}
    rig.reincarnate("fast")
    assert records(rig) == []
    assert [x[2] for x in deliveries_of(consumer(rig.client("queue"), "fast").contents())] == [1, 2]


# --- epochs (PROTOCOL.md 5.1.1) -----------------------------------------------------------------------------


def test_settlements_of_another_copy_of_the_log_are_discarded(
    rig: Rig, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.fill("a", bodies(3))
    logs = rig.disk.copy()
    client.fill("a", bodies(5))
    flow = consumer(client, "a")
    flow.contents()
    flow.confirm(2)
    flow.confirm(5, multiple=False)
    flow.reject(6, recycle=True)
    rig.stop()
    rig.disk.put_back(logs)
    rig.start()
    assert re.search(in_order("other contents", "'default'", 4), caplog.text)
    client = rig.client("queue")
    client.fill("a", bodies(5))
    flow = consumer(client, "a")
    assert [(at, again) for _, _, at, again in deliveries_of(flow.contents())] == [
        (3, True),
        *((n, False) for n in range(4, 9)),
    ]
    rig.sleep(0.1)
    caplog.clear()
    rig.restart()
    assert not caplog.text

"""Connection.Reader in the `queue` profile (PROTOCOL.md 6.1)."""

from __future__ import annotations

from collections import deque

import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.queues import limits as queue_limits
from mtl.errors import DataLoss, Refused, StorageFailed
from mtl.storage.api import Read, Save
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.faulty_store import refuse
from tests.support.logs import files
from tests.unit.mtl.broker.queues.test_consumers import bodies, consumer, deliveries_of


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.client("queue")
    client.create("a", "b")
    return client


@pytest.mark.requirement("MTL-48")
def test_the_202_has_group_window_and_incarnations(client: Client) -> None:
    lease = client.ask(
        control.ConnectionReader(
            resources=["a", "b"], confirm="full", group="g", packed=True, window=control.Window(contents=7)
        ),
        control.DataLease,
    )
    assert (lease.group, lease.packed, lease.from_) == ("g", False, None)
    assert lease.window == control.Window(contents=7, bytes=broker_limits.WINDOW_OCTETS)
    assert set(lease.incarnations or {}) == {"a", "b"}
    plain = client.ask(control.ConnectionReader(resources=["a"]), control.DataLease)
    assert (plain.group, plain.window) == (queue_limits.DEFAULT_QUEUE, None)
    huge = client.ask(
        control.ConnectionReader(resources=["a"], confirm="full", window=control.Window(contents=1 << 40)),
        control.DataLease,
    )
    assert huge.window is not None
    assert huge.window.contents == queue_limits.MAX_QUEUE_WINDOW_CONTENTS


@pytest.mark.requirement("MTL-49")
def test_refusals(client: Client) -> None:
    assert client.refused(control.ConnectionReader(resources=["a"], confirm="half")).status == 501
    assert client.refused(control.ConnectionReader(resources=["a", "none"])).status == 404
    assert client.refused(control.ConnectionReader(resources=["a"], from_="group")).status == 400
    assert (
        client.refused(control.ConnectionReader(resources=["a"], incarnation="other")).reason
        == control.INCARNATION
    )
    with pytest.raises(DataLoss):
        client.ask(control.ConnectionReader(resources=["a"], from_=5), control.DataLease)


def test_from_applies_to_a_new_queue_and_is_ignored_by_an_existing_one(client: Client) -> None:
    client.fill("a", bodies(5))
    assert [x[2] for x in deliveries_of(consumer(client, "a").contents())] == [1, 2, 3, 4, 5]
    third = consumer(client, "a", group="third", from_=3)
    assert [x[2] for x in deliveries_of(third.contents())] == [3, 4, 5]
    third.confirm(3)
    again = consumer(client, "a", group="third", from_=1)
    assert again.sent() == []


def test_a_queue_that_starts_at_the_end_is_durable_before_the_202(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(3))
    rig.hold(Save)
    waiting = client.begin(control.ConnectionReader(resources=["a", "b"], confirm="full", from_="latest"))
    assert not waiting.answered
    rig.let_go()
    assert waiting.reply(control.DataLease).group == queue_limits.DEFAULT_QUEUE
    client.fill("a", bodies(2, 4))
    rig.kill()
    flow = consumer(rig.client("queue"), "a")
    assert [x[2] for x in deliveries_of(flow.contents())] == [4, 5]


@pytest.mark.parametrize("order", [(Save, Read), (Read, Save)])
@pytest.mark.parametrize("readable", [True, False])
def test_the_202_waits_for_new_queues_and_for_reads_that_failed_before(
    rig: Rig, client: Client, order: tuple[type, ...], readable: bool
) -> None:
    client.fill("a", bodies(1))
    consumer(client, "a")
    rig.restart()
    rig.broker.parts.resources.need("/", "a").add_unread(1, 2, StorageFailed("Input/output error"))
    if not readable:
        rig.disk.fail("read", count=100, when=lambda path: path.endswith(".segment"))
    rig.hold(Save, Read)
    waiting = rig.client("queue").begin(control.ConnectionReader(resources=["a", "b"], confirm="full"))
    rig.held = deque(sorted(rig.held, key=lambda action: order.index(type(action))))
    assert [type(action) for action in rig.held] == list(order)
    rig.let_go(1)
    assert not waiting.answered
    rig.let_go()
    if readable:
        assert waiting.reply(control.DataLease).group == queue_limits.DEFAULT_QUEUE
    else:
        with pytest.raises(Refused, match="resource 'a' cannot be read from 1"):
            waiting.reply(control.DataLease)


def test_a_queue_whose_record_cannot_be_saved_is_refused(rig: Rig, client: Client) -> None:
    def fail(at: str) -> None:
        raise refuse(full=True)

    rig.store.hook = fail
    assert client.refused(control.ConnectionReader(resources=["a", "b"])).reason == control.STORAGE
    rig.store.hook = lambda _: None
    client.fill("a", bodies(1))
    assert len(consumer(client, "a", "b").contents()) == 1


def test_a_consumer_of_a_stopped_resource_is_refused_although_its_queue_exists(
    rig: Rig, client: Client
) -> None:
    client.fill("a", bodies(2))
    consumer(client, "a")
    directory = f"/data/{rig.broker.parts.resources.need('/', 'a').intake.key}"
    rig.stop()
    rig.disk.flip(f"{directory}/{files(rig.disk, directory)[-1]}", 64 + 70)
    rig.start()
    refused = rig.client("queue").refused(control.ConnectionReader(resources=["a"], confirm="full"))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert "damaged" in refused.message


def test_delete_of_the_resource_while_its_queue_is_saved_refuses_the_lease(rig: Rig, client: Client) -> None:
    rig.hold(Save)
    waiting = client.begin(control.ConnectionReader(resources=["a"]))
    client.begin(control.ResourceDelete(resource="a"))
    rig.let_go()
    assert client.refused(control.ConnectionReader(resources=["a"])).status == 404
    with pytest.raises(Refused):
        waiting.reply(control.DataLease)

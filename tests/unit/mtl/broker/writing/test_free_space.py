from __future__ import annotations

import pytest

from mtl.broker.writing.free_space import LOW_WATERMARK, FreeSpace
from mtl.errors import Refused
from mtl.storage.api import Save
from mtl.wire import control
from tests.support.core import Client, Rig

GIB = 1 << 30


@pytest.fixture
def rig() -> Rig:
    return Rig(low_watermark=1_000)


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.client()
    client.create("a")
    return client


def test_space_is_low_below_the_watermark_until_a_quarter_more_is_free() -> None:
    space = FreeSpace(1_000)
    observed = []
    for free in (1_001, 1_000, 999, 1_000, 1_249, 1_250, 1_000, 999):
        space.measured(free, 10_000)
        observed.append(space.is_low)
    assert observed == [False, False, True, True, True, False, False, True]
    with pytest.raises(Refused) as caught:
        space.check()
    assert (caught.value.status, caught.value.reason) == (503, control.READ_ONLY)
    assert caught.value.members == {"free": 999, "watermark": 1_000}


@pytest.mark.parametrize(("total", "mark"), [(100 * GIB, LOW_WATERMARK), (2 * GIB, GIB // 10)])
def test_the_default_watermark_is_a_gibibyte_or_a_part_of_a_small_disk(total: int, mark: int) -> None:
    space = FreeSpace(0)
    space.measured(mark, total)
    assert not space.is_low
    space.measured(mark - total // 1_000, total)
    assert space.is_low


def test_low_space_refuses_writers_with_the_cause_and_serves_others(rig: Rig, client: Client) -> None:
    client.fill("a", [b"before"])
    stage = client.staged("app", 1, "a", [b"staged before"])
    lease = client.writer("a", writer="w")
    flow = client.flow(lease)
    rig.broker.room(999, 10_000, rig.now())
    rig.run()
    assert rig.broker.parts.leases.find(lease.lease) is None, "its client asks again, and gets the refusal"
    for request in (
        control.ConnectionWriter(resources=["a"]),
        control.ConnectionWriter(resources=["a"], confirm="full", writer="w"),
        control.ConnectionWriter(
            resources=["a"], confirm="full", stage=control.StageSpec(application="app", version=2)
        ),
    ):
        refused = client.refused(request)
        assert (refused.status, refused.reason) == (503, control.READ_ONLY)
        assert "low-watermark" in refused.message
    flow.content(1, b"too late")
    client.commit("app", 1, stage)
    client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    client.create("b")
    assert client.read("a") == [b"before", b"staged before"]
    rig.broker.room(1_250, 10_000, rig.now())
    client.fill("a", [b"after"])
    assert client.read("a") == [b"before", b"staged before", b"after"]


def test_a_writer_lease_granted_during_low_space_ends_at_the_next_check(rig: Rig, client: Client) -> None:
    rig.hold(Save)
    waiting = client.begin(control.ConnectionWriter(resources=["a"], confirm="full", writer="w"))
    rig.broker.room(999, 10_000, rig.now())
    rig.let_go()
    lease = waiting.reply(control.DataLease)
    rig.broker.room(999, 10_000, rig.now())
    assert rig.broker.parts.leases.find(lease.lease) is None


def test_low_space_does_not_affect_the_test_profile(rig: Rig) -> None:
    client = rig.client("test")
    lease = client.ask(control.ConnectionWriter(resources=["resource"]), control.DataLease)
    rig.broker.room(999, 10_000, rig.now())
    assert rig.broker.parts.leases.find(lease.lease) is not None
    client.ask(control.ConnectionWriter(resources=["resource"]), control.DataLease)


def test_low_space_delays_dead_letters(rig: Rig, client: Client) -> None:
    client.fill("a", [b"x"])
    consumer = rig.client("queue")
    flow = consumer.flow(
        consumer.ask(control.ConnectionReader(resources=["a"], confirm="full"), control.DataLease)
    )
    assert flow.summon("a") == 200
    rig.broker.room(999, 10_000, rig.now())
    flow.reject(1)
    rig.sleep(2)
    client.ask(control.ResourceDescribe(resource="a.dead"), control.DescriptionList)
    assert client.describe("a.dead").next == 1
    rig.broker.room(2_000, 10_000, rig.now())
    rig.sleep(2)
    assert client.describe("a.dead").next == 2

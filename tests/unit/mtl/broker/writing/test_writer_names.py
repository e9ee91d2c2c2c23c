"""Writer names alone: their ids and their expiry. Fencing is in test_granting_writers."""

from __future__ import annotations

import pytest

from mtl.broker import limits as broker_limits
from mtl.storage.records import WriterRecord
from mtl.wire import commands, control
from tests.support.core import Client, Rig
from tests.support.faulty_store import FaultyStore, refuse

DAY_S = broker_limits.WRITER_NAME_IDLE_S


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


def saved(rig: Rig) -> dict[str, int]:
    return {r.name: r.id for r in rig.store.load().records if isinstance(r, WriterRecord)}


def write(client: Client, name: str, number: int = 1) -> None:
    lease = client.writer("a", writer=name)
    flow = client.flow(lease)
    flow.content(number, b"x")
    assert flow.sent() == [commands.Confirm(number, True)]
    client.close_lease(lease)


def pass_time(rig: Rig, seconds: float) -> None:
    rig.sleep(seconds, step=broker_limits.NAMES_CHECK_S)


def test_ids_are_distinct_and_outside_the_range_of_stages(rig: Rig, client: Client) -> None:
    for number in range(50):
        client.writer("a", writer=f"w{number}")
    ids = set(saved(rig).values())
    assert len(ids) == 50
    assert all(0 < x < 1 << 63 for x in ids)


def test_an_unused_name_expires_with_its_numbers(rig: Rig, client: Client) -> None:
    write(client, "w")
    pass_time(rig, DAY_S + 2 * broker_limits.NAMES_CHECK_S)
    assert saved(rig) == {}
    client = rig.client()
    lease = client.writer("a", writer="w")
    assert (lease.last, lease.epoch) == ({"a": 0}, 1)


def test_the_id_of_an_expired_name_is_not_used_again(rig: Rig, client: Client) -> None:
    """The chunks of the log keep the numbers of the old id: a writer with the same id would lose contents."""
    write(client, "w")
    (former,) = saved(rig).values()
    pass_time(rig, DAY_S + 2 * broker_limits.NAMES_CHECK_S)
    rig.crash()
    client = rig.client()
    write(client, "another")
    (later,) = saved(rig).values()
    assert later != former
    assert client.read("a") == [b"x", b"x"]


def test_the_writer_table_of_a_log_omits_expired_names(rig: Rig, client: Client) -> None:
    write(client, "w")
    found = rig.broker.parts.resources.find("/", "a")
    assert found is not None
    (number,) = saved(rig).values()
    writer = rig.storage._writers[found.intake.key]
    assert number in writer.last_numbers
    pass_time(rig, DAY_S + 2 * broker_limits.NAMES_CHECK_S)
    assert number not in writer.last_numbers
    assert not found.intake.numbers.durable(number)
    assert not found.intake.held


def test_a_name_in_use_does_not_expire(rig: Rig, client: Client) -> None:
    flow = client.flow(client.writer("a", writer="w"))
    for number in range(1, 4):
        for _ in range(int(DAY_S // 4)):
            rig.mono += 4
            flow.send(commands.Pong())
        rig.tick()
        flow.content(number, b"x")
    assert list(saved(rig)) == ["w"]


def test_a_restart_counts_as_use(rig: Rig, client: Client) -> None:
    """The record has the time when the name was opened; the writer may have lived for days until the crash."""
    write(client, "w")
    pass_time(rig, DAY_S * 0.9)
    rig.restart()
    pass_time(rig, DAY_S * 0.9)
    assert list(saved(rig)) == ["w"]


def test_a_failed_expiry_of_a_name_is_retried(rig: Rig, client: Client) -> None:
    write(client, "w")

    def failing(when: str) -> None:
        raise refuse(full=False)

    rig.store.hook = failing
    pass_time(rig, DAY_S + 2 * broker_limits.NAMES_CHECK_S)
    rig.store.hook = FaultyStore().hook
    assert list(saved(rig)) == ["w"]
    pass_time(rig, 2 * broker_limits.NAMES_CHECK_S)
    assert saved(rig) == {}


def test_writer_names_are_limited(rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_WRITER_NAMES", 2)
    for name in ("one", "two", "one"):
        client.writer("a", writer=name)
    refused = client.refused(control.ConnectionWriter(resources=["a"], confirm="full", writer="three"))
    assert (refused.status, refused.reason) == (503, control.OVERLOADED)

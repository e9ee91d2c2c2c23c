"""Dead letters: durable in another resource before they are settled, exactly once in any crash (PROTOCOL.md 6.3)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mtl import limits
from mtl.errors import FieldError, Refused, StorageFailed
from mtl.storage.api import Append
from mtl.wire import control
from mtl.wire.fields import decode_table
from tests.support.core import Client, Crashed, Rig
from tests.support.faulty_disk import FaultyDisk
from tests.unit.mtl.broker.queues.test_consumers import bodies, consumer, position


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.client("queue")
    client.create("a")
    return client


def letters(rig: Rig, name: str = "a.dead") -> list[tuple[bytes, dict[str, Any]]]:
    client = rig.client()
    flow = client.flow(client.reader(name, window=control.Window(contents=1_000)))
    flow.summon(name)
    return [(bytes(x.body), decode_table(x.properties)) for x in flow.contents()]


@pytest.mark.requirement("MTL-94")
def test_a_dead_letter_has_the_reason_given_by_the_consumer(rig: Rig, client: Client) -> None:
    client.flow(client.writer("a")).content(1, b"one")
    flow = consumer(client, "a")
    assert flow.numbers() == [1]
    flow.reject(1, reason="no such customer")
    rig.sleep(1, 0.1)
    ((_, table),) = letters(rig)
    assert table["dead-letter-reason"] == "rejected: no such customer"


@pytest.mark.requirement("MTL-88", "MTL-94")
def test_a_dead_letter_has_the_origin_of_the_rejected_content(rig: Rig, client: Client) -> None:
    writer = client.flow(client.writer("a"))
    writer.content(1, b"one")
    writer.content(2, b"two", properties={"kind": "new", "dead-letter-reason": "mine"})
    flow = consumer(client, "a")
    assert flow.numbers() == [1, 2]
    flow.reject(2)
    flow.confirm(1)
    assert position(client).position == 2
    rig.sleep(1, 0.1)
    ((body, table),) = letters(rig)
    assert body == b"two"
    table.pop("mtl-timestamp")
    assert table == {
        "kind": "new",
        "dead-letter-resource": "a",
        "dead-letter-incarnation": client.describe("a").incarnation,
        "dead-letter-sequence": 2,
        "dead-letter-queue": "default",
        "dead-letter-reason": "rejected",
        "dead-letter-deliveries": 1,
    }
    assert (position(client).position, position(client).dead) == (3, 1)


def test_a_deleted_queue_writes_no_dead_letters(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(1))
    flow = consumer(client, "a")
    flow.reject(1)
    flow.dismiss("a")
    client.ask(control.QueueDelete(group="default", resource="a"), control.Ok)
    rig.sleep(1, 0.1)
    assert client.refused(control.ResourceDescribe(resource="a.dead")).reason == control.UNKNOWN_RESOURCE


@pytest.mark.requirement("MTL-96")
def test_limit_of_deliveries_and_dead_letter_resource_are_set_per_resource(rig: Rig) -> None:
    client = rig.client("queue")
    client.create("b", dead_letter="bounced", max_deliveries=2)
    client.fill("b", bodies(1))
    flow = consumer(client, "b")
    for _ in range(2):
        for content in flow.contents():
            flow.reject(content.sequence, recycle=True)
        rig.sleep(1, 0.1)
    assert flow.sent() == []
    ((body, table),) = letters(rig, "bounced")
    assert (body, table["dead-letter-reason"], table["dead-letter-deliveries"]) == (b"1", "deliveries", 2)
    found = client.describe("b")
    assert (found.dead_letter, found.max_deliveries) == ("bounced", 2)


@pytest.mark.parametrize(
    ("existing", "resource", "dead_letter", "path"),
    [
        ({"x": "y"}, "y", "x", "y -> x -> y"),
        ({"x": "y", "y": "z"}, "z", "x", "z -> x -> y -> z"),
        ({"x": None}, "x.dead", "x", "x.dead -> x -> x.dead"),
        ({}, "x.dead", "x", "x.dead -> x -> x.dead"),
        ({"x.dead": "y"}, "y", "x", "y -> x -> x.dead -> y"),
    ],
)
def test_dead_letters_that_would_come_back_are_refused(
    client: Client, existing: dict[str, str | None], resource: str, dead_letter: str, path: str
) -> None:
    for name, target in existing.items():
        client.create(name, dead_letter=target)
    with pytest.raises(Refused, match=f"without end: {path}; choose another"):
        client.create(resource, dead_letter=dead_letter)


def test_dead_letters_of_several_resources_may_go_to_one(client: Client) -> None:
    """Also where a default name is too long."""
    for name, target in {"x": "bad", "y": "bad", "bad": "worse", "z": "z.dead", "n" * 253: "bad"}.items():
        client.create(name, dead_letter=target)
    client.create("dead-letters", dead_letter="n" * 254)


def test_a_resource_is_not_its_own_dead_letter_and_long_names_have_one(rig: Rig, client: Client) -> None:
    with pytest.raises(FieldError, match="its own dead-letter"):
        control.ResourceCreate(resource="x", dead_letter="x")
    name = "n" * 253
    client.create(name)
    client.fill(name, bodies(1))
    flow = consumer(client, name)
    flow.reject(1)
    rig.sleep(1, 0.1)
    assert [x[0] for x in letters(rig, "dead-letters")] == [b"1"]


def test_dead_letters_may_be_consumed_and_rejected(rig: Rig, client: Client) -> None:
    client.fill("a", bodies(1))
    flow = consumer(client, "a")
    flow.reject(1)
    rig.sleep(1, 0.1)
    flow = consumer(client, "a.dead")
    flow.reject(1)
    rig.sleep(1, 0.1)
    ((_, table),) = letters(rig, "a.dead.dead")
    assert table["dead-letter-resource"] == "a.dead"


def test_properties_too_large_for_a_dead_letter_are_left_out(rig: Rig, client: Client) -> None:
    writer = client.flow(client.writer("a"))
    writer.content(1, b"x", properties={"big": "y" * (limits.MAX_TABLE - 30)})
    flow = consumer(client, "a")
    assert flow.numbers() == [1]
    flow.reject(1)
    rig.sleep(1, 0.1)
    ((body, table),) = letters(rig)
    assert (body, table["dead-letter-sequence"], "big" in table) == (b"x", 1, False)


def reject_with_held_appends(rig: Rig, client: Client) -> None:
    """Two rejected contents, whose dead letters are on their way to the disk."""
    client.create("a.dead")
    client.fill("a", bodies(2))
    flow = consumer(client, "a")
    flow.contents()
    rig.hold(Append)
    flow.reject(2, multiple=True)
    rig.sleep(1, 0.1)


def test_a_rejected_content_is_settled_after_its_dead_letter_is_durable(rig: Rig, client: Client) -> None:
    reject_with_held_appends(rig, client)
    assert position(client).unsettled == 2
    rig.kill()
    client = rig.client("queue")
    rig.sleep(1, 0.1)
    assert [x[0] for x in letters(rig)] == bodies(2)
    assert position(client).unsettled == 0
    assert consumer(client, "a").sent() == []


def test_a_dead_letter_on_its_way_to_the_disk_is_not_written_again(rig: Rig, client: Client) -> None:
    reject_with_held_appends(rig, client)
    rig.let_go()
    rig.sleep(1, 0.1)
    assert [body for body, _ in letters(rig)] == bodies(2)


def test_a_failed_write_of_a_dead_letter_is_retried(rig: Rig, client: Client) -> None:
    client.create("a.dead")
    client.fill("a", bodies(3))
    flow = consumer(client, "a")
    flow.contents()
    flow.reject(3, multiple=True)
    rig.disk.fail("write", count=2)
    rig.sleep(2, 0.1)
    assert [x[0] for x in letters(rig)] == bodies(3)
    assert position(client).unsettled == 0


def test_dead_letters_of_contents_removed_by_retention_are_dropped(rig: Rig) -> None:
    rig.settings["segment_bytes"] = 1_200
    rig.restart()
    client = rig.client("queue")
    client.create("a", retention=control.Retention(contents=2))
    client.create("a.dead")
    client.fill("a", [bytes(1_000)] * 9)
    flow = consumer(client, "a")
    flow.contents()
    rig.broker.parts.resources.need("/", "a.dead").intake.stop(StorageFailed("stopped for a test"))
    flow.reject(9, multiple=True)
    rig.sleep(10, 0.1)
    rig.broker.parts.resources.need("/", "a.dead").intake.resume()
    rig.sleep(2, 0.1)
    earliest = client.describe("a").earliest
    assert earliest > 2
    client.fill("a", bodies(1))
    rig.sleep(1, 0.1)
    assert [t["dead-letter-sequence"] for _, t in letters(rig)] == list(range(earliest, 10))


# --- crashes ------------------------------------------------------------------------------------------------


def scenario(rig: Rig) -> None:
    """Ten contents; every third is rejected, the others are confirmed."""
    client = rig.client("queue")
    client.create("a", exist_ok=True)
    if client.describe("a").next == 1:
        client.fill("a", bodies(10))
    flow = consumer(client, "a")
    for content in flow.contents():
        if int(bytes(content.body)) % 3 == 0:
            flow.reject(content.sequence)
        else:
            flow.confirm(content.sequence, multiple=False)
    rig.sleep(1, 0.1)


def check(rig: Rig) -> None:
    found = [int(body) for body, _ in letters(rig)]
    assert sorted(found) == [3, 6, 9], "each once"
    info = position(rig.client("queue"))
    assert (info.unsettled, info.position) == (0, 11)


def crashed_somewhere(arm: Callable[[Rig], None], *, power: bool, landed: bool) -> bool:
    """Run the scenario until the armed crash, then to its end; returns whether it crashed."""
    rig = Rig(FaultyDisk(random.Random(3)))
    client = rig.client("queue")
    client.create("a")
    client.fill("a", bodies(10))
    arm(rig)
    died = False
    try:
        scenario(rig)
    except Crashed:
        died = True
    rig.crash(power=power, landed=landed)
    for _ in range(3):
        scenario(rig)
    check(rig)
    rig.restart()
    check(rig)
    return died


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_disk_step_keeps_dead_letters_exactly_once(power: bool) -> None:
    steps = 0
    while crashed_somewhere(lambda rig, n=steps: rig.disk.crash_after(n), power=power, landed=False):  # type: ignore[misc]
        steps += 1
    assert steps > 10


@pytest.mark.parametrize("at", ["begin", "commit"])
@pytest.mark.parametrize("landed", [False, True])
def test_a_crash_at_any_record_keeps_dead_letters_exactly_once(at: str, landed: bool) -> None:
    def arm(rig: Rig, nth: int) -> None:
        left = nth

        def hook(step: str) -> None:
            nonlocal left
            if step == at:
                left -= 1
                if left < 0:
                    raise Crashed

        rig.store.hook = hook

    steps = 0
    while crashed_somewhere(lambda rig, n=steps: arm(rig, n), power=True, landed=landed):  # type: ignore[misc]
        steps += 1
    assert steps >= 3

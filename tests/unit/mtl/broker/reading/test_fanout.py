"""Fan-out in the `test` profile, exactly as in RFC 11."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas, QuotaSettings
from mtl.broker.reading.fanout import OVERHEAD, PROBE, TURN, Fanout, FanoutLease
from mtl.net.ports import Port
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY, encode_table, join_tables
from tests.support.core import Client, Flow, Rig


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.client("test")


def reading(client: Client, *resources: str) -> Flow:
    lease = client.ask(control.ConnectionReader(resources=list(resources)), control.DataLease)
    flow = client.flow(lease)
    assert flow.summon("resource") == 200
    return flow


def writing(client: Client, *resources: str) -> Flow:
    return client.flow(client.ask(control.ConnectionWriter(resources=list(resources)), control.DataLease))


# --- the profile --------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-116", "MTL-117")
def test_contents_go_from_all_writers_to_all_readers(client: Client) -> None:
    readers = [reading(client, "resource"), reading(client)]
    for writer in (writing(client, "resource"), writing(client)):
        writer.content(7, b"x", "resource", {"k": 1})
        assert writer.sent() == []
    for reader in readers:
        contents = reader.contents()
        assert [(x.sequence, x.resource, x.body) for x in contents] == [
            (1, "resource", b"x"),
            (2, "resource", b"x"),
        ]
        assert contents[0].properties == encode_table({"k": 1})


@pytest.mark.requirement("MTL-114")
@pytest.mark.parametrize("kind", [control.ConnectionReader, control.ConnectionWriter])
def test_a_lease_for_a_second_resource_is_refused(
    client: Client, kind: type[control.ConnectionReader | control.ConnectionWriter]
) -> None:
    refused = client.refused(kind(resources=["resource", "other"]))
    assert (refused.status, refused.members["missing"]) == (404, ["other"])


def test_summon_of_another_name_is_refused(client: Client) -> None:
    flow = reading(client)
    assert flow.summon("other") == 400
    assert flow.summon("") == 400


@pytest.mark.requirement("MTL-49", "MTL-115")
@pytest.mark.parametrize("kind", [control.ConnectionReader, control.ConnectionWriter])
def test_leases_with_confirmation_are_refused(
    client: Client, kind: type[control.ConnectionReader | control.ConnectionWriter]
) -> None:
    refused = client.refused(kind(resources=["resource"], confirm="full"))
    assert (refused.status, refused.reason) == (501, control.UNSUPPORTED)


@pytest.mark.requirement("MTL-46", "MTL-79")
@pytest.mark.parametrize(("named", "resource"), [([], ""), (["resource"], ""), (["resource"], "resource")])
def test_the_name_of_the_resource_is_optional(client: Client, named: list[str], resource: str) -> None:
    reader = reading(client)
    writing(client, *named).content(1, b"x", resource)
    assert reader.bodies() == [b"x"]


@pytest.mark.requirement("MTL-112")
@pytest.mark.parametrize(
    "content",
    [
        commands.Content(5, "other", EMPTY, b""),
        commands.Content(5, "", EMPTY, bytes(limits.MAX_CONTENT + 1)),
        commands.Content(
            5, "", join_tables(encode_table({"a": bytes(limits.MAX_TABLE - 20)}), encode_table({"b": 1})), b""
        ),
        commands.Content(5, "", encode_table({"mtl-sequence": 7}), b""),
    ],
    ids=["name", "size", "table", "reserved"],
)
def test_invalid_contents_are_rejected(rig: Rig, client: Client, content: commands.Content) -> None:
    writer = writing(client)
    writer.send(content)
    assert writer.sent() == [commands.Reject(5, False, False)]
    assert rig.broker.statistics()["test-refused"] == 1


@pytest.mark.requirement("MTL-112")
@pytest.mark.parametrize(
    ("properties", "body"),
    [
        (EMPTY, bytes(limits.MAX_CONTENT)),
        (encode_table({"a": bytes(limits.MAX_TABLE - len(encode_table({"a": b""})))}), b""),
    ],
    ids=["size", "table"],
)
def test_contents_of_the_largest_size_are_delivered(client: Client, properties: bytes, body: bytes) -> None:
    reader, writer = reading(client), writing(client)
    writer.send(commands.Content(5, "", properties, body))
    assert writer.sent() == []
    assert [(x.properties, len(x.body)) for x in reader.contents()] == [(properties, len(body))]


def test_only_summoned_readers_are_sent_contents(client: Client) -> None:
    reader = reading(client)
    reader.dismiss("resource")
    idle = client.flow(client.ask(control.ConnectionReader(resources=[]), control.DataLease))
    writing(client).content(1, b"x")
    assert (reader.contents(), idle.contents()) == ([], [])
    reader.summon("resource")
    writing(client).content(1, b"y")
    assert reader.bodies() == [b"y"]


def test_ended_leases_are_sent_no_contents(rig: Rig, client: Client) -> None:
    reader = reading(client)
    (lease,) = list(rig.broker.parts.leases)
    rig.broker.parts.leases.end(lease)
    writing(client).content(1, b"x")
    assert reader.sent() == []


def test_virtual_hosts_are_separate() -> None:
    rig = Rig(virtual_hosts=("/", "other"))
    here, there = rig.client("test"), rig.client("test", "other")
    readers = reading(here), reading(there)
    writing(here).content(1, b"x")
    assert [x.bodies() for x in readers] == [[b"x"], []]


# --- slow readers -------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-116")
def test_properties_count_towards_the_ring_of_a_slow_reader(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"k": "v" * 100}
    room = OVERHEAD + len(encode_table(properties)) + 1
    monkeypatch.setattr(broker_limits, "FANOUT_RING_OCTETS", 3 * room)
    slow, writer = reading(client), writing(client)
    slow.room(0)
    for number in range(1, 10):
        writer.content(number, b"%d" % number, "", properties)
    slow.room(None)
    rig.sleep(broker_limits.FANOUT_RETRY_S, step=broker_limits.FANOUT_RETRY_S)
    assert slow.bodies() == [b"7", b"8", b"9"]


def test_a_slow_reader_keeps_the_newest_in_order(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_limits, "FANOUT_RING_OCTETS", 5 * (OVERHEAD + 6))
    slow, quick = reading(client), reading(client)
    writer = writing(client)
    slow.room(2)
    for number in range(1, 11):
        writer.content(number, b"%d" % number)
    assert slow.bodies() == [b"1", b"2"]
    assert len(quick.bodies()) == 10
    slow.room(None)
    rig.sleep(broker_limits.FANOUT_RETRY_S, step=broker_limits.FANOUT_RETRY_S)
    contents = slow.contents()
    assert [(x.sequence, x.body) for x in contents] == [(n, b"%d" % n) for n in range(6, 11)]
    assert rig.broker.statistics()["test-dropped"] == 3


@pytest.mark.requirement("MTL-116")
def test_a_slow_reader_gets_a_whole_burst_of_small_contents(rig: Rig, client: Client) -> None:
    """The peer has room for 1,000 contents after each of its frames, as a queue of PLAIN_HWM has. A ring of
    1,000 contents lost most of such a burst.
    """
    slow, writer = reading(client), writing(client)
    slow.room(0)
    for number in range(1, 20_001):
        writer.queue(*commands.encode(commands.Content(number, "", EMPTY, b"")))
    rig.run()
    received: list[int] = []
    while len(received) < 20_000:
        slow.room(1_000)
        slow.send(commands.Pong())
        came = [x.sequence for x in slow.contents()]
        assert came, f"nothing after {received[-1:]}"
        received += came
    assert received == list(range(1, 20_001))
    assert rig.broker.statistics()["test-dropped"] == 0


def test_a_reader_without_room_is_probed_with_few_contents(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    slow, writer = reading(client), writing(client)
    slow.room(0)
    for number in range(1, 5_001):
        writer.queue(*commands.encode(commands.Content(number, "", EMPTY, b"")))
    rig.run()
    lease = next(x for x in rig.broker.parts.leases if isinstance(x, FanoutLease))
    take = lease.pop_unsent

    def taken(most: int) -> list[commands.Content]:
        tried.append(most)
        return take(most)

    monkeypatch.setattr(lease, "pop_unsent", taken)
    for _ in range(3):
        slow.send(commands.Pong())
    slow.room(None)
    for _ in range(5):
        slow.send(commands.Pong())
    assert tried == [TURN, PROBE, PROBE, PROBE, TURN, TURN, TURN, TURN]
    assert [x.sequence for x in slow.contents()] == list(range(1, 5_001))


def test_a_frame_of_a_blocked_reader_resumes_sending(client: Client) -> None:
    slow = reading(client)
    slow.room(0)
    writing(client).content(1, b"x")
    slow.room(None)
    slow.send(commands.Pong())
    assert slow.bodies() == [b"x"]


def test_order_is_kept_in_a_burst(rig: Rig, client: Client) -> None:
    slow, writer = reading(client), writing(client)
    slow.room(1)
    for number in range(1, 6):
        writer.queue(*commands.encode(commands.Content(number, "", EMPTY, b"%d" % number)))
    rig.run()
    slow.room(2)
    slow.send(commands.Pong())
    slow.room(None)
    writer.content(6, b"6")
    rig.sleep(1)
    assert slow.bodies() == [b"%d" % n for n in range(1, 7)]


def test_the_ring_is_bounded_in_octets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "FANOUT_RING_OCTETS", 1_000)
    lease = FanoutLease(None)  # type: ignore[arg-type]  # sending would need its terms
    lease.flow = cast(Any, SimpleNamespace(peer=(Port.PLAIN, b"peer")))

    def dropped_for(number: int, octets: int) -> int:
        lease.append(commands.Content(number, "resource", EMPTY, bytes(octets)))
        return lease.trim(0)

    assert [dropped_for(n, 300 - OVERHEAD) for n in range(5)] == [0, 0, 0, 1, 1]
    assert lease.trim(250) == 1, "what its user has too much"
    assert dropped_for(9, 5_000) == 2
    assert [x.sequence for x in lease.pop_unsent(TURN)] == [9], "one always fits"
    assert lease.octets == 0


def test_the_rings_of_a_user_are_bounded_together(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 10 * (120 + OVERHEAD)
    monkeypatch.setattr(broker_limits, "FANOUT_OCTETS", most)
    slow = [
        client.flow(client.ask(control.ConnectionReader(resources=[]), control.DataLease)) for _ in range(4)
    ]
    for flow in slow:
        flow.summon("resource")
        flow.room(0)
    writer = writing(client)
    for number in range(1, 21):
        writer.content(number, bytes(100))
    waiting = rig.broker.parts.fanout._waiting
    assert most - 120 - OVERHEAD < waiting.used <= most
    for flow in slow:
        flow.room(None)
    rig.sleep(1)
    assert 8 <= sum(len(flow.contents()) for flow in slow) <= 10
    assert waiting.used == 0


def test_a_rebind_and_a_dismiss_empty_the_ring(rig: Rig, client: Client) -> None:
    lease = client.ask(control.ConnectionReader(resources=[]), control.DataLease)
    slow = client.flow(lease)
    slow.summon("resource")
    slow.room(0)
    writing(client).content(1, b"old")
    slow.room(None)
    slow.dismiss("resource")
    assert slow.contents() == []
    slow.summon("resource")
    slow.room(0)
    writing(client).content(1, b"old")
    again = client.flow(lease)
    again.summon("resource")
    assert again.contents() == []
    rig.sleep(1)
    assert again.contents() == []


def test_a_rebound_reader_gets_no_contents_before_its_next_summon(client: Client) -> None:
    lease = client.ask(control.ConnectionReader(resources=[]), control.DataLease)
    assert client.flow(lease).summon("resource") == 200
    again = client.flow(lease)
    writing(client).content(1, b"x", "resource")
    assert again.contents() == []


def test_a_blocked_content_of_a_dismissed_summon_is_dropped() -> None:
    outbox = Outbox()
    fanout = Fanout(outbox, Pool(Quotas(QuotaSettings(), lambda _: False), Quota.FANOUT_BYTES))
    lease = FanoutLease(cast(Any, SimpleNamespace(principal="me", token="a lease")))
    fanout.blocked(lease, commands.Content(1, "resource", EMPTY, b""))
    fanout.flush(lease)
    assert outbox.pop_actions() == []

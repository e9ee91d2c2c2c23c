"""Lifetime and number of leases: PROTOCOL.md 3."""

from __future__ import annotations

import re

import pytest

from mtl.broker import limits as broker_limits
from mtl.protocol.states import FORBIDDEN, LEASE_ENDED
from mtl.wire import commands, control
from tests.support.core import Client, Rig
from tests.support.texts import in_order

T2 = broker_limits.LEASE_UNBOUND_S


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a")


def test_tokens_are_128_bits_and_differ(client: Client) -> None:
    tokens = {client.reader("a").lease for _ in range(20)}
    assert len(tokens) == 20
    assert {len(bytes.fromhex(x)) for x in tokens} == {16}


@pytest.mark.parametrize(
    ("seconds", "lives"), [(T2 - 5, True), (T2 + 2 * broker_limits.EXPIRY_CHECK_S, False)]
)
def test_an_unbound_lease_expires(rig: Rig, client: Client, seconds: float, lives: bool) -> None:
    lease = client.reader("a")
    rig.sleep(seconds)
    assert (rig.broker.parts.leases.find(lease.lease) is not None) is lives


def test_a_bound_lease_stays_alive_while_its_peer_sends(rig: Rig, client: Client) -> None:
    lease = client.writer("a")
    flow = client.flow(lease)
    for _ in range(40):
        rig.sleep(5)
        flow.send(commands.Pong())
    assert rig.broker.parts.leases.find(lease.lease) is not None


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_lease_without_flow_can_be_bound_again(rig: Rig, client: Client, kind: str) -> None:
    lease = getattr(client, kind)("a")
    client.flow(lease).vanish()
    rig.sleep(20)
    assert len(rig.broker.parts.flows) == 0
    rig.sleep(T2 - 30)
    assert client.flow(lease).ponged()
    rig.sleep(2 * T2)
    assert rig.broker.parts.leases.find(lease.lease) is None


def test_timers_run_after_received_frames_are_handled(rig: Rig, client: Client) -> None:
    """After a suspension of the machine the Pong waits in the socket: the peer is alive."""
    lease = client.writer("a")
    flow = client.flow(lease)
    rig.sleep(5)
    rig.mono += 3_600
    flow.queue(*commands.encode(commands.Pong()))
    rig.tick()
    assert rig.broker.parts.leases.find(lease.lease) is not None
    assert flow.ponged()


@pytest.mark.parametrize("what", ["all", "of one session"])
def test_leases_are_limited_in_all_and_per_session(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(broker_limits, "MAX_LEASES" if what == "all" else "MAX_LEASES_PER_SESSION", 3)
    leases = [client.reader("a") for _ in range(3)]
    for request in (control.ConnectionReader(resources=["a"]), control.ConnectionWriter(resources=["a"])):
        refused = client.refused(request)
        assert (refused.status, refused.reason) == (503, control.OVERLOADED)
    other = rig.client()
    if what == "all":
        assert other.refused(control.ConnectionReader(resources=["a"])).status == 503
    else:
        other.reader("a")
    client.close_lease(leases[0])
    client.reader("a")


def test_ending_a_lease_twice_has_no_effect(rig: Rig, client: Client) -> None:
    lease = client.reader("a")
    found = rig.broker.parts.leases.find(lease.lease)
    assert found is not None
    rig.broker.parts.leases.end(found)
    rig.broker.parts.leases.end(found)
    assert len(rig.broker.parts.leases) == 0


def test_names_in_all_leases_are_limited(rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_LEASED_NAMES", 3)
    client.create("b")
    lease = client.writer("a", "b")
    client.reader("a")
    refused = rig.client().refused(control.ConnectionWriter(resources=["a"], confirm="full"))
    assert (refused.status, refused.reason) == (503, control.OVERLOADED)
    assert re.search(in_order("3 resources", "MAX_LEASED_NAMES", 3), refused.message)
    client.writer()
    client.close_lease(lease)
    rig.client().writer("a", "b")


@pytest.mark.parametrize("binding", [False, True])
def test_a_failed_lease_is_reported_to_clients_with_binding(rig: Rig, client: Client, binding: bool) -> None:
    request = control.ConnectionReader(resources=["a"], confirm="full", from_="earliest", binding=binding)
    reply = client.ask(request, control.DataLease)
    flow = client.flow(reply)
    flow.sent()
    lease = rig.broker.parts.leases.find(reply.lease)
    assert lease is not None
    rig.broker.parts.leases.fail(lease)
    rig.run()
    assert flow.sent() == ([commands.Response(LEASE_ENDED, FORBIDDEN)] if binding else [])

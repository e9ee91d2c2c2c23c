"""Data flows: the effect of commands on the data ports, and commands without answer. RFC 11 "Data Flow"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.net.ports import Port
from mtl.storage.api import Append, OpenLog
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY, encode_table
from tests.support.core import Client, Flow, Rig


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")
    client.fill("a", [b"x"])
    client.rig.sleep(broker_limits.HEARTBEAT_CHECK_S)  # its flow is forgotten


def counts(rig: Rig) -> dict[str, int]:
    return rig.broker.parts.flows.counts


# --- silence ------------------------------------------------------------------------------------------------

ILL_FORMED = [
    b"",
    b"\x00",
    b"\x0a",
    b"\xff" * 30,
    b"\x01\0\0\0\0\0\0\0\x01\x05abc",
    b"\x03\0\0\0\0\0\0\0\x01\x01\x07",
    b"\x05\0\0\0\0\0\0\0\x01\0\0\0\0",
    b"\x05\0\0\0\0\0\0\0\x01\0\0\0\0\x05\x01kS",
    b"\x06\0\0\0\0\0\0\0\x01\x02",
    b"\x06\0\0\0\0\0\0\0\x01",
    b"\x07\0\0\0\0\0\0\0\x01\x01",
    b"\x08more",
]


@pytest.mark.requirement("MTL-111")
@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("header", ILL_FORMED)
def test_ill_formed_commands_are_dropped_and_counted(
    rig: Rig, client: Client, header: bytes, bound: bool
) -> None:
    flow = client.flow(client.writer("a")) if bound else Flow(rig, client.writer("a").port)
    before = counts(rig)["malformed"]
    flow.raw(header)
    assert flow.sent() == []
    assert counts(rig)["malformed"] == before + 1


@pytest.mark.requirement("MTL-93", "MTL-98")
@pytest.mark.parametrize(
    "command",
    [
        commands.Content(1, "a", EMPTY, b""),
        commands.Confirm(1, True),
        commands.Reject(1, True, True),
        commands.Ping(),
        commands.Pong(),
        commands.Response(1, 200),
    ],
)
def test_commands_of_an_unknown_peer_are_not_answered(
    rig: Rig, client: Client, command: commands.Command
) -> None:
    """Ping included, so that a client notices a restart of the broker (PROTOCOL.md 3)."""
    flow = Flow(rig, client.writer("a").port)
    flow.send(command)
    assert flow.sent() == []
    assert len(rig.broker.parts.flows) == 0
    assert counts(rig)["unbound"] == 1


@pytest.mark.parametrize(
    "command",
    [commands.Response(7, 200), commands.Confirm(1, True), commands.Reject(1, False, False), commands.Pong()],
)
def test_commands_without_an_object_are_ignored(client: Client, command: commands.Command) -> None:
    flow = client.flow(client.writer("a"))
    flow.send(command)
    assert flow.sent() == []
    assert flow.ponged()


def test_contents_of_a_reader_are_dropped_and_counted(rig: Rig, client: Client) -> None:
    flow = client.flow(client.reader("a"))
    flow.content(1, b"x", "a")
    assert flow.sent() == []
    assert counts(rig)["unbound"] == 1


# --- Lease --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-60", "MTL-61", "MTL-62", "MTL-63", "MTL-64")
def test_lease_is_answered_by_200_or_403(rig: Rig, client: Client) -> None:
    lease = client.writer("a")
    flow = Flow(rig, lease.port)
    flow.send(commands.Lease(77, "0" * 32))
    flow.send(commands.Lease(78, lease.lease))
    flow.send(commands.Lease(79, "0" * 32))
    assert flow.sent() == [commands.Response(77, 403), commands.Response(78, 200), commands.Response(79, 403)]
    assert flow.ponged(), "the lease stays bound"


def test_the_response_has_201_if_it_bound_the_lease_and_200_if_not(rig: Rig, client: Client) -> None:
    """A broker that ended the flow drops contents until the lease is presented again: a writer has to know."""
    lease = client.writer("a", binding=True)
    assert lease.binding
    flow = Flow(rig, lease.port)
    assert [flow.lease(lease.lease) for _ in range(2)] == [201, 200]
    rig.sleep(4 * limits.HEARTBEAT_S)
    flow.sent()
    flow.content(1, b"dropped")
    assert (flow.sent(), flow.lease(lease.lease), flow.lease(lease.lease)) == ([], 201, 200)
    flow.content(1, b"kept")
    assert flow.sent() == [commands.Confirm(1, True)]
    assert Flow(rig, lease.port).lease(lease.lease) == 201, "it moves"


def test_without_binding_the_response_is_200_as_in_the_rfc(rig: Rig, client: Client) -> None:
    lease = client.writer("a")
    assert not lease.binding
    flow = Flow(rig, lease.port)
    assert [flow.lease(lease.lease) for _ in range(2)] == [200, 200]


@pytest.mark.requirement("MTL-65")
def test_commands_may_be_pipelined_behind_the_lease(rig: Rig, client: Client) -> None:
    lease = client.reader("a")
    flow = Flow(rig, lease.port)
    for command in (commands.Lease(1, lease.lease), commands.Summon(2, "a"), commands.Ping()):
        flow.queue(*commands.encode(command))
    rig.run()
    lease_answer, summon_answer, pong, content = flow.sent()
    assert (lease_answer, summon_answer, pong) == (
        commands.Response(1, 200),
        commands.Response(2, 200),
        commands.Pong(),
    )
    assert isinstance(content, commands.Content)


def test_one_reader_and_one_writer_share_a_connection(client: Client) -> None:
    flow = client.flow(client.writer("a"))
    client.flow(client.reader("a"), on=flow)
    flow.summon("a")
    flow.content(1, b"y", "a")
    bodies = [x.body for x in flow.sent() if isinstance(x, commands.Content)]
    assert bodies == [b"x", b"y"]


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_second_lease_of_a_kind_on_a_flow_is_forbidden(client: Client, kind: str) -> None:
    grant = getattr(client, kind)
    flow = client.flow(grant("a"))
    second = grant("a")
    assert flow.lease(second.lease) == 403
    assert flow.ponged(), "the first one stays bound"


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_lease_replaces_an_ended_one_of_its_kind(client: Client, kind: str) -> None:
    """So connections can be reused, also by a reader of the same resource."""
    grant = getattr(client, kind)
    first = grant("a")
    flow = client.flow(first)
    if kind == "reader":
        flow.summon("a")
        flow.sent()
    client.close_lease(first)
    assert flow.lease(grant("a").lease) == 200
    if kind == "reader":
        assert flow.summon("a") == 200
        assert flow.bodies() == [b"x"]
    else:
        flow.content(1, b"y")
        assert flow.sent() == [commands.Confirm(1, True)]


def test_a_reader_beside_a_writer_is_replaced_by_another_one(client: Client) -> None:
    flow = client.flow(client.writer("a"))
    first = client.reader("a")
    client.flow(first, on=flow)
    assert flow.summon("a") == 200
    assert flow.bodies() == [b"x"]
    client.close_lease(first)
    client.flow(client.reader("a"), on=flow)
    assert flow.summon("a") == 200
    assert flow.bodies() == [b"x"]


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_packed_lease_binds_only_on_the_socket_for_packs(rig: Rig, client: Client, kind: str) -> None:
    """The queues of the plain socket are sized for single contents: a thousand packs per peer would be gigabytes."""
    grant = getattr(client, kind)
    plain, packed = grant("a"), grant("a", packed=True)
    assert Flow(rig, plain.port).lease(packed.lease) == 403
    assert Flow(rig, packed.port).lease(packed.lease) == 200
    assert Flow(rig, packed.port).lease(plain.lease) == 200


@pytest.mark.requirement("MTL-56")
def test_on_a_shared_socket_both_kinds_bind() -> None:
    rig = Rig(packs_on=Port.CONTROL)
    client = rig.client()
    client.create("a")
    for lease in (client.reader("a"), client.reader("a", packed=True)):
        flow = Flow(rig, lease.port)
        flow.peer = (Port.CONTROL, flow.peer[1])
        assert flow.lease(lease.lease) == 200
        assert flow.ponged()
    assert Flow(rig, client.reader("a").port).lease(client.reader("a", packed=True).lease) == 403


def test_a_lease_belongs_to_the_flow_that_presented_it_last(rig: Rig, client: Client) -> None:
    lease = client.reader("a", window=control.Window(contents=1))
    former, other = client.flow(lease), Flow(rig, lease.port)
    other.lease(lease.lease)
    assert (former.ponged(), other.ponged()) == (False, True)
    former.lease(lease.lease)
    assert (former.ponged(), other.ponged()) == (True, False)


def test_a_lease_that_moves_leaves_the_other_lease_of_its_flow(rig: Rig, client: Client) -> None:
    lease = client.reader("a")
    both = client.flow(client.writer("a"))
    client.flow(lease, on=both)
    client.flow(lease)
    both.content(1, b"y")
    assert both.sent() == [commands.Confirm(1, True)]


# --- Summon and Dismiss -------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-67", "MTL-69", "MTL-70", "MTL-71", "MTL-73", "MTL-74", "MTL-75", "MTL-76")
def test_summon_and_dismiss(rig: Rig, client: Client) -> None:
    flow = client.flow(client.reader("a"))
    assert flow.summon("b") == 400
    assert flow.summon("") == 400
    assert flow.dismiss("a") == 400
    assert flow.summon("a") == 200
    assert flow.summon("a") == 400
    assert flow.dismiss("a") == 200
    assert flow.dismiss("a") == 400
    assert flow.summon("a") == 200
    assert counts(rig)["out-of-turn"] == 3


@pytest.mark.requirement("MTL-81")
def test_the_response_to_a_summon_precedes_its_contents(client: Client) -> None:
    flow = client.flow(client.reader("a"))
    flow.send(commands.Summon(5, "a"))
    kinds = [type(x) for x in flow.sent()]
    assert kinds == [commands.Response, commands.Content]


@pytest.mark.parametrize("command", [commands.Summon(3, "a"), commands.Dismiss(3, "a")])
def test_reader_commands_without_a_reader_lease_are_refused(
    rig: Rig, client: Client, command: commands.Command
) -> None:
    flow = Flow(rig, client.reader("a").port)
    flow.send(command)
    assert flow.sent() == [commands.Response(3, 403)]
    writing = client.flow(client.writer("a"))
    writing.send(command)
    assert writing.sent() == [commands.Response(3, 400)]


def test_a_lease_with_the_sequence_of_an_unanswered_summon_gets_no_response(rig: Rig) -> None:
    """The client would take it for that of the Summon."""
    rig.stop()
    rig.start(OpenLog)
    client = rig.client("queue")
    lease = client.reader(start=None)
    flow = client.flow(lease)
    flow.send(commands.Summon(5, "a"))
    flow.send(commands.Lease(5, lease.lease))
    assert (flow.sent(), counts(rig)["out-of-turn"]) == ([], 1)
    rig.let_go()
    response, content = flow.sent()
    assert (response, type(content)) == (commands.Response(5, 200), commands.Content)
    flow.send(commands.Lease(5, lease.lease))
    assert flow.sent() == [commands.Response(5, 200)], "the sequence is free again"


# --- heartbeats ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-99", "MTL-100", "MTL-101")
def test_a_ping_is_answered_by_a_pong(client: Client) -> None:
    flow = client.flow(client.writer("a"))
    flow.send(commands.Ping())
    assert flow.sent() == [commands.Pong()]


@pytest.mark.requirement("MTL-102", "MTL-103", "MTL-104")
@pytest.mark.parametrize("interval", [0.5, 1.0, 5.0])
def test_a_silent_peer_is_pinged_and_then_loses_its_flow(interval: float) -> None:
    rig = Rig(heartbeat_s=interval)
    client = rig.client()
    client.create("a")
    flow = client.flow(client.writer("a"))
    rig.sleep(interval, step=interval / 4)
    assert flow.sent() == [commands.Ping()]
    for _ in range(5):
        flow.send(commands.Pong())
        rig.sleep(interval, step=interval / 4)
    assert flow.ponged()
    flow.sent()
    rig.sleep(3 * interval + 2 * broker_limits.HEARTBEAT_CHECK_S)
    assert rig.broker.parts.flows.counts["dead"] == 1
    assert not flow.ponged()


@pytest.mark.parametrize("kind", [commands.Content, commands.Lease])
def test_any_command_keeps_a_flow_alive(rig: Rig, client: Client, kind: type[commands.Command]) -> None:
    lease = client.writer("a")
    flow = client.flow(lease)
    for number in range(1, 20):
        rig.sleep(4)
        if kind is commands.Content:
            flow.content(number, b"")
        else:
            assert flow.lease(lease.lease) == 200
    assert counts(rig)["dead"] == 0


def test_an_unreachable_peer_frees_its_leases(rig: Rig, client: Client) -> None:
    lease = client.writer("a")
    flow = client.flow(lease)
    flow.vanish()
    flow.send(commands.Ping())
    assert len(rig.broker.parts.flows) == 0
    assert client.flow(lease).ponged()


def test_a_flow_without_a_lease_is_forgotten_at_its_next_command(rig: Rig, client: Client) -> None:
    lease = client.writer("a")
    flow = client.flow(lease)
    client.close_lease(lease)
    assert not flow.ponged()
    assert len(rig.broker.parts.flows) == 0


def test_heartbeats_forget_flows_without_a_lease(rig: Rig, client: Client) -> None:
    lease = client.writer("a")
    connected(rig, lease, "1")
    client.close_lease(lease)
    rig.sleep(2)
    assert len(rig.broker.parts.flows) == 0
    assert not rig.broker.parts.flows._by_connection, "nor is anything kept of its connection"


# --- connections --------------------------------------------------------------------------------------------


def taken_over(flow: Flow, connection: str) -> Flow:
    """The same identity, announced by another peer as soon as the connection of `flow` was gone."""
    thief = Flow(flow.rig, flow.rig.client().writer("a").port, connection)
    thief.peer = flow.peer
    return thief


def connected(rig: Rig, lease: control.DataLease, connection: str) -> Flow:
    flow = Flow(rig, lease.port, connection)
    assert flow.lease(lease.lease) == 200
    return flow


@pytest.mark.parametrize("connection", ["2", "1 key", ""])
def test_contents_of_a_taken_over_identity_are_dropped(rig: Rig, client: Client, connection: str) -> None:
    flow = connected(rig, client.writer("a"), "1")
    flow.content(1, b"mine")
    taken_over(flow, connection).content(2, b"not mine")
    assert client.read("a") == [b"x", b"mine"]
    assert counts(rig)["taken-over"] == 1


def test_a_burst_of_a_taken_over_identity_is_dropped(rig: Rig, client: Client) -> None:
    flow = connected(rig, client.writer("a"), "1")
    for number in (1, 2):
        flow.content(number, b"mine")
    header, body = commands.encode(commands.Content(3, "a", EMPTY, b"not mine"))
    rig.broker.burst(flow.peer, [header] * 2, [body] * 2, rig.now(), "2")
    rig.run()
    assert client.read("a") == [b"x", b"mine", b"mine"]


def test_a_taken_over_identity_gets_no_contents_and_moves_no_cursor(rig: Rig, client: Client) -> None:
    client.ask(control.CursorOpen(group="g", resource="a", from_="earliest"), control.CursorOpened)
    lease = client.reader("a", group="g", start="group")
    flow = connected(rig, lease, "1")
    flow.summon("a")
    assert [bytes(x.body) for x in flow.contents()] == [b"x"]
    thief = taken_over(flow, "2")
    thief.send(commands.Confirm(1, True))
    client.fill("a", [b"later"])
    assert thief.sent() == []
    (cursor,) = client.ask(control.CursorDescribe(group="g"), control.CursorList).cursors
    assert cursor.position == 1
    again = connected(rig, lease, "3")
    again.summon("a")
    assert [bytes(x.body) for x in again.contents()] == [b"x", b"later"], "the lease is its owner's still"


def test_a_flow_ends_with_its_connection(rig: Rig, client: Client) -> None:
    """Nothing is sent to its identity afterwards: any peer may announce the same one."""
    lease = client.reader("a", confirm="none", start="latest")
    flow = connected(rig, lease, "1")
    flow.summon("a")
    rig.broker.disconnected("1", rig.now())
    client.fill("a", [b"later"])
    assert flow.sent() == []
    rig.broker.disconnected("1", rig.now())
    again = connected(rig, lease, "2")
    again.summon("a")
    assert [bytes(x.body) for x in again.contents()] == [b"later"]


# --- bursts -------------------------------------------------------------------------------------------------

LARGEST = 60

Frames = tuple[bytes, bytes]
CONTENTS = st.tuples(
    st.sampled_from([0, 0, 0, 0, 0, 0, -1, -3, 1, 5]),  # from the number that comes next
    st.sampled_from(["a", "a", "a", "a", "b", "", "missing"]),
    st.sampled_from([{}, {}, {}, {}, {"k": 1}, {"mtl-mine": 1}]),
    st.sampled_from([0, 1, 1, 1, LARGEST - 16, LARGEST, LARGEST + 1]),
    st.integers(1, 9),  # so many in a row
)
OTHERS = st.sampled_from(
    [commands.Ping(), commands.Confirm(1, True), commands.Summon(9, "a"), b"\x05ill-formed"]
)
STEPS = st.lists(
    st.lists(CONTENTS | OTHERS, min_size=1, max_size=6)
    | st.sampled_from(["hold", "let go", "fail", "rebind"]),
    max_size=8,
)


class Sender:
    """Makes bursts. A repeated number keeps its resource: a number identifies one content."""

    def __init__(self) -> None:
        self._next = 1
        self._sent: dict[int, str] = {}

    def burst(self, step: list[Any]) -> list[Frames]:
        frames: list[Frames] = []
        for item in step:
            if isinstance(item, bytes):
                frames.append((item, b""))
            elif isinstance(item, tuple):
                frames += self._contents(*item)
            else:
                frames.append(commands.encode(item))  # type: ignore[arg-type]
        return frames

    def _contents(
        self, offset: int, resource: str, properties: dict[str, Any], size: int, count: int
    ) -> Iterator[Frames]:
        table = encode_table(properties) if properties else EMPTY
        first = max(1, self._next + offset)
        for number in range(first, first + count):
            name = self._sent.setdefault(number, resource) if offset <= 0 else resource
            yield commands.encode(commands.Content(number, name, table, b""))[0], bytes(size)
        if offset <= 0:
            self._next = max(self._next, first + count)


@pytest.mark.parametrize("named", [True, False])
@given(steps=STEPS)
def test_a_burst_has_the_effect_of_its_single_commands(named: bool, steps: list[Any]) -> None:
    """The quick path for consecutive contents must have no other effect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_PACK", LARGEST)
        patch.setattr(limits, "MAX_CONTENT", LARGEST)
        patch.setattr(broker_limits, "INBOUND_OCTETS", 12 * limits.ARRIVAL_OVERHEAD)
        patch.setattr(commands, "_COMPARED", 3)
        rigs = [Rig(), Rig()]
        clients = [rig.client() for rig in rigs]
        for client in clients:
            client.create("a", "b")
        leases = [x.writer("a", "b", writer="w" if named else None) for x in clients]
        flows = [x.flow(lease) for x, lease in zip(clients, leases, strict=True)]
        sender = Sender()
        for step in steps:
            if isinstance(step, list):
                frames = sender.burst(step)
                for header, body in frames:
                    flows[0].queue(header, body)
                rigs[1].broker.burst(
                    flows[1].peer, [h for h, _ in frames], [b for _, b in frames], rigs[1].now()
                )
            for rig in rigs:
                if step == "hold":
                    rig.hold(Append)
                elif step == "let go":
                    rig.let_go()
                elif step == "fail":
                    rig.disk.fail("write")
                rig.run()
            if step == "rebind":
                flows = [x.flow(lease) for x, lease in zip(clients, leases, strict=True)]
            assert flows[0].sent() == flows[1].sent()
        for rig in rigs:
            rig.let_go()
        assert flows[0].sent() == flows[1].sent()
        assert rigs[0].broker.statistics() == rigs[1].broker.statistics()
        for name in ("a", "b"):
            assert clients[0].read(name) == clients[1].read(name)

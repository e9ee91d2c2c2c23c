"""RFC 11 and PROTOCOL.md on the wire: a client that shares nothing with us, and a real broker."""

from __future__ import annotations

import ast
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from mtl.testing import RunningBroker, broker
from tests.support import minimal_client as module
from tests.support.minimal_client import (
    CONTENT,
    DISMISS,
    EMPTY,
    LEASE,
    PING,
    PONG,
    REJECT,
    RESPONSE,
    SUMMON,
    Flow,
    MinimalClient,
    minimal_client,
    u64,
)

CONFIG = """
virtual-hosts = ["/", "test-env"]
heartbeat = 0.5
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all of them; every test has resources of its own."""
    place = tmp_path_factory.mktemp("minimal")
    (place / "broker.toml").write_text(CONFIG, encoding="utf-8")
    with broker(place / "data", place / "broker.toml") as one:
        yield one


@pytest.fixture(scope="module")
def one_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker whose data flows use the control socket."""
    place = tmp_path_factory.mktemp("shared")
    (place / "broker.toml").write_text("shared-socket = true", encoding="utf-8")
    with broker(place / "data", place / "broker.toml") as one:
        yield one


@pytest.fixture
def client(running: RunningBroker) -> Iterator[MinimalClient]:
    with minimal_client(running.endpoint) as one:
        yield one


def written(client: MinimalClient, resource: str, *bodies: bytes) -> Flow:
    """A resource with these contents, and the writer they came from."""
    client.ask("Resource.Create", **{"resource": resource, "exist-ok": True})
    writer = client.lease("Writer", resources=[resource], confirm="full")
    for number, body in enumerate(bodies, 1):
        writer.content(number, body)
    if bodies:
        writer.await_confirm(len(bodies))
    return writer


def earliest(**more: Any) -> dict[str, Any]:
    return {"from": "earliest", **more}


def test_the_client_shares_nothing_with_the_project() -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    names = {a.name for x in ast.walk(tree) if isinstance(x, ast.Import) for a in x.names}
    names |= {x.module or "" for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)}
    assert names == {"__future__", "collections.abc", "contextlib", "json", "struct", "time", "typing", "zmq"}


# --- the profiles -------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "MTL-01", "MTL-03", "MTL-11", "MTL-12", "MTL-13", "MTL-53", "MTL-54", "MTL-57", "MTL-116"
)
def test_the_test_profile(running: RunningBroker) -> None:
    with minimal_client(running.endpoint, "test") as client:
        readers = [client.lease("Reader", resources=["resource"], confirm="none") for _ in range(2)]
        for reader in readers:
            reader.summon("resource")
        writer = client.lease("Writer", resources=["resource"], confirm="none")
        for number in range(1, 101):
            writer.content(number, b"%d" % number)
        for reader in readers:
            got = [reader.read() for _ in range(100)]
            assert [x[0] for x in got] == list(range(1, 101))
            assert [x[3] for x in got] == [b"%d" % n for n in range(1, 101)]
            assert {(x[1], x[2]) for x in got} == {("resource", EMPTY)}
        assert client.ask("Connection.Reader", resources=["resource"], confirm="full")[0] == 501


@pytest.mark.requirement("MTL-78", "MTL-80", "MTL-86", "MTL-87")
def test_the_log_profile(client: MinimalClient) -> None:
    client.ask("Resource.Create", resource="rfc")
    reader = client.lease("Reader", resources=["rfc"], confirm="full")
    reader.summon("rfc")
    writer = client.lease("Writer", resources=["rfc"], confirm="full")
    table = struct.pack(">I", 12) + b"\x03fooS" + struct.pack(">I", 3) + b"bar"
    for number in range(1, 11):
        writer.content(number, b"%d" % number, table=table)
    writer.await_confirm(10)
    for number in range(1, 11):
        sequence, resource, properties, body = reader.read()
        assert (sequence, resource, body) == (number, "rfc", b"%d" % number)
        assert table[4:] in properties
        reader.confirm(sequence)
    reader.dismiss("rfc")


@pytest.mark.requirement("MTL-46", "MTL-87", "MTL-88", "MTL-90", "MTL-94", "MTL-96")
def test_the_queue_profile(running: RunningBroker) -> None:
    """Ten contents for two consumers: some are confirmed, some come again, one is a dead letter, one consumer dies."""
    with minimal_client(running.endpoint, "queue") as client:
        client.ask("Resource.Create", resource="tasks-dead")
        client.ask("Resource.Create", resource="tasks", **{"dead-letter": "tasks-dead"})
        consumers = [
            client.lease("Reader", resources=["tasks"], confirm="full", window={"contents": 5})
            for _ in range(2)
        ]
        for one in consumers:
            one.summon("tasks")
        bodies = [b"%d" % n for n in range(1, 11)]
        written(client, "tasks", *bodies)
        got = [[one.read() for _ in range(5)] for one in consumers]
        positions = [[position(x[2]) for x in mine] for mine in got]
        assert [x[0] for mine in got for x in mine] == [1, 2, 3, 4, 5] * 2  # deliveries, by lease
        assert sorted(positions[0] + positions[1]) == list(range(1, 11))
        assert [x[3] for mine in got for x in mine] == [b"%d" % n for n in positions[0] + positions[1]]
        assert not any(REDELIVERED in x[2] for mine in got for x in mine)

        alive, dying = consumers
        alive.confirm(5, multiple=True)
        dying.confirm(1)
        dying.reject(2, recycle=True)
        dying.reject(3)
        again = alive.read()  # another consumer is preferred
        assert (again[0], position(again[2]), REDELIVERED in again[2]) == (6, positions[1][1], True)
        alive.confirm(6)
        dying.dealer.close()
        last = [alive.read() for _ in range(2)]
        assert [position(x[2]) for x in last] == positions[1][3:]
        assert all(REDELIVERED in x[2] for x in last)
        alive.confirm(8, multiple=True)
        alive.quiet()

    with minimal_client(running.endpoint) as client:
        for resource, expected in (("tasks-dead", [got[1][2][3]]), ("tasks", bodies)):
            reader = client.lease("Reader", resources=[resource], confirm="none", **earliest())
            reader.summon(resource)
            assert [reader.read()[3] for _ in expected] == expected


REDELIVERED = b"\x0fmtl-redeliveredt\x01"


def position(table: bytes) -> int:
    """The `mtl-sequence` of a field table."""
    (value,) = struct.unpack(">q", table.partition(b"\x0cmtl-sequencel")[2][:8])
    assert isinstance(value, int)
    return value


# --- control ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-04", "MTL-20")
def test_the_whole_envelope_comes_back(running: RunningBroker) -> None:
    """REQ_CORRELATE puts a frame of its own before the delimiter, and takes no reply without it."""
    client = MinimalClient(running.endpoint, {zmq.REQ_CORRELATE: 1, zmq.REQ_RELAXED: 1})
    client.open("log")
    client.req.send_multipart([b"Resource.List", b"{}"])  # its answer is for nobody any more
    assert client.ask("Resource.Describe", resource="no such")[0] == 404
    client.close()


@pytest.mark.requirement("MTL-19", "MTL-39")
def test_names_in_any_case(running: RunningBroker) -> None:
    client = MinimalClient(running.endpoint)
    protocol = {"name": "MTL", "version": 1}
    assert client.ask("CONNECTION.OPEN", protocol=protocol)[0] == 201
    assert client.ask("connection.authorize", mechanism="anonymous", response="")[0] == 201
    assert client.ask("cONNECTION.pROFILE", profile="TeSt")[0] == 200
    assert client.ask("connection.READER", resources=[], confirm="none")[0] == 202
    assert client.ask("Connection.writer", resources=[], confirm="none")[0] == 202
    client.close()


@pytest.mark.requirement("MTL-21", "MTL-45", "MTL-52")
def test_a_session_is_its_sockets(running: RunningBroker) -> None:
    """Another REQ has not opened; what comes too early is told what is missing."""
    client, stranger = MinimalClient(running.endpoint), MinimalClient(running.endpoint)
    assert client.ask("Connection.Profile", profile="test")[1]["reason"] == "not-open"
    assert client.ask("Connection.Open", protocol={"name": "MTL", "version": 1})[0] == 201
    code, refused = client.ask("Connection.Writer", resources=[], confirm="none")
    assert (code, refused["reason"]) == (400, "no-profile")
    assert client.ask("Connection.Profile", profile="test")[0] == 200
    assert client.ask("Connection.Writer", resources=[], confirm="none")[0] == 202
    code, refused = stranger.ask("Connection.Writer", resources=[], confirm="none")
    assert (code, refused["status"], refused["reason"]) == (400, "Bad Request", "not-open")
    client.close()
    stranger.close()


@pytest.mark.requirement("MTL-22", "MTL-23", "MTL-36", "MTL-38", "MTL-49", "MTL-52")
@pytest.mark.parametrize(
    ("command", "body", "status", "reason"),
    [
        ("Connection.Open", {"protocol": {"name": "AMQP", "version": 1}}, 400, "bad-arguments"),
        ("Connection.Open", {"protocol": {"name": "MTL", "version": 2}}, 501, "unsupported"),
        ("Connection.Profile", {"profile": "profile name"}, 400, "unknown-profile"),
        ("Connection.Reader", {"resources": "a"}, 400, "bad-arguments"),
        ("Connection.Reader", {"resources": ["no such"], "confirm": "none"}, 404, "unknown-resource"),
        ("Connection.Writer", {"resources": [], "confirm": "none | full"}, 501, "unsupported"),
        ("Connection.Close", {}, 501, "unknown-command"),
    ],
)
def test_what_cannot_be_done_is_refused(
    client: MinimalClient, command: str, body: dict[str, Any], status: int, reason: str
) -> None:
    code, refused = client.ask(command, **body)
    assert (code, refused["reason"]) == (status, reason)


@pytest.mark.requirement("MTL-23")
def test_virtual_hosts_are_apart(running: RunningBroker, client: MinimalClient) -> None:
    client.ask("Resource.Create", resource="of the first")
    with minimal_client(running.endpoint, virtual_host="test-env") as other:
        assert other.ask("Resource.List")[1]["resources"] == []
    opening = {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "home"}
    assert client.ask("Connection.Open", **opening)[1]["reason"] == "unknown-virtual-host"


@pytest.mark.requirement("MTL-09")
def test_unknown_members_are_no_error(running: RunningBroker) -> None:
    client = MinimalClient(running.endpoint)
    more = {"x-later": [1, {"a": None}], "": 2}
    protocol = {"name": "MTL", "version": 1, "dialect": "later"}
    assert client.ask("Connection.Open", protocol=protocol, **more)[0] == 201
    assert client.ask("Connection.Profile", profile="test", **more)[0] == 200
    assert client.ask("Connection.Reader", resources=[], confirm="none", **more)[0] == 202
    client.close()


@pytest.mark.requirement("MTL-35")
def test_a_profile_may_be_selected_again_and_leases_keep_theirs(running: RunningBroker) -> None:
    with minimal_client(running.endpoint, "test") as client:
        reader = client.lease("Reader", resources=[], confirm="none")
        reader.summon("resource")
        assert client.ask("Connection.Profile", profile="log")[0] == 200
        written(client, "re-selected", b"x")
        assert client.ask("Connection.Profile", profile="test")[0] == 200
        client.lease("Writer", resources=[], confirm="none").content(1, b"still there")
        assert reader.read()[3] == b"still there"


@pytest.mark.requirement("MTL-05", "MTL-50", "MTL-51")
def test_a_request_that_is_dropped_gets_no_answer_and_hurts_nobody(
    running: RunningBroker, client: MinimalClient
) -> None:
    with minimal_client(running.endpoint, "test") as other:
        client.req.setsockopt(zmq.RCVTIMEO, 200)
        client.req.send_multipart([b"Connection.Open", b"no JSON"])
        with pytest.raises(zmq.Again):
            client.req.recv_multipart()
        assert other.ask("Connection.Profile", profile="log")[0] == 200


# --- data ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-14", "MTL-55", "MTL-62", "MTL-110", "MTL-111")
def test_misframed_and_unknown_commands_are_survived(client: MinimalClient) -> None:
    flow = written(client, "survived")
    for frames in ([b""], [b"\x05"], [b"a", b"b", b"c"], [b"\xff" * 100, b""], [b"", b"", b"", b""]):
        flow.dealer.send_multipart(frames)
    flow.quiet()


@pytest.mark.requirement("MTL-06", "MTL-41", "MTL-47", "MTL-84", "MTL-85")
def test_both_directions_of_one_connection_are_confirmed_as_each_lease_says(client: MinimalClient) -> None:
    client.ask("Resource.Create", resource="both")
    reading = client.granted("Reader", resources=["both"], confirm="none")
    writing = client.granted("Writer", resources=["both"], confirm="full")
    flow = client.connect(reading["port"])
    flow.lease(reading["lease"])
    flow.lease(writing["lease"])
    flow.summon("both")
    for number in range(1, 4):
        flow.content(number, b"%d" % number)
        got = {flow.receive()[0][:1] for _ in range(2)}  # in either order
        assert got == {b"\x05", b"\x06"}
    flow.quiet()


@pytest.mark.requirement("MTL-85")
def test_without_confirmation_nothing_is_confirmed(client: MinimalClient) -> None:
    client.ask("Resource.Create", resource="unconfirmed")
    reader = client.lease("Reader", resources=["unconfirmed"], confirm="none")
    reader.summon("unconfirmed")
    writer = client.lease("Writer", resources=["unconfirmed"], confirm="none")
    writer.content(17, b"a")  # numbers mean nothing here
    writer.content(3, b"b")
    assert [reader.read()[3] for _ in range(2)] == [b"a", b"b"]
    reader.confirm(1)
    reader.reject(2)
    reader.quiet()
    writer.quiet()


@pytest.mark.requirement("MTL-60", "MTL-64", "MTL-112")
def test_without_a_lease_there_is_403_or_silence(client: MinimalClient) -> None:
    lease = client.granted("Writer", resources=[], confirm="full")
    flow = client.connect(lease["port"])
    flow.summon("a", code=b"403")
    flow.dismiss("a", code=b"403")
    flow.lease("0" * 32, code=b"403")
    flow.send(PING)
    flow.content(1, b"dropped")
    flow.lease(lease["lease"])  # the next command: nothing came before it
    flow.quiet()


@pytest.mark.requirement("MTL-65", "MTL-66", "MTL-81")
def test_commands_are_pipelined(client: MinimalClient) -> None:
    """A Lease, a Summon, a Dismiss and a Summon, all before any Response."""
    written(client, "pipelined", b"x")
    lease = client.granted("Reader", resources=["pipelined"], confirm="full", **earliest())
    flow = client.connect(lease["port"])
    asked = [flow.ask(LEASE, lease["lease"]), flow.ask(SUMMON, "pipelined")]
    for sequence in asked:
        flow.responded(sequence, b"200")
    assert flow.read()[3] == b"x"


@pytest.mark.requirement("MTL-68", "MTL-77", "MTL-81", "MTL-82")
def test_contents_flow_from_the_summons_response_to_the_dismisss(client: MinimalClient) -> None:
    writer = written(client, "gated", b"1")
    reader = client.lease("Reader", resources=["gated"], confirm="none", **earliest())
    reader.quiet()  # there is a content, and no Summon
    reader.summon("gated")
    assert reader.read()[3] == b"1"
    reader.dismiss("gated")
    writer.content(2, b"2")
    writer.await_confirm(2)
    reader.quiet()
    reader.summon("gated")
    assert reader.read()[3] == b"2"


@pytest.mark.requirement("MTL-77", "MTL-82")
@pytest.mark.parametrize("confirm", ["none", "full"])
def test_a_dismiss_ends_a_stream_whose_queue_is_full(client: MinimalClient, confirm: str) -> None:
    """What waited for the reader is taken back before the Response, and comes after the next Summon."""
    name, size, count = f"stream-{confirm}", 16_384, 1_000
    bodies = [b"%d" % n + bytes(size) for n in range(1, count + 1)]
    written(client, name, *bodies)
    reader = client.lease("Reader", resources=[name], confirm=confirm, hwm=1, **earliest())
    reader.summon(name)
    got = [reader.read()[0] for _ in range(10)]
    dismissed = reader.ask(DISMISS, name)
    while (command := reader.receive())[0][:1] == CONTENT:
        got.append(int.from_bytes(command[0][1:9], "big"))
    assert command == (RESPONSE + u64(dismissed), b"200")
    reader.quiet()
    assert len(got) < count
    reader.confirm(got[-1], multiple=True)  # or the window stays as full as it is
    reader.summon(name)
    while len(got) < count:
        got.append(reader.read()[0])
        reader.confirm(got[-1])
    assert got == list(range(1, count + 1))


@pytest.mark.requirement("MTL-69", "MTL-70", "MTL-71", "MTL-74", "MTL-75", "MTL-76")
def test_summons_and_dismissals_that_cannot_be(client: MinimalClient) -> None:
    writer = written(client, "summoned")
    flow = client.lease("Reader", resources=["summoned"], confirm="none")
    flow.dismiss("summoned", code=b"400")
    flow.summon("another", code=b"400")
    flow.summon("summoned")
    flow.summon("summoned", code=b"400")
    flow.dismiss("another", code=b"400")
    flow.dismiss("summoned")
    flow.dismiss("summoned", code=b"400")
    writer.summon("summoned", code=b"400")  # it has no lease to read


@pytest.mark.requirement("MTL-46", "MTL-79", "MTL-112")
@pytest.mark.parametrize("resources", [["east", "west"], []])
def test_a_writer_of_several_resources_names_each(client: MinimalClient, resources: list[str]) -> None:
    for name in ("east", "west"):
        client.ask("Resource.Create", **{"resource": name, "exist-ok": True})
    writer = client.lease("Writer", resources=resources, confirm="full")
    writer.content(1, b"to the east", "east")
    writer.content(2, b"to whom?")
    writer.content(3, b"to the west", "west")
    said: list[tuple[bytes, bytes]] = []
    while not said or said[-1] != (b"\x06" + u64(3) + b"\x01", b""):
        said.append(writer.receive())
    assert (REJECT + u64(2) + b"\0\0", b"") in said
    if not resources:  # one that was made after the lease counts, too
        client.ask("Resource.Create", resource="later")
        writer.content(4, b"to the newest", "later")
        assert writer.confirmed() == 4


@pytest.mark.requirement("MTL-46", "MTL-83", "MTL-114")
def test_a_reader_of_any_and_all_is_told_the_name(running: RunningBroker) -> None:
    with minimal_client(running.endpoint, "test") as client:
        reader = client.lease("Reader", resources=[], confirm="none")
        reader.summon("another", code=b"400")
        reader.summon("resource")
        writer = client.lease("Writer", resources=[], confirm="none")
        writer.content(1, b"no name is needed where there is one")
        writer.content(2, b"elsewhere", "another")
        assert reader.read()[1] == "resource"
        assert writer.receive() == (REJECT + u64(2) + b"\0\0", b"")


@pytest.mark.requirement("MTL-92", "MTL-93", "MTL-97", "MTL-98")
def test_confirms_and_rejects_get_no_answer_valid_or_not(client: MinimalClient) -> None:
    written(client, "settled", b"1", b"2", b"3", b"4")
    reader = client.lease("Reader", resources=["settled"], confirm="full", **earliest())
    reader.summon("settled")
    for _ in range(4):
        reader.read()
    for settle in (reader.confirm, reader.reject):
        settle(1)
        settle(1)  # settled before
        settle(2, multiple=True)
        settle(0, multiple=True)
        settle(99)
        settle(99, multiple=True)
    reader.quiet()


@pytest.mark.requirement("MTL-88", "MTL-90", "MTL-91", "MTL-94", "MTL-95", "MTL-96")
def test_a_lease_that_moves_redelivers_what_is_not_settled_in_order(client: MinimalClient) -> None:
    written(client, "moved", *(b"%d" % n for n in range(1, 8)))
    lease = client.granted("Reader", resources=["moved"], confirm="full", **earliest())
    first = client.connect(lease["port"])
    first.lease(lease["lease"])
    first.summon("moved")
    assert [first.read()[0] for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    first.confirm(2, multiple=True)
    first.reject(3)
    first.reject(4, recycle=True)
    first.quiet()  # all of that was taken in
    second = client.connect(lease["port"])
    second.lease(lease["lease"])
    second.quiet()  # nothing is summoned on a new flow
    second.summon("moved")
    got = [second.read() for _ in range(4)]
    assert [(x[0], x[3]) for x in got] == [(n, b"%d" % n) for n in (4, 5, 6, 7)]
    first.send(PING)  # what comes from the former flow is dropped; the lease stays where it is
    second.quiet()


# --- heartbeats ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-07", "MTL-99", "MTL-100", "MTL-101", "MTL-102", "MTL-103")
def test_pings_both_ways(client: MinimalClient) -> None:
    flow = written(client, "pulse")
    flow.quiet()
    assert flow.dealer.recv_multipart() == [PING, b""]  # silent for the half second of the configuration
    flow.send(PONG)
    assert flow.dealer.recv_multipart() == [PING, b""]


@pytest.mark.requirement("MTL-10", "MTL-104")
def test_a_peer_that_does_not_answer_loses_its_flow_and_not_its_lease(client: MinimalClient) -> None:
    written(client, "dead", b"1")
    lease = client.granted("Reader", resources=["dead"], confirm="full", **earliest())
    flow = client.connect(lease["port"])
    flow.lease(lease["lease"])
    flow.summon("dead")
    flow.read()
    pings = 0
    while flow.dealer.poll(1_500):  # until nothing comes for three intervals
        assert flow.dealer.recv_multipart() == [PING, b""]
        pings += 1
    assert pings in {1, 2, 3}
    flow.summon("dead", code=b"403")
    flow.lease(lease["lease"])
    flow.summon("dead")
    assert flow.read()[3] == b"1"


# --- one port for everything --------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-56")
def test_data_flows_on_the_control_socket(one_port: RunningBroker) -> None:
    with minimal_client(one_port.endpoint) as client:
        writer = written(client, "shared", *(b"%d" % n for n in range(1, 101)))
        reading = client.granted("Reader", resources=["shared"], confirm="full", **earliest())
        assert one_port.endpoint.endswith(f":{reading['port']}")
        reader = client.connect(reading["port"])
        reader.lease(reading["lease"])
        reader.summon("shared")
        assert [reader.read()[0] for _ in range(100)] == list(range(1, 101))
        for frames in ([b"\x05"], [b"a", b"b", b"c"], [b"", b"", b"", b""]):
            writer.dealer.send_multipart(frames)
        writer.quiet()


@pytest.mark.requirement("MTL-56")
def test_even_by_the_same_socket(one_port: RunningBroker) -> None:
    """A DEALER that puts REQ's delimiter before its requests: it asks for a lease and presents it on one connection."""
    with minimal_client(one_port.endpoint, "test") as client:
        flow = client.connect(int(one_port.endpoint.rpartition(":")[2]))
        replies: list[list[bytes]] = []
        for command, body in (
            (b"Connection.Open", b'{"protocol": {"name": "MTL", "version": 1}}'),
            (b"Connection.Profile", b'{"profile": "test"}'),
            (b"Connection.Writer", b'{"resources": []}'),
        ):
            flow.dealer.send_multipart([b"", command, body])
            replies.append(flow.dealer.recv_multipart())
        assert [x[:2] for x in replies] == [[b"", b"201"], [b"", b"200"], [b"", b"202"]]
        flow.lease(json.loads(replies[-1][2])["lease"])

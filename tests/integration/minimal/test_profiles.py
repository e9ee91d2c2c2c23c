"""RFC 11 and PROTOCOL.md on the wire, by a client without code of the project: profiles, heartbeats, sockets."""

from __future__ import annotations

import ast
import json
import struct
from pathlib import Path

import pytest

from mtl.testing import RunningBroker
from tests.support import minimal_client as module
from tests.support import minimal_scram
from tests.support.minimal_client import EMPTY, PING, PONG, MinimalClient, earliest, minimal_client, written


def test_the_minimal_client_imports_no_code_of_the_project() -> None:
    names = set()
    for part in (module, minimal_scram):
        tree = ast.parse(Path(str(part.__file__)).read_text(encoding="utf-8"))
        names |= {a.name for x in ast.walk(tree) if isinstance(x, ast.Import) for a in x.names}
        names |= {x.module or "" for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)}
    standard = {"base64", "contextlib", "hashlib", "hmac", "json", "os", "struct", "time", "typing"}
    assert names == standard | {"__future__", "collections.abc", "zmq", "tests.support.minimal_scram"}


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
            received = [reader.read() for _ in range(100)]
            assert [x[0] for x in received] == list(range(1, 101))
            assert [x[3] for x in received] == [b"%d" % n for n in range(1, 101)]
            assert {(x[1], x[2]) for x in received} == {("resource", EMPTY)}
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
    """Ten contents for two consumers: some are confirmed, some redelivered, one is a dead letter, one consumer dies."""
    with minimal_client(running.endpoint, "queue") as client:
        client.ask("Resource.Create", resource="tasks-dead")
        client.ask("Resource.Create", resource="tasks", **{"dead-letter": "tasks-dead"})
        consumers = [
            client.lease("Reader", resources=["tasks"], confirm="full", window={"contents": 5})
            for _ in range(2)
        ]
        for consumer in consumers:
            consumer.summon("tasks")
        bodies = [b"%d" % n for n in range(1, 11)]
        written(client, "tasks", *bodies)
        received = [[consumer.read() for _ in range(5)] for consumer in consumers]
        positions = [[position(x[2]) for x in mine] for mine in received]
        assert [x[0] for mine in received for x in mine] == [1, 2, 3, 4, 5] * 2  # deliveries, by lease
        assert sorted(positions[0] + positions[1]) == list(range(1, 11))
        assert [x[3] for mine in received for x in mine] == [b"%d" % n for n in positions[0] + positions[1]]
        assert not any(REDELIVERED in x[2] for mine in received for x in mine)

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
        for resource, expected in (("tasks-dead", [received[1][2][3]]), ("tasks", bodies)):
            reader = client.lease("Reader", resources=[resource], confirm="none", **earliest())
            reader.summon(resource)
            assert [reader.read()[3] for _ in expected] == expected


@pytest.mark.requirement("MTL-02")
def test_a_profile_defines_the_meaning_of_the_same_contents(running: RunningBroker) -> None:
    """The same commands of two readers and a writer: each reader has every content (log), or they share them (queue).
    The same sequences are positions, or count deliveries.
    """
    bodies = {}
    for profile in ("log", "queue"):
        name = f"meaning-{profile}"
        with minimal_client(running.endpoint, profile) as client:
            client.ask("Resource.Create", resource=name)
            readers = [
                client.lease("Reader", resources=[name], confirm="full", window={"contents": 2})
                for _ in range(2)
            ]
            for reader in readers:
                reader.summon(name)
            written(client, name, b"a", b"b", b"c", b"d")
            received = [[reader.read() for _ in range(2)] for reader in readers]
        assert [[content[0] for content in mine] for mine in received] == [[1, 2], [1, 2]]
        bodies[profile] = [[content[3] for content in mine] for mine in received]
    assert bodies["log"] == [[b"a", b"b"], [b"a", b"b"]]
    assert sorted(bodies["queue"][0] + bodies["queue"][1]) == [b"a", b"b", b"c", b"d"]


REDELIVERED = b"\x0fmtl-redeliveredt\x01"


def position(table: bytes) -> int:
    """The `mtl-sequence` of a field table."""
    (value,) = struct.unpack(">q", table.partition(b"\x0cmtl-sequencel")[2][:8])
    assert isinstance(value, int)
    return value


# --- heartbeats ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-07", "MTL-99", "MTL-100", "MTL-101", "MTL-102", "MTL-103")
def test_both_ends_answer_pings(pulsing: RunningBroker) -> None:
    with minimal_client(pulsing.endpoint) as client:
        flow = written(client, "pulse")
        flow.quiet()
        assert flow.dealer.recv_multipart() == [PING, b""]  # silent for the half second of the configuration
        flow.send(PONG)
        assert flow.dealer.recv_multipart() == [PING, b""]


@pytest.mark.requirement("MTL-10", "MTL-104")
def test_a_silent_peer_loses_its_flow_but_not_its_lease(pulsing: RunningBroker) -> None:
    with minimal_client(pulsing.endpoint) as client:
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
def test_control_and_data_share_one_dealer_socket(one_port: RunningBroker) -> None:
    """A DEALER that adds the delimiter of REQ to its requests: it requests and presents a lease on one connection."""
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

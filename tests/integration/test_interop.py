"""Other implementations: the three of 2011, by the frames that they send and answer, and a server of the RFC alone.

imatix/zmetal (C, client and server), squaremo/mtl (Erlang, a server) and squaremo/pyzmetal (Python, a client) end with
Connection.Open. What is theirs here are their octets: cJSON's tabs, the order of their members, their virtual hosts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

import mtl
from mtl.errors import OptionError, Refused, Unreachable
from mtl.limits import DEFAULT_ENDPOINT
from mtl.testing import RunningBroker, broker
from tests.support.minimal_server import MinimalServer

ZMETAL_OPEN = [
    b"Connection.Open",
    b'{\n\t"protocol":\t{\n\t\t"name":\t"MTL",\n\t\t"version":\t1\n\t},\n\t"virtual-host":\t"home"\n}',
]
PYZMETAL_OPEN = [
    b"Connection.Open",
    b'{"virtual-host": "test-env", "protocol": {"version": 1, "name": "MTL"}}',
]
ZMETAL_READY = b'{\n\t"status":\t"Ready",\n\t"profiles":\t["test"]\n}'
SQUAREMO_READY = b'{"status":"Ready","profiles":["test"]}'


# --- their clients, our broker ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    place = tmp_path_factory.mktemp("historic")
    (place / "broker.toml").write_text('virtual-hosts = ["/", "home", "test-env"]', encoding="utf-8")
    with broker(place / "data", place / "broker.toml") as started:
        yield started


def exchange(endpoint: str, frames: list[bytes]) -> list[bytes]:
    """The reply that a REQ gets for these frames."""
    context = zmq.Context()
    req = context.socket(zmq.REQ)
    req.setsockopt(zmq.LINGER, 0)
    req.setsockopt(zmq.RCVTIMEO, 10_000)
    req.connect(endpoint)
    try:
        req.send_multipart(frames)
        return req.recv_multipart()
    finally:
        req.close()
        context.term()


@pytest.mark.requirement("MTL-15", "MTL-16", "MTL-21", "MTL-22", "MTL-26")
@pytest.mark.parametrize("frames", [ZMETAL_OPEN, PYZMETAL_OPEN], ids=["zmetal", "pyzmetal"])
def test_open_requests_of_other_clients_are_accepted(running: RunningBroker, frames: list[bytes]) -> None:
    """zmetal expects two frames, one of six codes, and `status` among the members of the object."""
    code, body = exchange(running.endpoint, frames)
    ready = json.loads(body)
    assert (code, ready["status"]) == (b"201", "Ready")
    assert "test" in ready["profiles"]


def test_the_default_port_is_that_of_the_other_implementations() -> None:
    assert DEFAULT_ENDPOINT == "tcp://127.0.0.1:5975"


# --- our client, their servers ------------------------------------------------------------------------------


@contextmanager
def server(ready: bytes) -> Iterator[tuple[str, list[list[bytes]]]]:
    """A ROUTER that answers only Connection.Open, in four frames as the other servers do; and its received requests."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.LINGER, 0)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    asked: list[list[bytes]] = []
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            if router.poll(20):
                frames = router.recv_multipart()
                asked.append(frames[1:])
                if len(frames) == 4 and not frames[1] and frames[2].lower() == b"connection.open":
                    router.send_multipart([frames[0], b"", b"201", ready])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{port}", asked
    finally:
        over.set()
        thread.join()
        router.close()
        context.term()


@pytest.mark.requirement("MTL-05", "MTL-21", "MTL-26", "MTL-35")
@pytest.mark.parametrize("ready", [ZMETAL_READY, SQUAREMO_READY], ids=["zmetal", "squaremo-mtl"])
def test_a_session_with_other_servers_opens_and_their_silence_is_reported(ready: bytes) -> None:
    with server(ready) as (endpoint, asked):
        with pytest.raises(Unreachable, match=r"Connection\.Profile"):
            mtl.connect(endpoint, profile="test", request_timeout=0.2, retry_deadline=0.5)
        empty, command, body = asked[0]
        assert (empty, command) == (b"", b"Connection.Open")
        assert json.loads(body)["protocol"] == {"name": "MTL", "version": 1}
        assert asked[1][1] == b"Connection.Profile"


# --- our client, a server of the RFC alone ------------------------------------------------------------------


@pytest.mark.requirement("MTL-13", "MTL-54", "MTL-56", "MTL-116", "MTL-117")
def test_the_client_works_with_a_server_of_the_rfc_alone() -> None:
    with MinimalServer() as server, mtl.connect(server.endpoint, profile="test") as c:
        with c.reader("resource") as reader, c.writer("resource") as writer:
            assert reader.next(timeout=0.1) is None  # summoned by now
            for number in range(100):
                writer.send(b"%d" % number, properties={"n": number})
            writer.flush()
            received = [reader.next(timeout=10) for _ in range(100)]
        assert [x.body for x in received if x is not None] == [b"%d" % n for n in range(100)]
        assert [x.properties for x in received if x is not None] == [{"n": n} for n in range(100)]
        sent = {name: set(body) for name, body in server.requests}
        assert sent["connection.open"] <= {"protocol", "virtual-host"}
        assert sent["connection.reader"] | sent["connection.writer"] == {"resources", "confirm"}


def test_features_missing_in_a_server_of_the_rfc_alone_are_named_errors() -> None:
    with MinimalServer() as server, mtl.connect(server.endpoint, profile="test") as c:
        with pytest.raises(Refused, match="501"):
            c.writer("resource", confirm="full")
        with pytest.raises(OptionError, match="packed"):
            c.reader("resource", packed=True)


@pytest.mark.requirement("MTL-10", "MTL-103", "MTL-104")
def test_a_server_without_pongs_is_reconnected_with_the_same_lease() -> None:
    with (
        MinimalServer(silent=True) as server,
        mtl.connect(server.endpoint, profile="test", heartbeat=0.1) as c,
        c.reader("resource") as reader,
        c.writer("resource") as writer,
    ):
        assert reader.next(timeout=1.0) is None
        assert server.leases.count("lease 0") >= 2
        writer.send(b"after it")
        content = reader.next(timeout=10)
        assert content is not None
        assert content.body == b"after it"

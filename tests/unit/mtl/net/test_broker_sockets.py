from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from mtl.net.broker_sockets import BrokerSockets, is_command
from mtl.net.ports import Port
from mtl.net.router import Sent
from mtl.net.wakeup import Wakeup

PATIENCE_MS = 10_000


class Setting:
    def __init__(self, endpoint: str, *, shared: bool = False) -> None:
        self.wakeup = Wakeup()
        self.sockets = BrokerSockets(endpoint, 0, 0, self.wakeup.fileno(), shared=shared)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.peers: list[zmq.Socket[bytes]] = []

    def peer(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        made = self.context.socket(kind)
        made.set(zmq.LINGER, 0)
        made.connect(endpoint)
        self.peers.append(made)
        return made

    def close(self) -> None:
        for peer in self.peers:
            peer.close(0)
        self.context.term()
        self.sockets.close()
        self.wakeup.close()


@pytest.fixture
def at() -> Iterator[Setting]:
    setting = Setting("tcp://127.0.0.1:0")
    yield setting
    setting.close()


def test_requests_and_commands_arrive_at_their_own_ports(at: Setting) -> None:
    request = at.peer(zmq.REQ, at.sockets.control.endpoint)
    request.send_multipart([b"Connection.Open", b"{}"])
    assert at.sockets.poll(PATIENCE_MS) == {Port.CONTROL}
    [frames] = at.sockets.requests()
    assert frames[-3:] == [b"", b"Connection.Open", b"{}"]
    at.sockets.control.send(*frames[:-2], b"201", b"{}")
    assert request.recv_multipart() == [b"201", b"{}"]
    for port, router in ((Port.PACKED, at.sockets.packed), (Port.PLAIN, at.sockets.plain)):
        peer = at.peer(zmq.DEALER, router.endpoint)
        peer.send_multipart([b"ill-formed"])
        peer.send_multipart([b"header", b"body"])
        found: list[tuple[bytes, bytes, bytes]] = []
        while not found:
            assert at.sockets.poll(PATIENCE_MS) == {port}
            for one, burst in next(at.sockets.commands(port), {}).items():
                found += [
                    (one, *command) for command in zip(burst.headers, map(bytes, burst.bodies), strict=True)
                ]
        [(identity, header, body)] = found
        assert (header, body) == (b"header", b"body")
        assert at.sockets.send(port, identity, b"back", b"again") is Sent.OK
        assert peer.recv_multipart() == [b"back", b"again"]
    assert at.sockets.misframed == 2
    assert at.sockets.send(Port.PLAIN, b"nobody", b"", b"") is Sent.GONE


def test_a_wakeup_ends_the_poll(at: Setting) -> None:
    at.wakeup.wake()
    assert at.sockets.poll(PATIENCE_MS) == set()


def test_without_tcp_the_data_sockets_lie_beside_the_control_socket(tmp_path: Path) -> None:
    setting = Setting(f"ipc://{tmp_path}/broker")
    assert setting.sockets.packed.endpoint == f"ipc://{tmp_path}/broker.packed"
    assert setting.sockets.plain.endpoint == f"ipc://{tmp_path}/broker.plain"
    assert (setting.sockets.plain.port, setting.sockets.control.port) == (0, 0)
    setting.close()


@pytest.mark.requirement("MTL-56")
def test_one_socket_for_everything(tmp_path: Path) -> None:
    setting = Setting(f"ipc://{tmp_path}/broker", shared=True)
    assert setting.sockets.packed is setting.sockets.plain is setting.sockets.control
    peer = setting.peer(zmq.DEALER, setting.sockets.control.endpoint)
    peer.send_multipart([b"header", b"body"])
    peer.send_multipart([b"", b"Connection.Open", b"{}"])
    found: list[list[bytes]] = []
    while len(found) < 2:
        assert setting.sockets.poll(PATIENCE_MS) == {Port.CONTROL}
        found += setting.sockets.requests()
    assert [x[1:] for x in found] == [[b"header", b"body"], [b"", b"Connection.Open", b"{}"]]
    assert setting.sockets.send(Port.CONTROL, found[0][0], b"back", b"") is Sent.OK
    assert peer.recv_multipart() == [b"back", b""]
    setting.close()


@pytest.mark.parametrize(
    ("frames", "command"),
    [
        ([b"id", b"header", b"body"], True),
        ([b"id", b"header", b""], True),
        ([b"id", b"", b"Connection.Open", b"{}"], False),
        ([b"id", b"correlation", b"", b"Connection.Open", b"{}"], False),
        ([b"id", b"", b"body"], False),
        ([b"id", b"header"], False),
        ([b"id"], False),
    ],
)
def test_what_is_a_data_command_on_a_shared_socket(frames: list[bytes], command: bool) -> None:
    assert is_command(frames) is command

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from mtl.net.broker_sockets import BrokerSockets
from mtl.net.ports import Port
from mtl.net.router import Sent
from mtl.net.wakeup import Wakeup

PATIENCE_MS = 10_000


class Setting:
    def __init__(self, endpoint: str) -> None:
        self.wakeup = Wakeup()
        self.sockets = BrokerSockets(endpoint, 0, 0, self.wakeup.fileno())
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
            found += [(one, header, bytes(body)) for one, header, body in at.sockets.commands(port)]
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

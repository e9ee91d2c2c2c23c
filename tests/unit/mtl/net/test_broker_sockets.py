from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from mtl.net import limits as net_limits
from mtl.net.broker_sockets import BrokerCurve, BrokerSockets, Unsent, is_command
from mtl.net.curve import as_client, make_keys
from mtl.net.endpoint import Curve
from mtl.net.origin import Origin, key_of
from mtl.net.outgoing import Outgoing
from mtl.net.ports import Port
from mtl.net.router import SendOutcome
from mtl.net.wakeup import Wakeup

PATIENCE_MS = 10_000

LEASE = b"\x01"
"""The first octet of a Lease's header."""


class Setting:
    def __init__(
        self, endpoint: str, *, shared: bool = False, curve: BrokerCurve | None = None, most_open: int = 100
    ) -> None:
        self.wakeup = Wakeup()
        self.sockets = BrokerSockets(
            endpoint,
            0,
            0,
            self.wakeup.fileno(),
            shared=shared,
            curve=curve,
            most_open=most_open,
            unsent=Unsent(Outgoing(1 << 30), Outgoing(1 << 30)),
        )
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.peers: list[zmq.Socket[bytes]] = []

    def peer(self, kind: int, endpoint: str, curve: Curve | None = None) -> zmq.Socket[bytes]:
        made = self.context.socket(kind)
        made.set(zmq.LINGER, 0)
        if curve is not None:
            as_client(made, curve)
        made.connect(endpoint)
        self.peers.append(made)
        return made

    def poll(self) -> set[Port]:
        """The ports with messages to read, after earlier handshakes."""
        until = time.monotonic() + PATIENCE_MS / 1000
        while not (readable := self.sockets.poll(PATIENCE_MS)) and time.monotonic() < until:
            pass
        return readable

    def await_open(self, count: int) -> None:
        """Poll until this address has this number of connections."""
        until = time.monotonic() + PATIENCE_MS / 1000
        while self.sockets._opened._counts.of("127.0.0.1") != count:
            assert time.monotonic() < until, "a connection was not told of"
            self.sockets.poll(100)

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


def test_requests_and_commands_are_received_on_their_ports(at: Setting) -> None:
    request = at.peer(zmq.REQ, at.sockets.control.endpoint)
    request.send_multipart([b"Connection.Open", b"{}"])
    assert at.poll() == {Port.CONTROL}
    [(frames, origin)] = at.sockets.requests()
    assert origin == Origin("127.0.0.1", "1")
    assert frames[-3:] == [b"", b"Connection.Open", b"{}"]
    at.sockets.reply((*frames[:-2], b"201", b"{}"), "me")
    assert request.recv_multipart() == [b"201", b"{}"]
    for port, router in ((Port.PACKED, at.sockets.packed), (Port.PLAIN, at.sockets.plain)):
        peer = at.peer(zmq.DEALER, router.endpoint)
        peer.send_multipart([b"ill-formed"])
        peer.send_multipart([b"header", b"body"])
        found: list[tuple[bytes, bytes, bytes]] = []
        while not found:
            assert at.poll() == {port}
            for sender, burst in next(at.sockets.commands(port), {}).items():
                found += [
                    (sender, *command)
                    for command in zip(burst.headers, map(bytes, burst.bodies), strict=True)
                ]
        [(identity, header, body)] = found
        assert (header, body) == (b"header", b"body")
        assert at.sockets.send((port, identity), b"back", b"again", "me") is SendOutcome.OK
        assert peer.recv_multipart() == [b"back", b"again"]
    assert sum(router.misframed for router in at.sockets._by_port.values()) == 2
    assert at.sockets.send((Port.PLAIN, b"nobody"), b"", b"", "me") is SendOutcome.GONE


def test_the_first_message_is_received_singly_and_those_behind_it_later(at: Setting) -> None:
    peer = at.peer(zmq.DEALER, at.sockets.plain.endpoint)
    for number in range(4):
        peer.send_multipart([b"%d" % number, b""])
    taken: list[list[bytes]] = []
    while sum(map(len, taken)) < 4:
        assert at.poll() == {Port.PLAIN}
        for bursts in at.sockets.commands(Port.PLAIN, alone=len(taken) < 2):
            taken += [burst.headers for burst in bursts.values()]
    assert taken[:2] == [[b"0"], [b"1"]]
    assert [header for some in taken for header in some] == [b"0", b"1", b"2", b"3"]


def test_a_wakeup_ends_the_poll(at: Setting) -> None:
    at.wakeup.wake()
    assert at.poll() == set()
    assert at.sockets.woken
    at.wakeup.clear()
    assert at.sockets.poll(0) == set()
    assert not at.sockets.woken


def test_ipc_data_sockets_are_in_the_directory_of_the_control_socket(tmp_path: Path) -> None:
    setting = Setting(f"ipc://{tmp_path}/broker")
    assert setting.sockets.packed.endpoint == f"ipc://{tmp_path}/broker.packed"
    assert setting.sockets.plain.endpoint == f"ipc://{tmp_path}/broker.plain"
    assert (setting.sockets.plain.port, setting.sockets.control.port) == (0, 0)
    setting.close()


@pytest.mark.requirement("MTL-56")
def test_a_shared_socket_receives_requests_and_commands(tmp_path: Path) -> None:
    setting = Setting(f"ipc://{tmp_path}/broker", shared=True)
    assert setting.sockets.packed is setting.sockets.plain is setting.sockets.control
    peer = setting.peer(zmq.DEALER, setting.sockets.control.endpoint)
    peer.send_multipart([b"header", b"body"])
    peer.send_multipart([b"", b"Connection.Open", b"{}"])
    found: list[list[bytes]] = []
    while len(found) < 2:
        assert setting.poll() == {Port.CONTROL}
        found += [frames for frames, _ in setting.sockets.requests()]
    assert [x[1:] for x in found] == [[b"header", b"body"], [b"", b"Connection.Open", b"{}"]]
    assert setting.sockets.send((Port.CONTROL, found[0][0]), b"back", b"", "me") is SendOutcome.OK
    assert peer.recv_multipart() == [b"back", b""]
    setting.close()


@pytest.mark.parametrize("shared", [False, True])
def test_behind_curve_requests_and_leases_have_the_key_of_their_sender(*, shared: bool) -> None:
    public, secret = make_keys()
    asked: list[str] = []

    def admits(key: str) -> bool:
        asked.append(key)
        return True

    setting = Setting("tcp://127.0.0.1:0", shared=shared, curve=BrokerCurve(secret, admits))
    mine = Curve(public, *make_keys())
    key = mine.public.decode()
    request = setting.peer(zmq.REQ, setting.sockets.control.endpoint, mine)
    request.send_multipart([b"Connection.Open", b"{}"])
    found: list[tuple[list[bytes], Origin]] = []
    while not found:
        assert setting.poll() <= {Port.CONTROL}
        found += setting.sockets.requests()
    assert found[0][1] == Origin("127.0.0.1", f"1 {key}")
    assert set(asked) == {key}
    if not shared:
        peer = setting.peer(zmq.DEALER, setting.sockets.plain.endpoint, mine)
        for header in (b"other", b"another", LEASE + b"...", b"other"):
            peer.send_multipart([header, b""])
        leased: list[tuple[bytes, str]] = []
        while not leased:
            setting.poll()
            for burst in next(setting.sockets.commands(Port.PLAIN), {}).values():
                leased += [
                    (header, key_of(burst.connection)) for header in burst.headers if header.startswith(LEASE)
                ]
        assert leased == [(LEASE + b"...", key)]
    setting.close()


@pytest.mark.parametrize("wrong", ["none", "server", "denied"])
def test_behind_curve_peers_with_wrong_keys_are_not_received(wrong: str) -> None:
    public, secret = make_keys()
    setting = Setting("tcp://127.0.0.1:0", curve=BrokerCurve(secret, lambda _: wrong != "denied"))
    keys = {
        "none": None,
        "server": Curve(make_keys()[0], *make_keys()),
        "denied": Curve(public, *make_keys()),
    }[wrong]
    made = setting.context.socket(zmq.REQ)
    setting.peers.append(made)
    if keys is not None:
        as_client(made, keys)
    monitor = made.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    made.connect(setting.sockets.control.endpoint)
    for _ in range(PATIENCE_MS // 10):
        setting.sockets.poll(10)
        if monitor.poll(0):
            break
    (event,) = struct.unpack_from("=H", monitor.recv_multipart(zmq.NOBLOCK)[0])
    assert event == zmq.EVENT_DISCONNECTED
    assert list(setting.sockets.requests()) == []
    made.disable_monitor()
    monitor.close(0)
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
def test_data_commands_on_a_shared_socket_are_recognised_by_their_frames(
    frames: list[bytes], command: bool
) -> None:
    assert is_command(frames) is command


@pytest.mark.parametrize("shared", [False, True])
def test_connections_of_an_address_are_bounded_over_all_sockets(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent connection counts, and a closed one makes room for the next. libzmq closes a connection that was not
    admitted when the time for its handshake is over; its peer connects again.
    """
    monkeypatch.setattr(net_limits, "HANDSHAKE_MS", 300)
    setting = Setting("tcp://127.0.0.1:0", shared=shared, most_open=2)
    try:
        silent = setting.peer(zmq.DEALER, setting.sockets.plain.endpoint)
        first = setting.peer(zmq.REQ, setting.sockets.control.endpoint)
        first.send_multipart([b"Connection.Open", b"{}"])
        assert Port.CONTROL in setting.poll()
        assert len(list(setting.sockets.requests())) == 1
        setting.await_open(2)
        second = setting.peer(zmq.REQ, setting.sockets.control.endpoint)
        second.send_multipart([b"Connection.Open", b"{}"])
        while not setting.sockets._zap.hurried:
            setting.sockets.poll(PATIENCE_MS)
        assert not list(setting.sockets.requests())
        silent.close(0)
        until = time.monotonic() + PATIENCE_MS / 1000
        while Port.CONTROL not in setting.poll():  # libzmq's peer connects again
            assert time.monotonic() < until
        assert len(list(setting.sockets.requests())) == 1
    finally:
        setting.close()

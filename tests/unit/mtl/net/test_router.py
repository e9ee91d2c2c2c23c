from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from random import Random

import pytest
import zmq

from mtl.net import limits as net_limits
from mtl.net.limits import GROUP, MESSAGE_OVERHEAD, ZERO_COPY
from mtl.net.origin import Origin
from mtl.net.outgoing import Account, Outgoing
from mtl.net.pace import Pace
from mtl.net.router import BindFailed, RouterSocket, SendOutcome, seed_identities
from mtl.net.zap import ZapHandler
from tests.hostile.harness import own_memory
from tests.support.cutting_proxy import HERE, CuttingProxy
from tests.support.zmtp import RawPeer

PATIENCE_MS = 10_000

ACCOUNT = Account(Outgoing(1 << 40), "me")


class Setting:
    """A router of the broker with its ZAP handler, and a plain DEALER connected to it."""

    def __init__(self, hwm: int = 1_000, max_queued: int | None = None, *, zap: bool = True) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.zap = ZapHandler(self.context, None, Pace(time.monotonic))
        self.router = RouterSocket(
            self.context, "tcp://127.0.0.1:*", hwm=hwm, max_frame=1 << 20, max_queued=max_queued, zap=zap
        )
        self.judges = zap
        self.peers: list[zmq.Socket[bytes]] = []
        self.peer = self.dealer()

    def dealer(self, identity: bytes = b"", *, hwm: int = 1_000) -> zmq.Socket[bytes]:
        """A peer whose handshake is over."""
        peer = self.context.socket(zmq.DEALER)
        self.peers.append(peer)
        peer.set(zmq.LINGER, 0)
        peer.set(zmq.RCVHWM, hwm)
        if identity:
            peer.set(zmq.IDENTITY, identity)
        peer.connect(self.router.endpoint)
        if self.judges:
            assert self.zap.socket.poll(PATIENCE_MS)
            self.zap.answer()
        return peer

    def send(self, *frames: bytes) -> None:
        self.peer.send_multipart(frames)
        assert self.router.socket.poll(PATIENCE_MS)

    def identity(self) -> bytes:
        self.send(b"hello", b"")
        received = self.router.receive()
        assert received is not None
        return received[0][0]

    def close(self) -> None:
        for peer in self.peers:
            peer.close(0)
        self.router.close()
        self.zap.close()
        self.context.term()


class MutingProxy(CuttingProxy):
    """Drops all octets once it is `muted`; the connections stay open."""

    def __init__(self, port: int) -> None:
        self.pinged, self.muted = threading.Event(), threading.Event()
        super().__init__(port)

    def _ways(
        self, pair: tuple[socket.socket, socket.socket]
    ) -> Iterable[tuple[socket.socket, socket.socket]]:
        return () if self.muted.is_set() else super()._ways(pair)

    def _pass_on(self, source: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            if b"PING" in source.recv(1 << 16, socket.MSG_PEEK):
                self.pinged.set()
        super()._pass_on(source, other)


@pytest.fixture
def at() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    setting.close()


@pytest.fixture
def narrow() -> Iterator[Setting]:
    """A setting with queues of two messages at either end."""
    setting = Setting(hwm=2)
    setting.peer.set(zmq.RCVHWM, 2)
    yield setting
    setting.close()


@pytest.mark.requirement("MTL-20", "MTL-113")
def test_a_message_starts_with_the_identity_that_addresses_the_answer(at: Setting) -> None:
    assert at.router.receive() is None
    at.send(b"", b"Connection.Open", b"{}")
    answer = at.router.receive()
    assert answer is not None
    received, origin = answer
    assert origin == Origin("127.0.0.1", "1")
    assert received[1:] == [b"", b"Connection.Open", b"{}"]
    assert at.router.send((*received[:2], b"201", b"{}"), ACCOUNT) is SendOutcome.OK
    assert at.peer.recv_multipart() == [b"", b"201", b"{}"]


@pytest.mark.requirement("MTL-57", "MTL-110")
@pytest.mark.parametrize("view", [True, False])
def test_a_command_has_two_frames(at: Setting, view: bool) -> None:
    assert at.router.receive_commands(10, view=view) == {}
    wrong = ([b"one"], [b"1", b"2", b"3"], [b"1", b"2", b"3", b"4"], [b"1", b"2", b"3", b"4", b"5", b"6"])
    for frames in wrong:
        at.peer.send_multipart(frames)
    at.send(b"header", b"body")
    commands: list[tuple[bytes, bytes]] = []
    while not commands:
        for burst in at.router.receive_commands(10, view=view).values():
            commands += zip(burst.headers, map(bytes, burst.bodies), strict=True)
    assert (commands, at.router.misframed) == ([(b"header", b"body")], len(wrong))


@pytest.mark.parametrize("view", [True, False])
def test_large_bodies_are_received_without_a_copy(at: Setting, view: bool) -> None:
    sizes = {1: bytes, net_limits.VIEWED - 1: bytes, net_limits.VIEWED: memoryview if view else bytes}
    for size, kind in sizes.items():
        at.send(b"header", bytes(size))
        (burst,) = at.router.receive_commands(1, view=view).values()
        assert (len(burst.bodies[0]), type(burst.bodies[0])) == (size, kind)


def test_a_small_body_keeps_no_other_memory(at: Setting) -> None:
    """Bodies that come one by one and are kept, as in the cache of a log's newest packs."""
    kept: list[object] = []
    before = 0.0
    for number in range(3_000):
        at.send(b"header", bytes(400))
        kept += at.router.receive_commands(1, view=True).values()
        if number == 1_000:
            before = own_memory(os.getpid())
    assert own_memory(os.getpid()) - before < 8


@pytest.mark.requirement("MTL-110")
def test_ill_framed_messages_do_not_affect_other_peers(at: Setting) -> None:
    other = at.dealer()
    peers, names = (at.peer, other), []
    for peer in peers:
        peer.send_multipart([b"hello", b""])
        assert at.router.socket.poll(PATIENCE_MS)
        received = at.router.receive()
        assert received is not None
        names.append(received[0][0])
    random = Random(11)
    for _ in range(30):
        expected: dict[bytes, list[tuple[bytes, bytes]]] = {name: [] for name in names}
        wrong = 0
        for number in range(20):
            at_peer = random.randrange(2)
            frames = [b"%d" % number, *[names[1 - at_peer]] * random.choice([0, 1, 1, 1, 2, 3, 4])]
            peers[at_peer].send_multipart(frames)
            if len(frames) == 2:
                expected[names[at_peer]].append((frames[0], frames[1]))
            wrong += len(frames) != 2
        arrived: dict[bytes, list[tuple[bytes, bytes]]] = {name: [] for name in names}
        before = at.router.misframed
        while sum(map(len, arrived.values())) + at.router.misframed - before < 20:
            assert at.router.socket.poll(PATIENCE_MS)
            for name, burst in at.router.receive_commands(1_000, view=False).items():
                arrived[name] += zip(burst.headers, map(bytes, burst.bodies), strict=True)
        assert (arrived, at.router.misframed - before) == (expected, wrong)


def test_bursts_are_grouped_by_peer_in_order_and_bounded(at: Setting) -> None:
    other = at.dealer()
    for number in range(20):
        for name, peer in ((b"a", at.peer), (b"b", other)):
            peer.send_multipart([name + b"%d" % number, b"body"])
    received: dict[bytes, list[bytes]] = {}
    while sum(map(len, received.values())) < 40:
        assert at.router.socket.poll(PATIENCE_MS)
        bursts = at.router.receive_commands(7, view=False)
        assert 1 <= sum(len(burst.headers) for burst in bursts.values()) <= 7
        for identity, burst in bursts.items():
            received.setdefault(identity, []).extend(burst.headers)
    assert sorted(received.values()) == [[name + b"%d" % n for n in range(20)] for name in (b"a", b"b")]


def test_a_burst_of_large_bodies_is_bounded_in_octets(at: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.net.limits.BURST_BODIES", 10_000)
    for number in range(10):
        at.send(b"%d" % number, bytes(4_000))
    arrived: list[bytes] = []
    while len(arrived) < 10:
        assert at.router.socket.poll(PATIENCE_MS)
        (burst,) = at.router.receive_commands(100, view=False).values()
        assert sum(map(len, burst.bodies)) <= 12_000
        arrived += burst.headers
    assert arrived == [b"%d" % number for number in range(10)]


# --- connections --------------------------------------------------------------------------------------------


def received_bursts(at: Setting, patience_ms: int = PATIENCE_MS) -> dict[bytes, tuple[str, list[bytes]]]:
    """Per identity: the connection of a burst, and its headers."""
    at.router.socket.poll(patience_ms)
    bursts = at.router.receive_commands(100, view=False)
    return {name: (burst.connection, burst.headers) for name, burst in bursts.items()}


def ended(at: Setting) -> list[str]:
    assert at.router.monitor is not None
    assert at.router.monitor.poll(PATIENCE_MS)
    return at.router.ended()


def announced(at: Setting, identity: bytes) -> tuple[str, list[bytes]]:
    """A burst of another peer under this identity, as soon as libzmq accepts the identity."""
    while True:
        thief = at.dealer(identity)
        thief.send_multipart([b"from the thief", b""])
        if found := received_bursts(at, 200):
            return found[identity]


def test_an_identity_announced_by_another_peer_is_another_connection(at: Setting) -> None:
    victim = at.dealer(b"victim")
    victim.send_multipart([b"from the victim", b""])
    first, headers = received_bursts(at)[b"victim"]
    assert (headers, at.router.ended()) == ([b"from the victim"], [])
    victim.close(0)
    assert ended(at) == [first]
    second, headers = announced(at, b"victim")
    assert headers == [b"from the thief"]
    assert second != first


def test_the_end_of_a_connection_is_reported_before_its_descriptor_is_reused(at: Setting) -> None:
    """The second connection is noted before the end of the first is read, which must not end the second."""
    first = at.dealer()
    first.send_multipart([b"first", b""])
    ((former, _),) = received_bursts(at).values()
    first.close(0)
    assert at.router.monitor is not None
    assert at.router.monitor.poll(PATIENCE_MS)
    second = at.dealer()
    second.send_multipart([b"second", b""])
    ((latter, _),) = received_bursts(at).values()
    assert at.router.ended() == [former]
    assert at.router.ended() == []
    second.close(0)
    assert ended(at) == [latter]


def test_a_burst_of_two_connections_is_dropped(at: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count()
    monkeypatch.setattr("mtl.net.router._connection", lambda _: str(next(numbers)))
    monkeypatch.setattr(at.router, "_register", lambda _: str(next(numbers)))
    while not at.router.mixed:
        for _ in range(2):
            at.peer.send_multipart([b"header", b""])
        assert all(len(headers) == 1 for _, headers in received_bursts(at).values())


def test_a_large_body_arrives_whole(at: Setting) -> None:
    body = bytes(range(256)) * (ZERO_COPY // 128)
    assert at.router.send_command(at.identity(), b"header", memoryview(body), ACCOUNT) is SendOutcome.OK
    assert at.peer.recv_multipart() == [b"header", body]


def test_a_send_to_an_unknown_peer_returns_gone(at: Setting) -> None:
    assert at.router.send_command(b"nobody", b"header", b"", ACCOUNT) is SendOutcome.GONE


def test_a_full_queue_is_reported_and_no_message_is_lost(narrow: Setting) -> None:
    """Room appears when the socket buffers accept one more, so each send may have either result; the buffers hold far
    less than the sent octets.
    """
    identity = narrow.identity()
    outcomes = {
        b"%d" % n: narrow.router.send_command(identity, b"%d" % n, b"x" * 100_000, ACCOUNT)
        for n in range(1_000)
    }
    assert set(outcomes.values()) == {SendOutcome.OK, SendOutcome.FULL}
    taken = [header for header, answer in outcomes.items() if answer is SendOutcome.OK]
    assert [narrow.peer.recv_multipart()[0] for _ in taken] == taken
    while narrow.router.send_command(identity, b"last", b"", ACCOUNT) is not SendOutcome.OK:
        pass  # room is told of a moment after the receiver has it
    assert narrow.peer.recv_multipart()[0] == b"last"


def test_octets_queued_for_a_peer_are_bounded_and_not_lost() -> None:
    """The high-water mark alone would allow a thousand of these messages."""
    size, most = 1 << 20, 8 << 20
    at = Setting(hwm=1_000, max_queued=most)
    at.peer.set(zmq.RCVHWM, 1)
    identity = at.identity()
    body, sent = bytes(size), 0
    while (outcome := at.router.send_command(identity, b"%d" % sent, body, ACCOUNT)) is SendOutcome.OK:
        sent += 1
        assert sent < 200, "the socket buffers hold far less"
    assert outcome is SendOutcome.FULL
    assert sent >= most // size
    assert at.router.send_command(identity, b"small", b"", ACCOUNT) is SendOutcome.OK
    received = [at.peer.recv_multipart()[0] for _ in range(sent + 1)]
    assert received == [*(b"%d" % number for number in range(sent)), b"small"]
    while at.router.send_command(identity, b"again", body, ACCOUNT) is not SendOutcome.OK:
        pass  # the last ones are freed a moment later
    assert at.peer.recv_multipart()[0] == b"again"
    at.close()


def test_receive_and_send_queues_have_separate_bounds() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = RouterSocket(context, "tcp://127.0.0.1:*", hwm=1_000, max_frame=1 << 20, max_waiting=4)
    assert (router.socket.get(zmq.SNDHWM), router.socket.get(zmq.RCVHWM)) == (1_000, 4)
    router.close()
    context.term()


@pytest.mark.parametrize("size", [10, ZERO_COPY])
def test_a_run_of_commands_is_sent_until_the_queue_is_full(narrow: Setting, size: int) -> None:
    identity = narrow.identity()
    headers = [b"%d" % number for number in range(3_000)]
    bodies = [memoryview(bytes(size))] * len(headers)
    sent = 0
    while (result := narrow.router.send_commands(identity, headers[sent:], bodies[sent:], ACCOUNT))[
        1
    ] is SendOutcome.FULL:
        sent += result[0]
        for _ in range(sent):
            frames = narrow.peer.recv_multipart()
            assert frames == [headers.pop(0), bytes(size)]
            bodies.pop()
        sent = 0
    assert result == (len(headers), SendOutcome.OK)
    assert narrow.router.send_commands(b"nobody", [b"header"], [b""], ACCOUNT) == (0, SendOutcome.GONE)


def test_an_endpoint_in_use_is_named_in_the_error(at: Setting) -> None:
    assert at.router.port > 0
    with pytest.raises(BindFailed, match=at.router.endpoint):
        RouterSocket(at.context, at.router.endpoint, hwm=1, max_frame=1)


def test_identities_can_be_seeded() -> None:
    seed_identities()


def test_a_peer_detects_a_broker_that_vanished_without_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss of its host the connection is never closed, and a waiting client would wait for ever."""
    monkeypatch.setattr(net_limits, "ZMTP_HEARTBEAT_MS", 100)
    monkeypatch.setattr(net_limits, "ZMTP_TIMEOUT_MS", 500)
    at = Setting(zap=False)
    port = int(at.router.endpoint.rpartition(":")[2])
    far = at.context.socket(zmq.DEALER)
    monitor = far.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    try:
        with MutingProxy(port) as proxy:
            far.connect(f"tcp://{HERE}:{port}")
            assert proxy.pinged.wait(PATIENCE_MS / 1000)  # a heartbeat says how long to wait for the next
            proxy.muted.set()
            assert monitor.poll(PATIENCE_MS)
    finally:
        far.disable_monitor()
        monitor.close(0)
        far.close(0)
        at.close()


def test_a_peer_that_acknowledges_tcp_segments_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers to heartbeats are not awaited: a timer per peer had quadratic cost."""
    monkeypatch.setattr(net_limits, "ZMTP_HEARTBEAT_MS", 10)
    monkeypatch.setattr(net_limits, "ZMTP_TIMEOUT_MS", 100)
    at = Setting(zap=False)
    silent = RawPeer(at.router.endpoint).shake_hands()
    pings, size = 30, len(b"\4\7\4PING..")
    try:
        assert len(silent.socket.makefile("rb").read(pings * size)) == pings * size, "it was cut off"
        assert at.router.socket.getsockopt(zmq.TCP_MAXRT) == net_limits.ZMTP_TIMEOUT_MS
    finally:
        silent.close()
        at.close()


def test_small_messages_count_in_groups_and_leave_the_count_when_they_are_read(at: Setting) -> None:
    pool = Outgoing(1 << 40)
    account = Account(pool, "me")
    identity, size = at.identity(), 1_000
    assert at.router.send_command(identity, b"header", bytes(size), account) is SendOutcome.OK
    assert pool.octets == 0, "the group has only begun"
    many = 50_000  # more than the buffers of the system hold
    sent, outcome = at.router.send_commands(identity, [b"h"] * many, [bytes(size)] * many, account)
    assert outcome is SendOutcome.FULL
    assert 0 < pool.octets <= (sent + 1) * (size + MESSAGE_OVERHEAD + 10)
    for _ in range(sent + 1):
        assert len(at.peer.recv_multipart()[1]) == size
    until = time.monotonic() + PATIENCE_MS / 1000
    while pool.octets:
        assert time.monotonic() < until
        pool.most()  # libzmq says it a moment later


@pytest.mark.parametrize("size", [0, 10, ZERO_COPY])
def test_without_room_for_its_owner_nothing_is_sent(at: Setting, size: int) -> None:
    full = Outgoing(0)
    at.peer = at.dealer(hwm=1)
    identity, account = at.identity(), Account(full, "me")
    many = 400  # more than the buffers of the system hold, so that libzmq sends nothing of what follows
    before = at.router.send_commands(identity, [b"before"] * many, [bytes(ZERO_COPY)] * many, ACCOUNT)
    assert before == (many, SendOutcome.OK)
    sent = 0
    while at.router.send_command(identity, b"header", bytes(size), account) is SendOutcome.OK:
        sent += 1
        assert sent < 2 * GROUP
    assert not at.router.has_room(identity, ZERO_COPY, account)
    assert at.router.send_commands(identity, [b"header"], [bytes(GROUP)], account) == (0, SendOutcome.FULL)
    assert at.router.send_command(identity, b"other", b"", ACCOUNT) is SendOutcome.OK
    for _ in range(many):
        assert at.peer.recv_multipart()[0] == b"before"
    for _ in range(sent):
        assert at.peer.recv_multipart() == [b"header", bytes(size)]
    assert at.peer.recv_multipart() == [b"other", b""]
    until = time.monotonic() + PATIENCE_MS / 1000
    while at.router.send_command(identity, b"again", bytes(GROUP), account) is not SendOutcome.OK:
        assert time.monotonic() < until

"""The client's sockets against a plain ZeroMQ ROUTER."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import zmq

from mtl.errors import LocalError, OptionError
from mtl.limits import MAX_FRAME, PLAIN_HWM
from mtl.net.context import context
from mtl.net.endpoint import Link, LinkEvents
from mtl.net.limits import BURST_BODIES, VIEWED, ZERO_COPY
from mtl.net.link import SocketLink
from mtl.net.network import ZmqNetwork
from mtl.wire.fields import Buffer

PATIENCE_S = 10.0


class EventRecorder:
    """Records the events of its link."""

    def __init__(self) -> None:
        self.events = LinkEvents(0)

    def ready(self, link: Link, what: LinkEvents) -> None:
        self.events |= what


class Setting:
    """A router, and a link to it."""

    def __init__(self, *, own_thread: bool = False) -> None:
        self.network = ZmqNetwork(own_thread=own_thread)
        self.poll = self.network.poll()
        self.router: zmq.Socket[bytes] = context().socket(zmq.ROUTER)
        self.router.set(zmq.LINGER, 0)
        self.port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{self.port}"
        self.links: list[Link] = []

    def open(self, make: Callable[[str], Link]) -> tuple[Link, EventRecorder]:
        link, recorder = make(self.endpoint), EventRecorder()
        self.links.append(link)
        self.poll.add(link, recorder)
        return link, recorder

    def plain(self, endpoint: str) -> Link:
        return self.network.data(endpoint, packed=False)

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S  # not a number of waits: unread messages end each at once
        while time.monotonic() < end:
            for watcher, link, what in self.poll.wait(PATIENCE_S / 1_000):
                watcher.ready(link, what)
            if done():
                return
        raise AssertionError("it did not happen")

    def received(self, link: Link, recorder: EventRecorder) -> tuple[bytes, bytes]:
        found: list[tuple[bytes, bytes]] = []

        def is_done() -> bool:
            frames = link.receive()
            if frames is not None:
                found.append((frames[0], bytes(frames[1])))
            return bool(found)

        self.until(is_done)
        return found[0]

    def router_received(self) -> list[bytes]:
        assert self.router.poll(int(PATIENCE_S * 1_000))
        return self.router.recv_multipart()

    def close(self) -> None:
        for link in self.links:
            self.poll.remove(link)
            link.close()
        self.router.close(0)
        self.poll.close()


@pytest.fixture
def at() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    setting.close()


def test_a_link_reports_up_and_down(at: Setting) -> None:
    link, recorder = at.open(at.plain)
    at.until(lambda: LinkEvents.UP in recorder.events)
    assert link.send(b"header", b"body")
    assert at.router_received()[1:] == [b"header", b"body"]
    at.router.close(0)
    at.until(lambda: LinkEvents.DOWN in recorder.events)


def test_a_refused_connection_is_down_at_once_and_not_retried(at: Setting) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    # Not the router's port: libzmq closes it in a thread, so that it may still accept connections.
    _, recorder = at.open(lambda _: at.plain(f"tcp://127.0.0.1:{port}"))
    at.until(lambda: LinkEvents.DOWN in recorder.events)
    assert LinkEvents.UP not in recorder.events


def test_messages_received_before_the_end_can_be_read(at: Setting) -> None:
    link, recorder = at.open(at.plain)
    link.send(b"hello", b"")
    me = at.router_received()[0]
    for number in range(50):
        at.router.send_multipart([me, b"%d" % number, b"x" * 1_000])
    assert at.received(link, recorder)[0] == b"0"
    at.router.close(int(PATIENCE_S * 1_000))  # it lets everything leave first
    at.until(lambda: LinkEvents.DOWN in recorder.events)
    assert [at.received(link, recorder)[0] for _ in range(49)] == [b"%d" % n for n in range(1, 50)]
    assert link.receive() is None


def test_a_large_body_is_lent_and_arrives_whole(at: Setting) -> None:
    packed = at.network.data(at.endpoint, packed=True)
    at.links.append(packed)
    recorder = EventRecorder()
    at.poll.add(packed, recorder)
    body = bytes(range(256)) * (2 * ZERO_COPY // 256)
    assert packed.send(b"header", memoryview(body))
    me, header, received = at.router_received()
    assert (header, received) == (b"header", body)
    at.router.send_multipart([me, b"back", body])
    assert at.received(packed, recorder) == (b"back", body)


def test_many_messages_are_sent_and_received_in_one_call(at: Setting) -> None:
    link, _ = at.open(at.plain)
    assert link.send_many([b"1", b"2", b"3"], [b"a", b"b" * ZERO_COPY, b""]) == 3
    messages = [at.router_received() for _ in range(3)]
    assert [frames[1:] for frames in messages] == [[b"1", b"a"], [b"2", b"b" * ZERO_COPY], [b"3", b""]]
    assert link.send_many([], []) == 0
    for number in range(5):
        at.router.send_multipart([messages[0][0], b"%d" % number, b"x"])
    received: list[bytes] = []

    def is_done() -> bool:
        firsts, seconds = link.receive_many(2)
        assert len(firsts) == len(seconds) <= 2
        received.extend(firsts)
        return len(received) == 5

    at.until(is_done)
    assert received == [b"0", b"1", b"2", b"3", b"4"]


def test_a_full_socket_accepts_as_many_messages_as_it_has_room_for(at: Setting) -> None:
    at.router.close(0)
    link, _ = at.open(at.plain)  # without a peer messages are only queued
    many = 2 * PLAIN_HWM
    assert 0 < link.send_many([b"header"] * many, [b"body"] * many) < many
    assert not link.send(b"header", b"body")


def test_few_large_messages_are_received_in_one_call(at: Setting) -> None:
    link, _ = at.open(at.plain)
    link.send(b"hello", b"")
    me = at.router_received()[0]
    for _ in range(3):
        at.router.send_multipart([me, b"header", bytes(BURST_BODIES)])
    received: list[int] = []

    def is_done() -> bool:
        received.append(len(link.receive_many(3)[0]))
        return sum(received) == 3

    at.until(is_done)
    assert max(received) <= 2


def test_messages_of_one_or_three_frames_are_dropped(at: Setting) -> None:
    link, recorder = at.open(at.plain)
    link.send(b"hello", b"")
    me = at.router_received()[0]
    at.router.send_multipart([me, b"1", b"2", b"3", b"4"])
    at.router.send_multipart([me, b"good", b"one"])
    assert at.received(link, recorder) == (b"good", b"one")
    at.router.send_multipart([me, b"alone"])
    at.until(lambda: link.receive() is None and link.malformed == 2)


def test_a_message_above_the_largest_ends_the_connection(at: Setting) -> None:
    link, recorder = at.open(at.plain)
    link.send(b"hello", b"")
    me = at.router_received()[0]
    at.router.send_multipart([me, b"header", b"x" * (MAX_FRAME + 1)])
    at.until(lambda: LinkEvents.DOWN in recorder.events)


def test_a_full_socket_reports_when_it_has_room(at: Setting) -> None:
    link, recorder = at.open(at.plain)
    at.until(lambda: LinkEvents.UP in recorder.events)
    sent = 0
    while link.send(b"%d" % sent, b"x" * 100_000):
        sent += 1
    assert sent > 0
    at.poll.watch_writable(link, True)
    received = [at.router_received()[1] for _ in range(sent)]
    at.until(lambda: LinkEvents.WRITABLE in recorder.events)
    at.poll.watch_writable(link, False)
    assert received == [b"%d" % number for number in range(sent)], (
        "nothing was lost, and no half message sent"
    )
    assert link.send(b"more", b"")


@pytest.mark.parametrize(("host", "ipv6"), [("[::1]", 1), ("127.0.0.1", 0)])
def test_a_link_uses_ipv6_for_addresses_in_brackets_only(at: Setting, host: str, ipv6: int) -> None:
    """An option of the socket, so that a system without IPv6 can check it."""
    link = at.plain(f"tcp://{host}:{at.port}")
    at.links.append(link)
    assert isinstance(link, SocketLink)
    assert link.socket.get(zmq.IPV6) == ipv6


def test_a_request_is_answered(at: Setting) -> None:
    link, recorder = at.open(at.network.request)
    assert link.send(b"Connection.Open", b"{}")
    envelope = at.router_received()
    assert envelope[1:] == [b"", b"Connection.Open", b"{}"]
    at.router.send_multipart([envelope[0], b"", b"201", b"{}"])
    assert at.received(link, recorder) == (b"201", b"{}")


def test_an_invalid_endpoint_is_an_option_error(at: Setting) -> None:
    for wrong in ("tcp://127.0.0.1:port", "nothing://x"):
        with pytest.raises(OptionError, match=wrong):
            at.network.request(wrong)


def test_a_poll_can_be_woken(at: Setting) -> None:
    at.poll.wake()
    at.poll.wake()
    assert not list(at.poll.wait(None))
    assert not list(at.poll.wait(0.0))


def test_removed_and_closed_links_are_not_polled(at: Setting) -> None:
    link, recorder = at.open(at.plain)
    at.until(lambda: LinkEvents.UP in recorder.events)
    at.poll.remove(link)
    at.poll.remove(link)
    link.close()
    link.close()
    at.router.close(0)
    assert not list(at.poll.wait(0.05))


def test_a_message_received_before_a_send_is_reported(at: Setting) -> None:
    """The descriptor is edge-triggered, and a send clears it."""
    link, recorder = at.open(at.plain)
    link.send(b"hello", b"")
    me = at.router_received()[0]
    at.until(lambda: LinkEvents.UP in recorder.events)
    assert not list(at.poll.wait(0.0))
    at.router.send_multipart([me, b"header", b"body"])
    assert isinstance(link, SocketLink)
    assert select.select([link.socket.fileno()], [], [], PATIENCE_S)[0]
    while select.select([link.socket.fileno()], [], [], 0.0)[0]:  # not the first: libzmq looks now and then
        link.send(b"swallows it", b"")
    assert [(ready, what) for _, ready, what in at.poll.wait(PATIENCE_S)] == [(link, LinkEvents.READABLE)]
    assert link.receive() == (b"header", b"body")


def test_an_idle_link_is_not_examined(at: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = [at.open(at.plain) for _ in range(20)]
    at.until(lambda: all(LinkEvents.UP in recorder.events for _, recorder in opened))
    busy, _ = opened[7]
    busy.send(b"hello", b"")
    me = at.router_received()[0]
    while list(at.poll.wait(0.0)):
        pass
    asked: list[zmq.Socket[bytes]] = []
    ask = zmq.Socket.getsockopt

    def noted(socket: zmq.Socket[bytes], option: int) -> object:
        asked.append(socket)
        return ask(socket, option)

    monkeypatch.setattr(zmq.Socket, "getsockopt", noted)
    at.router.send_multipart([me, b"header", b"body"])
    at.until(lambda: busy.receive() is not None)
    assert isinstance(busy, SocketLink)
    assert asked
    assert {id(socket) for socket in asked} == {id(busy.socket)}


KILLED = """
import sys, zmq
router = zmq.Context().socket(zmq.ROUTER)
print(router.bind_to_random_port("tcp://127.0.0.1"), flush=True)
me = router.recv_multipart()[0]
while True:
    router.send_multipart([me, b"header", b"body"])
"""


def test_a_peer_killed_while_sending_is_reported_down() -> None:
    """With RECONNECT_IVL=-1 libzmq 4.3.5 may abort the process here (see mtl.net.link)."""
    network = ZmqNetwork()
    for _ in range(8):
        poll, recorder = network.poll(), EventRecorder()
        peer = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
        with peer:
            assert peer.stdout is not None
            link = network.data(f"tcp://127.0.0.1:{int(peer.stdout.readline())}", packed=False)
            poll.add(link, recorder)
            link.send(b"hello", b"")
            received = 0
            while LinkEvents.DOWN not in recorder.events:
                for watcher, ready, what in poll.wait(PATIENCE_S):
                    watcher.ready(ready, what)
                while link.receive() is not None:
                    received += 1
                    if received == 2_000:
                        peer.kill()
        assert received >= 2_000
        poll.remove(link)
        link.close()
        poll.close()


def test_too_many_sockets_are_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the IO thread a bare ZMQError would end every reader and writer of the process."""
    small: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    small.set(zmq.MAX_SOCKETS, 1)  # one for the socket, none for its monitor
    monkeypatch.setattr("mtl.net.link.context", lambda: small)
    for _ in range(2):  # nothing was left open by the first
        with pytest.raises(LocalError, match="ulimit"):
            ZmqNetwork().data("tcp://127.0.0.1:1", packed=False)
    small.term()


def test_a_name_is_tried_by_the_other_family_after_a_failure(at: Setting) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    link, recorder = at.open(lambda _: at.plain(f"tcp://localhost:{port}"))
    at.until(lambda: LinkEvents.DOWN in recorder.events)
    again = at.plain(f"tcp://localhost:{port}")
    at.links.append(again)
    assert [int(x.socket.get(zmq.IPV6)) for x in (link, again)] == [0, 1]  # type: ignore[attr-defined]


def test_a_name_without_an_address_is_down_at_once(at: Setting) -> None:
    _, recorder = at.open(lambda _: at.plain("tcp://no-such-host.invalid:1"))
    at.until(lambda: LinkEvents.DOWN in recorder.events)


def test_a_message_of_one_frame_does_not_disturb_the_next(at: Setting) -> None:
    link, recorder = at.open(at.plain)
    link.send(b"hello", b"")
    me = at.router_received()[0]
    for frames in (
        [b"one"],
        [b"one"],
        [b"good", b"1"],
        [b""],
        [b"good", b"2"],
        [b"a", b"b", b"c"],
        [b"good", b"3"],
    ):
        at.router.send_multipart([me, *frames])
    assert [at.received(link, recorder) for _ in range(3)] == [
        (b"good", b"1"),
        (b"good", b"2"),
        (b"good", b"3"),
    ]
    assert link.malformed == 4


def test_a_reply_of_one_frame_is_counted(at: Setting) -> None:
    link, _ = at.open(at.network.request)
    link.send(b"request", b"{}")
    envelope = at.router_received()[:2]
    at.router.send_multipart([*envelope, b"alone"])
    at.until(lambda: link.receive() is None and link.malformed == 1)


@pytest.mark.parametrize(
    ("own_thread", "packed", "size", "type_"),
    [
        (True, True, VIEWED, memoryview),
        (True, True, VIEWED - 1, bytes),
        (True, False, VIEWED, bytes),
        (False, True, VIEWED, bytes),
    ],
)
def test_only_large_packs_for_other_threads_are_not_copied(
    own_thread: bool, packed: bool, size: int, type_: type
) -> None:
    at = Setting(own_thread=own_thread)
    link, _ = at.open(lambda endpoint: at.network.data(endpoint, packed=packed))
    link.send(b"hello", b"")
    me = at.router_received()[0]
    at.router.send_multipart([me, b"pack", b"x" * size])
    received: list[Buffer] = []

    def is_done() -> bool:
        if (frames := link.receive()) is not None:
            received.append(frames[1])
        return bool(received)

    at.until(is_done)
    at.close()
    assert type(received[0]) is type_
    assert bytes(received[0]) == b"x" * size, "also after the end of the socket"

"""ROUTER and DEALER in an event loop, for protocols of their own frames (the front door mc0 and its client)."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import uuid4

import zmq

from mtl.errors import OptionError
from mtl.net import limits as net_limits
from mtl.net.context import context
from mtl.net.curve import as_client
from mtl.net.endpoint import Curve
from mtl.net.entrance import Entrance
from mtl.net.open_connections import CONNECTIONS_OPEN, OpenConnections
from mtl.net.origin import Connection
from mtl.net.outgoing import Account, Outgoing
from mtl.net.pace import Pace
from mtl.net.router import BindFailed, RouterSocket, SendOutcome, seed_identities
from mtl.net.zap import ZapHandler

_GONE = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_NEVER_MS = 3_600_000
"""See `mtl.net.link`: libzmq must not reconnect before the monitor has reported the end of the connection."""

# Plain numbers: combining zmq's enums costs a microsecond each time.
_NOW = int(zmq.DONTWAIT)
_FIRST = int(zmq.DONTWAIT | zmq.SNDMORE)
_IN = int(zmq.POLLIN)
_OUT = int(zmq.POLLOUT)


def _events(socket: zmq.Socket[bytes]) -> int:
    return int(socket.getsockopt(zmq.EVENTS))


class _Watch:
    """Wakes the task that waits for a socket when `find_event` finds an event.

    pyzmq's own futures cost a multiple of the frames. libzmq's descriptor is edge-triggered, and any call on the socket
    (connect, too) may consume the edge. So EVENTS are read when the descriptor is readable, after a call
    (`check_soon`), and before waiting.
    """

    def __init__(self, find_event: Callable[[], bool], *sockets: zmq.Socket[bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._find_event = find_event
        self._descriptors = [int(socket.fd) for socket in sockets]
        self._soon: asyncio.Handle | None = None
        self._expected: asyncio.Future[None] | None = None
        for descriptor in self._descriptors:
            self._loop.add_reader(descriptor, self.check)

    def check(self) -> None:
        """Wake the waiting task if there is an event."""
        self._soon = None
        if self._find_event() and self._expected is not None and not self._expected.done():
            self._expected.set_result(None)

    def check_soon(self) -> None:
        """`check`, once for all calls in one turn of the event loop, and only if a task waits."""
        if self._soon is None and self._expected is not None:
            self._soon = self._loop.call_soon(self.check)

    async def wait(self) -> None:
        """Wait until `find_event` finds an event. For one task."""
        if self._find_event():
            return
        self._expected = self._loop.create_future()
        try:
            await self._expected
        finally:
            self._expected = None

    def close(self) -> None:
        """Stop watching. Call it before the socket is closed: its descriptor may belong to another file afterwards."""
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        if self._soon is not None:
            self._soon.cancel()
        if self._expected is not None and not self._expected.done():
            self._expected.set_result(None)


class Arrived(NamedTuple):
    """Messages of one connection: the frames of each, without its identity frame.

    No messages: the connection has ended, and all its messages were received before.
    """

    connection: Connection
    identity: bytes
    messages: list[list[bytes]]


class AsyncRouter:
    """A bound ROUTER. `send` never waits: it returns whether the queue was full or the peer gone.

    `hwm`, `max_queued` (octets) and `max_waiting` are those of `RouterSocket`. `curve_secret` is the secret CURVE key
    in Z85, `admits` decides which client keys in Z85 may connect (None: any). A connection that has sent no message yet
    is in the `entrance`, and an address may have `most_open` connections. `lost` is called as soon as a connection has
    ended: another peer may have its identity from then on. `outgoing` bounds the unsent octets of all peers (None: no
    bound). Raises `BindFailed`.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        hwm: int,
        max_frame: int,
        max_queued: int | None = None,
        max_waiting: int | None = None,
        curve_secret: bytes | None = None,
        admits: Callable[[str], bool] | None = None,
        entrance: Entrance | None = None,
        most_open: int = CONNECTIONS_OPEN,
        lost: Callable[[Connection], None] = lambda _: None,
        outgoing: Outgoing | None = None,
    ) -> None:
        self._outgoing = Outgoing(sys.maxsize) if outgoing is None else outgoing
        self._context = _own_context()
        opened, judge = OpenConnections(most_open), _judge(curve_secret, admits)
        self._zap = ZapHandler(self._context, judge, Pace(time.monotonic), opened=opened)
        try:
            self._router = RouterSocket(
                self._context,
                endpoint,
                hwm=hwm,
                max_frame=max_frame,
                max_queued=max_queued,
                max_waiting=max_waiting,
                secret=curve_secret,
                zap=True,
                opened=opened,
                entrance=entrance,
            )
        except BindFailed:
            self._end()
            raise
        assert self._router.monitor is not None
        self.endpoint, self._entrance = self._router.endpoint, entrance
        self._lost, self._over, self._closed = lost, list[Connection](), False
        self._watch = _Watch(self._find_event, self._router.socket, self._router.monitor, self._zap.socket)

    async def receive(self, most: int) -> list[Arrived]:
        """Wait for messages and return up to `most`, grouped by connection, in order."""
        while True:
            self._find_event()
            over = self._over
            arrived = self._router.receive_messages(most)
            if arrived:
                return [
                    Arrived(connection, identity, messages)
                    for (connection, identity), messages in arrived.items()
                ]
            if over:  # all their messages were returned
                self._over = []
                return [Arrived(connection, b"", []) for connection in over]
            await self._watch.wait()

    def send(
        self, connection: Connection, identity: bytes, owner: str, frames: Sequence[bytes]
    ) -> SendOutcome:
        """Send on the connection that this identity belongs to; the result says whether that worked. The octets count
        for `owner` until they are sent.
        """
        if not self._router.has_connection(connection):
            return SendOutcome.GONE
        sent = self._router.send((identity, *frames), Account(self._outgoing, owner))
        self._watch.check_soon()
        return sent

    def address(self, connection: Connection) -> str:
        """The peer's address while its connection exists; empty where the transport has none."""
        return self._router.address(connection)

    def cut(self, connection: Connection) -> None:
        """End a connection whose peer is silent, so that its identity can be used again."""
        if not self._closed:
            self._router.cut(connection)

    def close(self) -> None:
        """Stop listening; sent messages leave within the linger. Harmless when repeated."""
        if not self._closed:
            self._closed = True
            if self._entrance is not None:
                self._entrance.close()
            self._watch.close()
            self._router.close()
            self._end()

    def _end(self) -> None:
        """Terminate the context in a thread, because it waits for the linger; the process waits for the thread."""
        self._zap.close()
        threading.Thread(target=self._context.term, name="mtl-term").start()

    def _find_event(self) -> bool:
        # Ends first: a new connection gets an identity only after `answer`, so the former owner's end is known by then.
        for connection in self._router.ended():
            self._over.append(connection)
            self._lost(connection)
        while _events(self._zap.socket) & _IN:
            self._zap.answer()
        return bool(self._over) or bool(_events(self._router.socket) & _IN)


def _own_context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context for one router, since a context has one ZAP handler. The identities it gives cannot be guessed."""
    seed_identities()
    return zmq.Context()


def _judge(secret: bytes | None, admits: Callable[[str], bool] | None) -> Callable[[str], bool] | None:
    """Decides which CURVE keys may connect; None without CURVE."""
    return None if secret is None else admits or _admit_all


def _admit_all(_key: str) -> bool:
    return True


class AsyncDealer:
    """A DEALER that connects once. After the end of the connection `receive` returns no messages, and it stays closed.

    `hwm` bounds the messages queued for sending, `max_waiting` those queued for `receive` (None: `hwm`). `curve`: the
    CURVE keys. `ipv6`: whether a host name stands for its IPv6 address (None: no).
    """

    def __init__(
        self,
        endpoint: str,
        *,
        hwm: int,
        max_frame: int,
        max_waiting: int | None = None,
        curve: Curve | None = None,
        ipv6: bool | None = None,
    ) -> None:
        self._socket = context().socket(zmq.DEALER)
        # An identity that cannot be guessed: those that the ROUTER generates are consecutive numbers.
        self._socket.setsockopt(zmq.IDENTITY, uuid4().bytes)
        self._socket.setsockopt(zmq.LINGER, net_limits.LINGER_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _NEVER_MS)
        self._socket.setsockopt(zmq.SNDHWM, hwm)
        self._socket.setsockopt(zmq.RCVHWM, hwm if max_waiting is None else max_waiting)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max_frame)
        self._socket.setsockopt(zmq.IPV6, int("[" in endpoint if ipv6 is None else ipv6))
        if curve is not None:
            as_client(self._socket, curve)
        self._put: Callable[..., object] = super(zmq.Socket, self._socket).send
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(_GONE)
        self._unsent: deque[Sequence[bytes]] = deque()
        self._gone = self._closed = False
        self._watch = _Watch(self._find_event, self._socket, self._monitor)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OptionError(f"{endpoint!r} is not an endpoint to connect to: {error}") from error

    async def receive(self, most: int) -> list[list[bytes]]:
        """Wait for messages and return the frames of up to `most`; none after the connection's end and last message."""
        while not self._closed:
            received = self._take(most)
            if self._unsent:
                self._find_event()
            if received or self._gone:
                return received
            await self._watch.wait()
        return []

    def _take(self, most: int) -> list[list[bytes]]:
        """Up to `most` waiting messages, or until they have BURST_BODIES octets, as copies: an application that frees
        libzmq's memory runs signal handlers there, and loses their exception (pyzmq, `Frame.__dealloc__`).
        """
        received: list[list[bytes]] = []
        octets = 0
        while len(received) < most and octets <= net_limits.BURST_BODIES:
            try:
                frames = self._socket.recv_multipart(_NOW)
            except zmq.Again:
                break
            received.append(frames)
            octets += sum(map(len, frames))
        return received

    def send_soon(self, frames: Sequence[bytes]) -> None:
        """Send in order, as soon as the queue has room. The caller bounds the number of unsent messages."""
        self._unsent.append(frames)
        self._flush()
        self._watch.check_soon()

    def mark_lost(self) -> None:
        """Treat the connection as lost."""
        self._gone = True
        self._watch.check_soon()

    def close(self) -> None:
        """Drop the connection; sent messages leave within the linger. Harmless when repeated."""
        if not self._closed:
            self._closed = True
            self._watch.close()
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close()

    def _find_event(self) -> bool:
        if _events(self._monitor) & _IN:
            self._gone = True  # the monitor reports nothing but the end
        events = _events(self._socket)
        while self._unsent and events & _OUT:
            self._flush()
            events = _events(self._socket)
        return self._gone or bool(events & _IN)

    def _flush(self) -> None:
        put = self._put
        try:
            while self._unsent:
                frames = self._unsent[0]
                # Only the first frame can be refused: a queue that has room for it takes the rest.
                for frame in frames[:-1]:
                    put(frame, _FIRST)
                put(frames[-1], _NOW, len(frames[-1]) < net_limits.ZERO_COPY)
                self._unsent.popleft()
        except zmq.Again:
            pass

"""ROUTER and DEALER in an event loop, for protocols of their own frames (the front door mc0 and its client)."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from uuid import uuid4

import zmq

from mtl import limits
from mtl.errors import OptionError
from mtl.net.curve import as_client, make_keys
from mtl.net.endpoint import Curve
from mtl.net.router import RouterSocket, Sent, messages, seed_identities

_GONE = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_NEVER_MS = 3_600_000
"""See `mtl.net.link`: libzmq must not reconnect before the monitor has told of the end."""

# Plain numbers: combining zmq's enums costs a microsecond each time.
_NOW = int(zmq.DONTWAIT)
_FIRST = int(zmq.DONTWAIT | zmq.SNDMORE)
_IN = int(zmq.POLLIN)
_OUT = int(zmq.POLLOUT)

_made: tuple[int, zmq.Context[zmq.Socket[bytes]]] | None = None


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """This process's. Ending it would wait for every linger, so nobody does before the process ends."""
    global _made
    if _made is None or _made[0] != os.getpid():
        _made = (os.getpid(), zmq.Context())
    return _made[1]


def _events(socket: zmq.Socket[bytes]) -> int:
    return int(socket.getsockopt(zmq.EVENTS))


class _Watch:
    """Wakes whoever waits for a socket, when `look` says that there is something for it.

    pyzmq's own futures cost a multiple of the frames. libzmq's descriptor tells only of changes, and any call on the
    socket, its connecting too, may be the one that takes note of one: so EVENTS are asked for whenever it tells, after
    a call (`soon`), and before waiting.
    """

    def __init__(self, look: Callable[[], bool], *sockets: zmq.Socket[bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        self._look = look
        self._descriptors = [int(socket.fd) for socket in sockets]
        self._soon: asyncio.Handle | None = None
        self._expected: asyncio.Future[None] | None = None
        for descriptor in self._descriptors:
            self._loop.add_reader(descriptor, self.heard)

    def heard(self) -> None:
        """Something may have changed."""
        self._soon = None
        if self._look() and self._expected is not None and not self._expected.done():
            self._expected.set_result(None)

    def soon(self) -> None:
        """The same, once for all calls in one turn of the event loop; nothing while nobody waits."""
        if self._soon is None and self._expected is not None:
            self._soon = self._loop.call_soon(self.heard)

    async def news(self) -> None:
        """Wait until there is something. For one task."""
        if self._look():
            return
        self._expected = self._loop.create_future()
        try:
            await self._expected
        finally:
            self._expected = None

    def close(self) -> None:
        """Watch no more: before the socket is closed, whose descriptor may be another's then."""
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        if self._soon is not None:
            self._soon.cancel()
        if self._expected is not None and not self._expected.done():
            self._expected.set_result(None)


class AsyncRouter:
    """A bound ROUTER. `send` never waits: a full queue and a peer that is gone are answers.

    `hwm`, `max_queued` (octets) and `max_waiting` are `RouterSocket`'s. `curve_secret` is its secret key in Z85, for
    CURVE. Raises `BindFailed`.
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
    ) -> None:
        seed_identities()
        self._router = RouterSocket(
            _context(),
            endpoint,
            hwm=hwm,
            max_frame=max_frame,
            max_queued=max_queued,
            max_waiting=max_waiting,
            secret=curve_secret,
        )
        self.endpoint = self._router.endpoint
        self._watch = _Watch(self._look, self._router.socket)

    async def receive(self, most: int) -> dict[bytes, list[list[bytes]]]:
        """What came, up to `most` messages: the frames of each, by the peer's identity, in their order."""
        while not (received := messages(self._router.socket, most)):
            await self._watch.news()
        by_peer: dict[bytes, list[list[bytes]]] = {}
        for identity, *frames in received:
            by_peer.setdefault(identity, []).append(frames)
        return by_peer

    def send(self, identity: bytes, frames: Sequence[bytes]) -> Sent:
        """Send to one peer, or say why not."""
        sent = self._router.send(identity, *frames)
        self._watch.soon()
        return sent

    def close(self) -> None:
        """Stop listening; what was sent leaves within the linger. Harmless when repeated."""
        self._watch.close()
        self._router.close()

    def _look(self) -> bool:
        return bool(_events(self._router.socket) & _IN)


class AsyncDealer:
    """A DEALER that connects once; when the connection is gone, `receive` says so and it is gone for good.

    `hwm` messages are queued to be sent, and `max_waiting` of those that came. `curve_server` is the server's public
    key in Z85, for CURVE with a key pair of the moment.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        hwm: int,
        max_frame: int,
        max_waiting: int | None = None,
        curve_server: bytes | None = None,
    ) -> None:
        self._socket = _context().socket(zmq.DEALER)
        # An identity that nobody guesses: the ROUTER's own are numbers in a row.
        self._socket.setsockopt(zmq.IDENTITY, uuid4().bytes)
        self._socket.setsockopt(zmq.LINGER, limits.LINGER_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _NEVER_MS)
        self._socket.setsockopt(zmq.SNDHWM, hwm)
        self._socket.setsockopt(zmq.RCVHWM, hwm if max_waiting is None else max_waiting)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max_frame)
        self._socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        if curve_server is not None:
            as_client(self._socket, Curve(curve_server, *make_keys()))
        self._put: Callable[..., object] = super(zmq.Socket, self._socket).send
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(_GONE)
        self._unsent: deque[Sequence[bytes]] = deque()
        self._gone = self._closed = False
        self._watch = _Watch(self._look, self._socket, self._monitor)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OptionError(f"{endpoint!r} is no endpoint to connect to: {error}") from error

    async def receive(self, most: int) -> list[list[bytes]]:
        """What came, up to `most` messages, the frames of each; none when the connection is gone and all was read."""
        while not self._closed:
            received = messages(self._socket, most)
            if self._unsent:
                self._look()
            if received or self._gone:
                return received
            await self._watch.news()
        return []

    def send_soon(self, frames: Sequence[bytes]) -> None:
        """Send, in order, when the queue has room; whoever sends bounds how much that is."""
        self._unsent.append(frames)
        self._flush()
        self._watch.soon()

    def give_up(self) -> None:
        """Treat the connection as gone."""
        self._gone = True
        self._watch.soon()

    def close(self) -> None:
        """Drop the connection; what was sent leaves within the linger. Harmless when repeated."""
        if not self._closed:
            self._closed = True
            self._watch.close()
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close()

    def _look(self) -> bool:
        if _events(self._monitor) & _IN:
            self._gone = True  # it tells of nothing but the end
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
                put(frames[-1], _NOW, len(frames[-1]) < limits.ZERO_COPY)
                self._unsent.popleft()
        except zmq.Again:
            pass

"""A client's socket with its monitor."""

from __future__ import annotations

import resource
import struct
from collections.abc import Callable, Sequence

import zmq

from mtl.errors import LocalError, OptionError
from mtl.net.context import context
from mtl.net.curve import as_client
from mtl.net.endpoint import Curve, Frames, LinkEvents
from mtl.net.families import Families
from mtl.net.held import HeldFrames
from mtl.net.limits import BURST_BODIES, DESCRIPTORS, VIEWED, ZERO_COPY
from mtl.wire.fields import Buffer

_UP = zmq.EVENT_HANDSHAKE_SUCCEEDED
_DOWN = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED
"""The last one alone: the name has no address of the family."""
_DENIED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)

# Plain numbers: combining zmq's enums costs a microsecond each time.
_NOW = int(zmq.DONTWAIT)
_FIRST = int(zmq.DONTWAIT | zmq.SNDMORE)

_NOTHING = {zmq.EAGAIN, zmq.EFSM}
"""No message waits; a REQ that has no request under way cannot receive (EFSM)."""

_EVENT = struct.Struct("=H")
"""Start of a monitor's message (zmq_socket_monitor). pyzmq's own parser imports asyncio, which takes 50 ms."""

_NEVER_MS = 3_600_000
"""An hour. Not -1 (never): libzmq 4.3.5 then ends the pipe together with the connection. If that happens between the
two frames of a message being read, libzmq aborts the process (Assertion failed: !_more, fq.cpp; observed)."""


class SocketLink:
    """One ZeroMQ socket that connects once.

    libzmq would reconnect silently, under a new identity and without a Lease, and later messages would be lost
    (PROTOCOL.md 5.4). So the socket is closed after the monitor has reported the end, before libzmq reconnects.
    Raises `OptionError` for an endpoint that libzmq does not understand, `LocalError` when this process has too
    many sockets.
    """

    def __init__(
        self,
        kind: int,
        endpoint: str,
        *,
        hwm: int,
        max_frame: int,
        curve: Curve | None = None,
        families: Families | None = None,
        held: HeldFrames | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._held = held
        self.malformed = 0
        self.socket, self.monitor = _monitored(kind, endpoint)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.RECONNECT_IVL, _NEVER_MS)
        self._families = families or Families()
        self._ipv6 = self._families.is_ipv6(endpoint)
        self._made: bool | None = None
        """Whether the connection was made; None while it is not known."""
        self.socket.set(zmq.IPV6, int(self._ipv6))
        self.socket.set(zmq.MAXMSGSIZE, max_frame)
        self.socket.set(zmq.SNDHWM, hwm)
        self.socket.set(zmq.RCVHWM, hwm)
        if curve is not None:
            as_client(self.socket, curve)
        self._put: Callable[..., object] = super(zmq.Socket, self.socket).send
        """The method that pyzmq's `send` calls after handling options of other sockets, which doubles the time."""
        self._closed = False
        self.used: Callable[[], object] | None = None
        """Called after each use of the socket, for the poll that watches its descriptor (ZmqPoll)."""
        try:
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OptionError(f"{endpoint!r} is not an endpoint to connect to: {error}") from error

    def send(self, first: bytes, second: Buffer) -> bool:
        """Send both frames, or neither: False when the socket's queue is full."""
        return bool(self.send_many((first,), (second,)))

    def send_many(self, firsts: Sequence[bytes], seconds: Sequence[Buffer]) -> int:
        """Send messages in order until the queue is full. Returns how many were sent."""
        put, sent = self._put, 0
        try:
            for first, second in zip(firsts, seconds, strict=True):
                # Only the first frame can be refused: a queue with room for it takes the rest.
                put(first, _FIRST)
                # A large body is not copied: it must not change until libzmq has written it to the kernel.
                put(second, _NOW, len(second) < ZERO_COPY)
                sent += 1
        except zmq.Again:
            pass
        self._report_use()
        return sent

    def receive(self) -> Frames | None:
        """The next message of two frames."""
        firsts, seconds = self.receive_many(1)
        return (firsts[0], seconds[0]) if firsts else None

    def receive_many(self, most: int) -> tuple[list[bytes], list[Buffer]]:
        """The waiting messages of two frames, up to `most` of them or until they hold BURST_BODIES octets."""
        receive, weight = self.socket.recv, 0
        firsts: list[bytes] = []
        seconds: list[Buffer] = []
        while len(firsts) < most and weight <= BURST_BODIES:
            try:
                first = receive(_NOW, False)
            except zmq.ZMQError as error:
                if error.errno not in _NOTHING:
                    raise
                break
            # Asking a frame whether more follow costs a third of asking the socket.
            if not first.more:
                self.malformed += 1
                continue
            second = receive(_NOW, False)
            if second.more:
                self._skip_rest()
                continue
            weight += len(second)
            firsts.append(first.bytes)
            if self._held is not None and len(second) >= VIEWED:
                seconds.append(self._held.hold(second))
            else:  # copied, for the reason in `mtl.net.held`
                seconds.append(second.bytes)
        self._report_use()
        return firsts, seconds

    def _report_use(self) -> None:
        if self.used is not None:
            self.used()

    def _skip_rest(self) -> None:
        self.malformed += 1
        while self.socket.recv(_NOW, copy=False).more:
            pass

    def signals(self) -> LinkEvents:
        """The events of the monitor: UP, DOWN, both or none; DENIED with DOWN after a failed handshake."""
        events = LinkEvents(0)
        while True:
            try:
                event = _EVENT.unpack_from(self.monitor.recv_multipart(_NOW)[0])[0]
            except zmq.Again:
                self._note(events)
                return events
            events |= LinkEvents.UP if event & _UP else LinkEvents.DOWN
            if event & _DENIED:
                events |= LinkEvents.DENIED

    def _note(self, events: LinkEvents) -> None:
        """Note whether the connection was made, for the next one to this name."""
        if self._made is not None:
            return
        if LinkEvents.UP in events or LinkEvents.DENIED in events:
            self._made = True
            self._families.reached(self.endpoint, ipv6=self._ipv6)
        elif LinkEvents.DOWN in events:
            self._made = False
            self._families.missed(self.endpoint, ipv6=self._ipv6)

    def close(self) -> None:
        """Close both sockets at once."""
        if not self._closed:
            self._closed = True
            self._note(LinkEvents.DOWN)  # no answer in time
            self.socket.disable_monitor()
            self.monitor.close(0)
            self.socket.close(0)


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _monitored(kind: int, endpoint: str) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """A socket that is not connected yet, and its monitor."""
    socket = None
    try:
        socket = context().socket(kind)
        return socket, socket.get_monitor_socket(_UP | _DOWN | _DENIED)
    except zmq.ZMQError as error:
        if socket is not None:
            socket.close(0)
        raise LocalError(
            f"cannot open a socket for {endpoint}: {error.strerror}. A connection takes up to {DESCRIPTORS} "
            f"descriptors, and this process may have {_limit()} (ulimit -n); close readers and writers that are not "
            "used, or raise the limit"
        ) from error

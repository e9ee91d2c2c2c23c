"""A ROUTER socket as the broker uses it (MTL-11, MTL-12, MTL-113): it never blocks and never drops a message
silently.

With ROUTER_MANDATORY a send to a full queue fails with EAGAIN, to an unknown peer with EHOSTUNREACH. Without it libzmq
drops the message (490 of 500 messages were lost at the high-water mark).
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket as sockets
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import zmq

from mtl.errors import MtlError
from mtl.net import limits as net_limits
from mtl.net.curve import as_server
from mtl.net.entrance import Entrance
from mtl.net.ipc import claimed
from mtl.net.open_connections import OpenConnections, peer_address, shut_down
from mtl.net.origin import Connection, Origin
from mtl.net.outgoing import Account, PeerQueue, PeerQueues
from mtl.net.zap import DOMAIN
from mtl.wire.fields import Buffer


class BindFailed(MtlError):
    """The endpoint cannot be bound: it is in use, not an address of this machine, or not an endpoint."""


@dataclass(slots=True)
class Burst:
    """Commands of one connection, in order."""

    headers: list[bytes] = field(default_factory=list)
    bodies: list[Buffer] = field(default_factory=list)
    connection: Connection = ""


S = TypeVar("S", bound=zmq.Socket[Any])

# Plain numbers: combining zmq's enums costs a microsecond each time.
_NOW = int(zmq.DONTWAIT)
_FIRST = int(zmq.DONTWAIT | zmq.SNDMORE)
_SOURCE = int(zmq.SRCFD)
_IN = int(zmq.POLLIN)
_BEGAN = int(zmq.EVENT_ACCEPTED)
_ENDED = int(zmq.EVENT_DISCONNECTED)

_EVENT = struct.Struct("=HI")
"""The first frame of a monitor's message: the event and, for these events, the descriptor of the connection."""


class SendOutcome(Enum):
    """The outcome of sending a message: FULL: its queue is full; GONE: no such peer."""

    OK = "ok"
    FULL = "full"
    GONE = "gone"


def seed_identities() -> None:
    """Seed the C library's rand before the first ROUTER. Otherwise the first identity is the same in every process,
    and a peer that announces it after its owner has left receives the owner's replies (PROTOCOL.md 3).
    """
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "little"))


def bind_router(
    context: zmq.Context[S],
    endpoint: str,
    *,
    hwm: int,
    max_frame: int,
    max_waiting: int | None = None,
    secret: bytes | None = None,
    zap: bool = False,
) -> S:
    """A bound ROUTER. `hwm` messages are queued per peer and direction (`max_waiting`: of those received), and no frame
    is larger than `max_frame` octets. With `secret`, a CURVE key in Z85, it accepts encrypted connections only. With
    `zap` the context's ZAP handler decides about every connection. Raises `BindFailed`.
    """
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.LINGER, net_limits.LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, hwm)
    socket.setsockopt(zmq.RCVHWM, hwm if max_waiting is None else max_waiting)
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame)
    socket.setsockopt(zmq.HANDSHAKE_IVL, net_limits.HANDSHAKE_MS)
    # Heartbeats tell the peer that the broker is alive. A dead peer is detected by TCP_MAXRT, not by the answer to a
    # heartbeat: that takes a timer per peer, and libzmq walks over all timers to stop one. With 1,000 clients it took a
    # tenth of a processor, and the cost grows with their square.
    socket.setsockopt(zmq.HEARTBEAT_IVL, net_limits.ZMTP_HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, net_limits.ZMTP_TIMEOUT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 0)
    socket.setsockopt(zmq.TCP_MAXRT, net_limits.ZMTP_TIMEOUT_MS)
    if secret is not None:
        as_server(socket, secret)
    if zap:
        socket.set_string(zmq.ZAP_DOMAIN, DOMAIN)
    try:
        with claimed(endpoint):
            _bind(socket, endpoint)
    except (zmq.ZMQError, OSError) as e:
        socket.close()
        raise BindFailed(
            f"cannot listen on {endpoint}: {e.strerror}; choose another with --endpoint or --listen"
        ) from e
    return socket


def _bind(socket: zmq.Socket[Any], endpoint: str) -> None:
    """Bind with IPv6 only if that is needed: an IPv4 endpoint would be reported as ::ffff:a.b.c.d."""
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if error.errno != errno.ENODEV:
            raise
        socket.setsockopt(zmq.IPV6, 1)  # a name without an IPv4 address
        socket.bind(endpoint)


class RouterSocket:
    """One bound ROUTER. `hwm` messages are queued per peer and direction, and no frame is larger than `max_frame`
    octets. `max_queued` also bounds the octets to be sent to a peer, `max_waiting` the messages received. Each message
    that is sent counts for an `Account`, which may have no room for it.

    With `secret`, a CURVE key in Z85, it accepts encrypted connections only. With `zap` the context's ZAP handler
    decides about every connection and numbers it, and `opened` counts the connections of each address. Without `zap`
    all connections look the same. A connection leaves the `entrance` with its first message.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        *,
        hwm: int,
        max_frame: int,
        max_queued: int | None = None,
        max_waiting: int | None = None,
        secret: bytes | None = None,
        zap: bool = False,
        opened: OpenConnections | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        self.socket = bind_router(
            context, endpoint, hwm=hwm, max_frame=max_frame, max_waiting=max_waiting, secret=secret, zap=zap
        )
        self._queues = PeerQueues(max_queued)
        self.misframed = 0
        self.mixed = 0
        """Messages dropped because two connections had the same identity within one burst."""
        self.monitor = _monitor(context, self.socket) if zap else None
        """Readable when connections have begun or ended; `ended` returns those that have ended."""
        self._opened = opened or OpenConnections()
        self._entrance = entrance
        self._by_descriptor: dict[int, Connection] = {}
        self._connections: dict[Connection, str] = {}
        self._ended: list[Connection] = []
        self._put: Callable[..., object] = super(zmq.Socket, self.socket).send
        """The method that pyzmq's `send` calls after handling options of other sockets, which doubles the time."""
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def port(self) -> int:
        """The TCP port that it is bound to; 0 where the transport has none."""
        return int(self.endpoint.rpartition(":")[2]) if self.endpoint.startswith("tcp://") else 0

    def receive(self) -> tuple[list[bytes], Origin] | None:
        """The frames of the next message, identity first, and its origin; None when no message waits."""
        try:
            frames = self.socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return None
        if self.monitor is not None:
            self._opened.spoke(self.endpoint, int(frames[-1].get(_SOURCE)))
        return [frame.bytes for frame in frames], Origin(_address(frames[-1]), _connection(frames[-1]))

    def receive_commands(self, most: int, *, view: bool) -> dict[bytes, Burst]:
        """Up to `most` waiting messages as commands, by the identity of their peer, in order; `view`: bodies of VIEWED
        octets and more are views of libzmq's memory. It ends early after BURST_HEADERS octets of headers, which take
        time to decode, or BURST_BODIES octets of bodies, which take memory. Messages with more or fewer than two frames
        after the identity are dropped and counted (MTL-110).

        This runs for every content, and a `zmq.Frame`, which knows whether more follow, costs as much as three frames
        as bytes. So after a peer's first message only the third frame is a `zmq.Frame`: if it is the last one, the
        message is well-formed. Likewise only the first and the last message of a burst are asked for their connection:
        libzmq gives an identity to another connection only after all messages of the former were read.
        """
        receive = self.socket.recv
        bursts: dict[bytes, Burst] = {}
        lasts: dict[bytes, zmq.Frame] = {}
        octets = weight = 0
        for _ in range(most):
            if octets > net_limits.BURST_HEADERS or weight > net_limits.BURST_BODIES:
                break
            header: bytes | None = None
            body: zmq.Frame | None
            try:
                identity = receive(_NOW)
                burst = bursts.get(identity)
                if burst is None:
                    header, body = self._receive_rest()
                else:
                    header = receive(_NOW)
                    body = receive(_NOW, False)
                    if body.more:
                        identity, header, body = self._sort_out(identity, burst, body)
                        burst = bursts.get(identity)
            except zmq.Again:
                self.misframed += header is not None  # a header without a body
                break
            if body is None:
                continue
            if burst is None:
                burst = bursts[identity] = Burst(connection=self._register(body))
            else:
                lasts[identity] = body
            octets += len(header)
            weight += len(body)
            burst.headers.append(header)
            viewed = view and len(body) >= net_limits.VIEWED
            burst.bodies.append(body.buffer if viewed else body.bytes)
        for identity, last in lasts.items():
            if _connection(last) != bursts[identity].connection:
                self.mixed += len(bursts.pop(identity).headers)
        return bursts

    def receive_messages(self, most: int) -> dict[tuple[Connection, bytes], list[list[bytes]]]:
        """Up to `most` waiting messages of any number of frames, by connection and identity, in order, without the
        identity frame. Ends early after `BURST_BODIES` octets.
        """
        bursts: dict[tuple[Connection, bytes], list[list[bytes]]] = {}
        receive, octets, received = super(zmq.Socket, self.socket).recv, 0, 0
        while received < most and octets <= net_limits.BURST_BODIES:
            try:
                frame = receive(_NOW, False)
            except zmq.Again:
                break
            identity, frames = frame.bytes, list[bytes]()
            while frame.more:  # asking the frame costs a third of asking the socket
                frame = receive(_NOW, False)
                frames.append(frame.bytes)
            octets += sum(map(len, frames))
            received += 1
            bursts.setdefault((self._register(frame), identity), []).append(frames)
        return bursts

    # --- connections that end -------------------------------------------------------------------------------

    def _register(self, frame: zmq.Frame) -> Connection:
        """The connection of a message. From now on its end is reported by `ended`."""
        connection = _connection(frame)
        if connection and connection not in self._connections:
            # A descriptor is reused only after the monitor has reported the end of its former connection.
            self._drain_monitor()
            descriptor = int(frame.get(_SOURCE))
            self._by_descriptor[descriptor] = connection
            self._opened.spoke(self.endpoint, descriptor)
            self._connections[connection] = _address(frame)
            if self._entrance is not None:
                self._entrance.leave(descriptor)
        return connection

    def ended(self) -> list[Connection]:
        """The connections with messages that ended since the last call."""
        self._drain_monitor()
        ended, self._ended = self._ended, []
        return ended

    def cut(self, connection: Connection) -> None:
        """End a connection that messages came on, so that its identity can be used again. A peer whose machine is gone
        would keep the identity until TCP gives up. Does nothing for a connection that has ended.
        """
        descriptor = next((d for d, c in self._by_descriptor.items() if c == connection), None)
        if descriptor is not None:
            self._shut(descriptor, lambda: connection in self._connections)

    def _shut(self, descriptor: int, is_open: Callable[[], bool]) -> None:
        """End the connection with this descriptor, if `is_open` says so after all reported ends."""
        try:
            copy = sockets.socket(fileno=os.dup(descriptor))
        except OSError:
            return  # it is closed already
        with copy:
            # The end is reported before the descriptor is closed: if it was not, the copy is of this connection.
            self._drain_monitor()
            if is_open():
                with suppress(OSError):
                    copy.shutdown(sockets.SHUT_RDWR)

    def has_connection(self, connection: Connection) -> bool:
        """Whether messages came on this connection and its end was not reported yet."""
        return connection in self._connections

    def address(self, connection: Connection) -> str:
        """The address of a known connection; empty where the transport has none."""
        return self._connections.get(connection, "")

    def _drain_monitor(self) -> None:
        began = False
        while self.monitor is not None and int(self.monitor.getsockopt(zmq.EVENTS)) & _IN:
            message, _ = self.monitor.recv_multipart(_NOW)
            event, descriptor = _EVENT.unpack(message)
            if event == _BEGAN:
                self._opened.opened(self.endpoint, descriptor)
                self._enter(descriptor)
                began = True
                continue
            self._opened.ended(self.endpoint, descriptor)
            if self._entrance is not None:
                self._entrance.leave(descriptor)
            connection = self._by_descriptor.pop(descriptor, None)
            if connection is not None:
                self._connections.pop(connection, None)
                self._ended.append(connection)
        for descriptor in self._opened.surplus() if began else ():
            shut_down(descriptor)

    def _enter(self, descriptor: int) -> None:
        """A connection was accepted."""
        entrance = self._entrance
        if entrance is None or (address := peer_address(descriptor)) is None:
            return
        entrance.enter(descriptor, address, lambda: self._shut(descriptor, lambda: descriptor in entrance))

    def _receive_rest(self) -> tuple[bytes, zmq.Frame | None]:
        """The frames after an identity; the body is None when there are not exactly two."""
        header = self.socket.recv(_NOW, copy=False)
        body = self.socket.recv(_NOW, copy=False) if header.more else header
        if body is header or body.more:
            self._misframed(body)
            return b"", None
        return header.bytes, body

    def _sort_out(
        self, identity: bytes, burst: Burst, third: zmq.Frame
    ) -> tuple[bytes, bytes, zmq.Frame | None]:
        """Handle a third frame with more frames behind it: either a surplus frame of this message, or the identity of
        the next message after one without a body. Another connection, or the same identity, means the latter.
        """
        if third.bytes != identity and _connection(third) == burst.connection:
            self._misframed(third)
            return identity, b"", None
        self.misframed += 1
        return third.bytes, *self._receive_rest()

    def _misframed(self, frame: zmq.Frame) -> None:
        self.misframed += 1
        while frame.more:
            frame = self.socket.recv(_NOW, copy=False)

    def send(self, frames: Sequence[bytes], account: Account) -> SendOutcome:
        """Send one message to the identity in its first frame."""
        return self._send(frames[:-1], frames[-1], self._queues.of(frames[0]), account)

    def send_command(self, identity: bytes, header: bytes, body: Buffer, account: Account) -> SendOutcome:
        """Send one data command. A large body is not copied: its memory must not change until it is sent."""
        return self._send((identity, header), body, self._queues.of(identity), account)

    def send_commands(
        self, identity: bytes, headers: Sequence[bytes], bodies: Sequence[Buffer], account: Account
    ) -> tuple[int, SendOutcome]:
        """Send data commands in order. Returns how many were sent, and the outcome of the next one."""
        put, sent, outcome = self._put, 0, SendOutcome.OK
        queue = self._queues.of(identity)
        try:
            for header, body in zip(headers, bodies, strict=True):
                begun = queue.begun + len(header) + len(body) + net_limits.MESSAGE_OVERHEAD
                if begun < net_limits.GROUP:
                    put(identity, _FIRST)
                    put(header, _FIRST)
                    put(body, _NOW)
                    queue.begun = begun
                elif (outcome := self._send((identity, header), body, queue, account)) is not SendOutcome.OK:
                    break
                sent += 1
        except zmq.ZMQError as e:
            outcome = self._refused(identity, e)
        return sent, outcome

    def _send(self, frames: Sequence[bytes], last: Buffer, queue: PeerQueue, account: Account) -> SendOutcome:
        # Only the first frame can be refused: a queue with room for it takes the rest.
        put = self._put
        size = sum(map(len, frames)) + len(last) + net_limits.MESSAGE_OVERHEAD
        completes = queue.begun + size >= net_limits.GROUP
        if completes and not self._queues.has_room(queue, queue.begun + size, account):
            return SendOutcome.FULL
        try:
            for frame in frames:
                put(frame, _FIRST)
            if completes:
                # A small part of a pack is copied: otherwise it would keep the whole pack in memory.
                kept = last if len(last) >= net_limits.ZERO_COPY else bytes(last)
                whole = zmq.Frame(kept, copy=False, track=True)
                put(whole, _NOW)
                queue.complete(size, whole.tracker, account)
            else:
                put(last, _NOW)
                queue.begun += size
        except zmq.ZMQError as e:
            return self._refused(frames[0], e)
        return SendOutcome.OK

    def has_room(self, identity: bytes, octets: int, account: Account) -> bool:
        """Whether a large message may be sent to a peer, as far as octets are concerned."""
        return self._queues.has_room(self._queues.of(identity), octets, account)

    def _refused(self, identity: bytes, error: zmq.ZMQError) -> SendOutcome:
        """The outcome of a failed send; errors other than FULL and GONE are raised again."""
        if error.errno == zmq.EAGAIN:
            return SendOutcome.FULL
        if error.errno == zmq.EHOSTUNREACH:
            self._queues.forget(identity)
            return SendOutcome.GONE
        raise error

    def close(self) -> None:
        """Stop listening; sent messages leave within the linger."""
        if self.monitor is not None:
            self.socket.disable_monitor()
            self.monitor.close(0)
        self.socket.close()


def _monitor(context: zmq.Context[S], socket: S) -> S:
    """The monitor of connections that began or ended. Its queue has no limit, since libzmq's IO thread would wait for
    room in it; the loop empties it every turn.
    """
    monitor = context.socket(zmq.PAIR)
    monitor.setsockopt(zmq.RCVHWM, 0)
    address = f"inproc://monitor.{id(socket):x}"
    socket.monitor(address, _BEGAN | _ENDED)
    monitor.connect(address)
    return monitor


def _connection(frame: zmq.Frame) -> Connection:
    """The connection of a frame; empty where the transport has none."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""


def _address(frame: zmq.Frame) -> str:
    """The peer's address; empty where the transport has none."""
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return ""

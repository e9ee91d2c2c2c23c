"""A client's socket with its monitor. `dealer` and `req` say which options differ."""

from __future__ import annotations

import zmq
from zmq.utils.monitor import parse_monitor_message

from mtl.errors import OptionError
from mtl.limits import ZERO_COPY
from mtl.net.context import context
from mtl.net.endpoint import Frames, Ready
from mtl.wire.fields import Buffer

_UP = zmq.EVENT_HANDSHAKE_SUCCEEDED
_DOWN = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class SocketLink:
    """One ZeroMQ socket that connects once.

    libzmq would reconnect in silence, under a new identity and without a Lease, and what is sent then is lost
    (profiles.md "Writers"). So it must not, and the monitor says when a connection ends. Raises `OptionError` for an
    endpoint that libzmq does not understand.
    """

    def __init__(self, kind: int, endpoint: str, *, hwm: int, max_frame: int, view: bool) -> None:
        self.endpoint = endpoint
        self.malformed = 0
        """Messages that were dropped because they had not two frames."""
        self._view = view
        self.socket: zmq.Socket[bytes] = context().socket(kind)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.RECONNECT_IVL, -1)
        self.socket.set(zmq.MAXMSGSIZE, max_frame)
        self.socket.set(zmq.SNDHWM, hwm)
        self.socket.set(zmq.RCVHWM, hwm)
        self.monitor: zmq.Socket[bytes] = self.socket.get_monitor_socket(_UP | _DOWN)
        self._closed = False
        try:
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OptionError(f"{endpoint!r} is no endpoint to connect to: {error}") from error

    def send(self, first: bytes, second: Buffer) -> bool:
        """Send both frames, or neither: False when the socket takes no more."""
        send = self.socket.send
        try:
            send(first, zmq.DONTWAIT | zmq.SNDMORE)
        except zmq.Again:
            return False
        # A large body is lent to libzmq, which lets go of it after the kernel has it; it must not change meanwhile.
        send(second, zmq.DONTWAIT, copy=memoryview(second).nbytes < ZERO_COPY)
        return True

    def receive(self) -> Frames | None:
        """The next message of two frames; the second as a view of libzmq's memory on packed flows."""
        receive, socket = self.socket.recv, self.socket
        while True:
            try:
                first = receive(zmq.DONTWAIT)
            except zmq.Again:
                return None
            if socket.getsockopt(zmq.RCVMORE):
                second = receive(zmq.DONTWAIT, copy=False).buffer if self._view else receive(zmq.DONTWAIT)
                if not socket.getsockopt(zmq.RCVMORE):
                    return first, second
            while socket.getsockopt(zmq.RCVMORE):
                receive(zmq.DONTWAIT)
            self.malformed += 1

    def signals(self) -> Ready:
        """What the monitor has to say: UP, DOWN, both or nothing."""
        what = Ready(0)
        while True:
            try:
                event = parse_monitor_message(self.monitor.recv_multipart(zmq.DONTWAIT))["event"]
            except zmq.Again:
                return what
            what |= Ready.UP if event & _UP else Ready.DOWN

    def close(self) -> None:
        """Close both sockets at once."""
        if not self._closed:
            self._closed = True
            self.socket.disable_monitor()
            self.monitor.close(0)
            self.socket.close(0)

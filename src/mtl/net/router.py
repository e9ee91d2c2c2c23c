"""A ROUTER socket as the broker uses it (MTL-11, MTL-12, MTL-113): never blocks, never drops in silence.

ROUTER_MANDATORY makes a full queue an EAGAIN and an unknown peer an EHOSTUNREACH; without it libzmq drops (490 of 500
messages were lost at the high-water mark).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from enum import Enum

import zmq

from mtl import limits
from mtl.errors import MtlError


class BindFailed(MtlError):
    """The endpoint cannot be bound: in use, not ours, or not an endpoint."""


class Sent(Enum):
    """What became of a message that was to be sent."""

    OK = "ok"
    FULL = "full"
    GONE = "gone"


def seed_identities() -> None:
    """Seed the C library's rand before the first ROUTER: its first identity is the same in every process otherwise, and
    whoever announces it after its owner left receives the owner's replies (profiles.md "Leases").
    """
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "little"))


class RouterSocket:
    """One bound ROUTER. `copy_below` is the size from which a frame is sent without copying it."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, *, hwm: int, max_frame: int
    ) -> None:
        socket = context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.LINGER, limits.LINGER_MS)
        socket.setsockopt(zmq.SNDHWM, hwm)
        socket.setsockopt(zmq.RCVHWM, hwm)
        socket.setsockopt(zmq.MAXMSGSIZE, max_frame)
        socket.setsockopt(zmq.HANDSHAKE_IVL, limits.HANDSHAKE_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, limits.ZMTP_HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, limits.ZMTP_TIMEOUT_MS)
        if "[" in endpoint:  # only then: an IPv4 endpoint would be reported as ::ffff:a.b.c.d
            socket.setsockopt(zmq.IPV6, 1)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as e:
            socket.close()
            raise BindFailed(
                f"cannot listen on {endpoint}: {e.strerror}; choose another with --endpoint"
            ) from e
        self.socket = socket
        self.endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def port(self) -> int:
        """The TCP port that it is bound to; 0 where the transport has none."""
        return int(self.endpoint.rpartition(":")[2]) if self.endpoint.startswith("tcp://") else 0

    def drain(self, messages: int, *, copy: bool) -> Iterator[list[bytes] | list[zmq.Frame]]:
        """What has arrived, at most so many messages; frames unread in their own memory when not `copy`."""
        receive = self.socket.recv_multipart
        for _ in range(messages):
            try:
                yield receive(zmq.DONTWAIT, copy=copy)
            except zmq.Again:
                return

    def send(self, frames: Sequence[bytes | memoryview], *, copy: bool = True) -> Sent:
        """Send one message to the identity in its first frame."""
        try:
            self.socket.send_multipart(frames, zmq.DONTWAIT, copy=copy)
        except zmq.ZMQError as e:
            if e.errno == zmq.EAGAIN:
                return Sent.FULL
            if e.errno in (zmq.EHOSTUNREACH, errno.EHOSTUNREACH):
                return Sent.GONE
            raise
        return Sent.OK

    def close(self) -> None:
        """Stop listening; what was sent leaves within the linger."""
        self.socket.close()

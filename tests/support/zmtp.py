"""ZMTP 3.0 on a plain TCP connection: a peer with behaviour that libzmq does not allow."""

from __future__ import annotations

import socket
import struct

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
MORE, LONG, COMMAND = 1, 2, 4


class RawPeer:
    """A DEALER to the broker that starts its handshake on request and announces `identity` in it; `address` is its own
    address.
    """

    def __init__(self, endpoint: str, identity: bytes = b"", address: str = "") -> None:
        host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20, source_address=(address, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._identity = identity
        self.ready = b""
        """The properties that the other end sent in its handshake."""

    def shake_hands(self) -> RawPeer:
        self.socket.sendall(GREETING + self._ready())
        self._receive(64)
        flags = self._receive(1)[0]
        assert flags == COMMAND, flags
        self.ready = self._receive(self._receive(1)[0])
        return self

    def _ready(self) -> bytes:
        body = b"\5READY" + _property(b"Socket-Type", b"DEALER") + _property(b"Identity", self._identity)
        return bytes([COMMAND, len(body)]) + body

    def send(self, *frames: bytes) -> None:
        """Send one message."""
        last = len(frames) - 1
        self.socket.sendall(b"".join(header(len(x), more=n < last) + x for n, x in enumerate(frames)))

    def receive(self) -> list[bytes]:
        """The frames of the next message. Commands (heartbeats) are left out."""
        frames = []
        while True:
            flags = self._receive(1)[0]
            size = struct.unpack(">Q", self._receive(8))[0] if flags & LONG else self._receive(1)[0]
            body = self._receive(size)
            if not flags & COMMAND:
                frames.append(body)
                if not flags & MORE:
                    return frames

    def _receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("the broker hung up")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def hung_up(self, patience_s: float = 20.0) -> bool:
        """Whether the broker ends the connection within this time in seconds; frames before the end are dropped."""
        self.socket.settimeout(patience_s)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()


def header(size: int, *, more: bool = False) -> bytes:
    """The header of a frame of this size."""
    flags = MORE if more else 0
    return bytes([flags, size]) if size < 256 else bytes([flags | LONG]) + struct.pack(">Q", size)


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value

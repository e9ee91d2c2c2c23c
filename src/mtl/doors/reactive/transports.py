"""Transports of a link's octets: here a TCP socket, with TLS or without; `over_websocket` has the other one."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Protocol

from mtl.doors.arriving import Arriving
from mtl.doors.limits import RS_GOODBYE_S

_AT_ONCE: Final = 64 << 10
"""Maximum of octets of one read, which is also asyncio's limit for its read buffer."""


class Transport(Protocol):
    """Octets both ways, in order (RS-01); the boundaries of pieces have no meaning."""

    @property
    def peer(self) -> object:
        """The `getpeername` of the socket."""

    async def read(self, incomplete: int = 0) -> bytes:
        """Octets that the peer has sent; empty at the end, also when the connection broke. `incomplete` octets of
        earlier ones are kept, since their messages are not whole. Raises `DoorRefusal` if there is no room for them.
        """

    def write(self, octets: bytes) -> None:
        """Send octets at the peer's pace. Ignored after the end of the connection."""

    @property
    def waiting(self) -> int:
        """The number of octets that are buffered here."""

    async def wait_drained(self) -> None:
        """Wait until the peer has read most of them, or the connection has ended."""

    async def close_transport(self) -> None:
        """Close, after the last `read`; waits RS_GOODBYE_S at most until the peer has read everything.

        Input from the peer is read first: closing a socket with unread input resets the connection, and the peer would
        lose our last messages.
        """

    def abort(self) -> None:
        """Break the connection; `read` ends."""


class StreamTransport:
    """A TCP connection, as asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ended = False
        self.arriving: Arriving | None = None
        """The reservation for the incomplete messages of a door's peer."""
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a peer may have nothing to say for days

    @property
    def peer(self) -> object:
        """See `Transport`."""
        return self._writer.get_extra_info("peername")

    async def read(self, incomplete: int = 0) -> bytes:
        """See `Transport`."""
        try:
            if self.arriving is None:
                return await self._reader.read(_AT_ONCE)
            await self.arriving.reserve(incomplete)
            return await self.arriving.read(self._reader.read(_AT_ONCE))
        except OSError:
            return b""

    def write(self, octets: bytes) -> None:
        """See `Transport`."""
        if not self._ended and not self._writer.is_closing():
            self._writer.write(octets)

    @property
    def waiting(self) -> int:
        """See `Transport`."""
        return self._writer.transport.get_write_buffer_size()

    async def wait_drained(self) -> None:
        """See `Transport`."""
        try:
            await self._writer.drain()
        except OSError:
            pass

    async def close_transport(self) -> None:
        """See `Transport`."""
        try:
            async with asyncio.timeout(RS_GOODBYE_S):
                if self._writer.can_write_eof():  # TLS has no half of an end
                    self._ended = True
                    self._writer.write_eof()
                    while await self._reader.read(_AT_ONCE):
                        pass
                self._writer.close()
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            self.abort()

    def abort(self) -> None:
        """See `Transport`."""
        self._writer.transport.abort()

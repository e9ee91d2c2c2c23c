"""Transports of a link's octets: here a TCP socket, with TLS or without; `over_websocket` has the other one."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Protocol

from mtl.doors.limits import RS_GOODBYE_S

_AT_ONCE: Final = 64 << 10
"""Octets that are read at once, and asyncio's own limit for what it reads ahead."""


class Transport(Protocol):
    """Octets both ways, in order (RS-01); the boundaries of pieces have no meaning."""

    @property
    def peer(self) -> object:
        """The `getpeername` of the socket."""

    async def read(self) -> bytes:
        """Some that the peer has sent; none when there will be no more, also when the connection broke."""

    def write(self, octets: bytes) -> None:
        """Send them, as the peer reads. Ignored when the connection is over."""

    @property
    def waiting(self) -> int:
        """Octets that the peer has not made room for yet."""

    async def drained(self) -> None:
        """Wait until the peer has read most of that, or is gone."""

    async def shut(self) -> None:
        """Close, when nobody reads any more; RS_GOODBYE_S for the peer to have read what was written.

        Input from the peer is read first: closing a socket with unread input resets the connection, and the peer would
        lose our last messages.
        """

    def give_up(self) -> None:
        """Break the connection; `read` ends."""


class Octets:
    """A stream of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        there: socket.socket = writer.get_extra_info("socket")
        there.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a peer may have nothing to say for days

    @property
    def peer(self) -> object:
        """See `Transport`."""
        return self._writer.get_extra_info("peername")

    async def read(self) -> bytes:
        """See `Transport`."""
        try:
            return await self._reader.read(_AT_ONCE)
        except OSError:
            return b""

    def write(self, octets: bytes) -> None:
        """See `Transport`."""
        if not self._writer.is_closing():
            self._writer.write(octets)

    @property
    def waiting(self) -> int:
        """See `Transport`."""
        return self._writer.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """See `Transport`."""
        try:
            await self._writer.drain()
        except OSError:
            pass

    async def shut(self) -> None:
        """See `Transport`."""
        try:
            async with asyncio.timeout(RS_GOODBYE_S):
                if self._writer.can_write_eof():  # TLS has no half of an end
                    self._writer.write_eof()
                    while await self._reader.read(_AT_ONCE):
                        pass
                self._writer.close()
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            self.give_up()

    def give_up(self) -> None:
        """See `Transport`."""
        self._writer.transport.abort()

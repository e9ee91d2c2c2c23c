"""One connection between a session and a TCP socket; the door and the client both are at such an end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Final

from mtl.doors.limits import RS_BACKLOG, RS_GOODBYE_S, RS_PART
from mtl.doors.reactive.session import Event, Left, Role, Session
from mtl.wire.fields import Buffer

_AT_ONCE: Final = 64 << 10
"""Octets that are read at once, and asyncio's own limit for what it reads ahead."""


class Link:
    """`events` has to be iterated by one task as long as the connection is there; `flush` follows whatever is said."""

    def __init__(self, role: Role, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.session = Session(role)
        self._reader = reader
        self._writer = writer
        self._over = asyncio.Event()
        self._turn = asyncio.Lock()
        self._splitting = asyncio.Lock()
        there: socket.socket = writer.get_extra_info("socket")
        there.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a peer may have nothing to say for days
        self.flush()

    async def events(self) -> AsyncIterator[Event]:
        """What the peer wants and tells; the last one is `Left`, also when the connection broke."""
        while octets := await self._read():
            for event in self.session.received(octets):
                self.flush()
                yield event
                if isinstance(event, Left):
                    return
            self.flush()
            if self._writer.transport.get_write_buffer_size() > RS_BACKLOG:
                await self._drained()
        yield Left("the connection broke")

    async def publish(self, subscriber: int, element: Buffer) -> None:
        """Send one element, for which there has to be demand, at the peer's pace.

        Streams take turns by messages, and only one large element is in parts at a time: others need not wait for it
        when they are small, and nobody has to put many together at once.
        """
        steps = self.session.publishing.publish(subscriber, element)
        async with self._splitting if len(element) > RS_PART else nullcontext():
            more = True
            while more:
                async with self._turn:
                    more = next(steps, steps) is not steps
                    self.flush()
                    await self._drained()

    def flush(self) -> None:
        """Send what the session has to say."""
        octets = self.session.take()
        if octets and not self._writer.is_closing():
            self._writer.write(octets)

    async def close(self, reason: str) -> None:
        """Say goodbye, and wait a while for the answer and the end. Harmless when repeated."""
        self.session.say_goodbye(reason)
        self.flush()
        try:
            async with asyncio.timeout(RS_GOODBYE_S):
                await self._over.wait()
        except TimeoutError:
            self.give_up()

    async def shut(self) -> None:
        """Close the socket, for the task of `events`, after them.

        What the peer has under way is read first: closing over it would reset the connection, and our goodbye with it.
        """
        try:
            async with asyncio.timeout(RS_GOODBYE_S):
                self._writer.write_eof()
                while await self._reader.read(_AT_ONCE):
                    pass
                self._writer.close()
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            self.give_up()
        finally:
            self._over.set()

    def give_up(self) -> None:
        """Break the connection; `events` ends."""
        self._writer.transport.abort()

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_AT_ONCE)
        except OSError:
            return b""

    async def _drained(self) -> None:
        """Until the peer has read; when it is gone `events` tells."""
        try:
            await self._writer.drain()
        except OSError:
            pass

"""The client of a MicroMessage2 server, on a loopback socket; the test speaks for the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mtl.doors.micromessage import client
from mtl.doors.micromessage.client import MicroConnection
from mtl.doors.micromessage.codec import CommandFrame
from mtl.doors.micromessage.door import OFFER
from mtl.doors.micromessage.session import (
    Acked,
    CommandArrived,
    Event,
    HandshakeDone,
    MicroRole,
    MicroSession,
)
from mtl.errors import Closed
from tests.support.aio import in_loop, until
from tests.support.bridge import turns

UNSUBSCRIBE = CommandArrived(CommandFrame("unsubscribe", {"destination": "jobs"}))
SUBSCRIBE = CommandArrived(CommandFrame("subscribe", {"destination": "jobs"}))


class Server:
    """Records the events of one client."""

    def __init__(self) -> None:
        self.session = MicroSession(MicroRole.SERVER, OFFER, "server")
        self.events: list[Event] = []
        self._stream: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        self._stream = stream
        while data := await reader.read(1 << 16):
            self.events += self.session.received(data)
            self.flush()
        stream.close()

    def deliver(self, body: bytes) -> None:
        self.session.send("jobs", body)
        self.flush()

    def flush(self) -> None:
        assert self._stream is not None
        self._stream.write(self.session.to_send())

    async def events_until(self, count: int) -> list[Event]:
        """The events, as soon as there are this many."""
        await until(lambda: len(self.events) >= count)
        return self.events


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[MicroConnection, Server]]:
    """A connection after the handshake."""
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        async with client.connect(f"{host}:{port}") as connection:
            (done,) = await server.events_until(1)
            assert isinstance(done, HandshakeDone)
            server.events.clear()
            yield connection, server
    finally:
        listening.close()
        await listening.wait_closed()


@pytest.mark.requirement("MM2-55", "MM2-64")
@in_loop
async def test_the_close_of_a_reader_unsubscribes_once_after_its_acknowledgements() -> None:
    async with connected() as (connection, server):
        reader = await connection.reader("jobs")
        assert await server.events_until(1) == [SUBSCRIBE]
        for body in (b"1", b"2"):
            server.deliver(body)
        assert (await reader.next()).body == b"1"
        assert (await reader.next()).body == b"2"
        await reader.close()
        await reader.close()
        again = await connection.reader("jobs")  # its command comes after those of the close
        events = await server.events_until(4)
        acked = [event for event in events if isinstance(event, Acked)]
        assert sum(event.count for event in acked) == 2
        assert [event for event in events if event not in acked] == [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE]
        assert events.index(UNSUBSCRIBE) > events.index(acked[-1])
        await again.close()


@pytest.mark.requirement("MM2-64")
@in_loop
async def test_the_next_content_of_a_closed_reader_is_the_error_closed() -> None:
    async with connected() as (connection, server):
        reader = await connection.reader("jobs")
        await reader.close()
        with pytest.raises(Closed, match="the reader is closed"):
            await asyncio.wait_for(reader.next(), 10)
        assert await server.events_until(2) == [SUBSCRIBE, UNSUBSCRIBE]


class Stream:
    """Records the sizes of what is written."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def write(self, octets: bytes) -> None:
        self.sizes.append(len(octets))

    def is_closing(self) -> bool:
        return False

    async def drain(self) -> None:
        """The server reads at once."""


@pytest.mark.requirement("MM2-55")
@in_loop
async def test_contents_of_one_turn_are_written_together_up_to_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "MM2_READ", 10)
    async with connected() as (connection, _):
        stream = Stream()
        with monkeypatch.context() as patched:
            patched.setattr(connection, "_stream", stream)
            await connection.send("jobs", bytes(5), {})
            assert stream.sizes == []
            await connection.send("jobs", bytes(5), {})
            assert len(stream.sizes) == 1
            await connection.send("jobs", bytes(5), {})
            assert len(stream.sizes) == 1
            await turns()
            assert len(stream.sizes) == 2

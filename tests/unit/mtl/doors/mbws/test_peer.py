"""Sessions of one connection, on sockets without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from mtl.doors.bridge import Bridge
from mtl.doors.mbws.codec import Connect, Frame, Kind, Message, decode, encode
from mtl.doors.mbws.connection_store import ConnectionStore
from mtl.doors.mbws.peer import MbwsPeer, PeerConnection
from mtl.doors.mbws.recovery import Client, Connections
from mtl.doors.mbws.session import MBWS
from mtl.doors.peer_session import PeerSession
from mtl.doors.websocket_server import DoorSocket
from tests.support.aio import in_loop
from tests.support.bridge import ConfirmingBridge, turns

NATIVE = Client(None)


class FakeSocket:
    """The socket of a session. With `lasting` its messages end only by `end`, not when the door drops it."""

    remote_address = ("127.0.0.1", 1)
    origin = None
    subprotocol = MBWS
    closed_by_peer = False

    def __init__(self, path: str, session: PeerSession, *, lasting: bool) -> None:
        self.session = session
        self.request = SimpleNamespace(path=path)
        self.sent: list[Frame] = []
        self.ends: list[str] = []
        self._lasting = lasting
        self._incoming: asyncio.Queue[list[bytes | str]] = asyncio.Queue()

    def receive(self, *frames: Frame) -> None:
        """Frames of the client."""
        self._incoming.put_nowait([encode(frame, Kind.BINARY) for frame in frames])

    def end(self) -> None:
        """The socket is lost."""
        self._incoming.put_nowait([])

    async def messages(self) -> list[bytes | str]:
        return await self._incoming.get()

    async def send(self, message: bytes | str) -> None:
        self.sent.append(decode(message))

    def drop(self) -> None:
        self.ends.append("drop")
        if not self._lasting:
            self.end()

    def answer_close(self) -> None:
        self.ends.append("answer_close")

    async def end_without_close(self) -> None:
        self.ends.append("end_without_close")


class FakeDoor:
    """The connections of a door; `now` is the time in seconds, a client may be away for 60."""

    def __init__(self) -> None:
        self.now = 0.0
        self.bridge = ConfirmingBridge()
        self.connections: Connections[PeerConnection] = Connections(10, 60.0, lambda: self.now)
        self._store = ConnectionStore(cast("Bridge", self.bridge))

    @asynccontextmanager
    async def session(self, *, path: str = "/", lasting: bool = False) -> AsyncIterator[FakeSocket]:
        """A session; it ends with the block."""
        socket = FakeSocket(path, self.bridge.session, lasting=lasting)
        peer = MbwsPeer(cast("DoorSocket", socket), self.connections, self._store, self._retain)
        serving = asyncio.create_task(peer.serve())
        yield socket
        socket.end()
        await serving

    async def _retain(self, connection: PeerConnection) -> None:
        """Store nothing."""


async def connected(socket: FakeSocket) -> str:
    """The name of a new connection."""
    socket.receive(Connect())
    await turns()
    (reply,) = socket.sent
    assert isinstance(reply, Connect)
    return reply.name


@pytest.mark.requirement("MBWS-16", "MBWS-29")
@in_loop
async def test_a_reconnect_is_answered_when_the_messages_under_way_are_counted() -> None:
    door = FakeDoor()
    async with door.session() as first, door.session() as second:
        name = await connected(first)
        first.receive(Message(("a",), b"1"), Message(("a",), b"2"))
        await turns()
        second.receive(Connect(name, (0, 1, 2)))
        await turns()
        assert second.sent == []
        await door.bridge.confirm()
        assert second.sent[:1] == [Connect(name, (2,))]


@pytest.mark.requirement("MBWS-24")
@in_loop
async def test_a_reconnect_is_answered_after_the_end_of_the_previous_session() -> None:
    door = FakeDoor()
    async with door.session(lasting=True) as first, door.session() as second:
        name = await connected(first)
        second.receive(Connect(name, (0, 1, 0)))
        await turns()
        assert first.ends == ["drop"]
        assert second.sent == []
        first.end()
        await turns()
        assert second.sent == [Connect(name, (0,))]


@pytest.mark.requirement("MBWS-21", "MBWS-24")
@in_loop
async def test_a_recovered_connection_does_not_expire_during_its_session() -> None:
    door = FakeDoor()
    async with door.session() as first:
        name = await connected(first)
    assert [connection.name for connection in door.connections.waiting] == [name]
    async with door.session() as second:
        second.receive(Connect(name, (0, 1, 0)))
        await turns()
        assert second.sent == [Connect(name, (0,))]
        assert door.connections.waiting == []
        door.now = 1000.0
        assert door.connections.find(name, NATIVE) is not None


@pytest.mark.requirement("MBWS-24")
@in_loop
async def test_the_end_of_a_session_closes_its_subscriptions() -> None:
    door = FakeDoor()
    async with door.session(path="/?address=a&address=b") as socket:
        await connected(socket)
        assert [subscription.closed for subscription in door.bridge.subscriptions] == [False, False]
    assert [subscription.closed for subscription in door.bridge.subscriptions] == [True, True]


@pytest.mark.requirement("MBWS-24", "MBWS-29")
@in_loop
async def test_a_close_in_a_superseded_session_does_not_end_the_connection() -> None:
    door = FakeDoor()
    async with door.session() as first, door.session() as second:
        name = await connected(first)
        first.closed_by_peer = True
        second.receive(Connect(name, (0, 1, 0)))
        await turns()
        assert second.sent == [Connect(name, (0,))]
        assert set(first.ends) == {"drop"}
        assert door.connections.find(name, NATIVE) is not None

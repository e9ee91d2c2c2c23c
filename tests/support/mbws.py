"""The MBWS door with a broker, and bare WebSockets that implement only the document."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State
from websockets.typing import Origin, Subprotocol

from mtl.client.aio import Connection
from mtl.doors.mbws.codec import Acknowledge, Connect, Frame, Kind, Message, decode, encode
from mtl.doors.mbws.session import MBWS
from mtl.doors.running import Door
from mtl.testing import RunningBroker
from tests.support.doors import door

ANYWHERE = "127.0.0.1:0"
OURS = "ours"
"""The origin of a page of the door's own."""

names = (f"resource-{n}" for n in itertools.count())


@asynccontextmanager
async def at(broker: RunningBroker, **config: Any) -> AsyncIterator[tuple[Door, Connection]]:
    async with door("mbws", broker.endpoint, ANYWHERE, **config) as opened:
        yield opened


class Bare:
    """A WebSocket and the document."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, *frames: Frame, kind: Kind = Kind.BINARY) -> None:
        for frame in frames:
            await self.socket.send(encode(frame, kind))

    async def receive(self) -> Frame:
        return decode(await self.socket.recv())

    async def connect(self, name: str = "", *numbers: int, kind: Kind = Kind.BINARY) -> Connect:
        await self.send(Connect(name, numbers), kind=kind)
        frame = await self.receive()
        assert isinstance(frame, Connect)
        return frame

    async def messages(self, count: int) -> list[Message]:
        """The next messages; acknowledgements between them are skipped."""
        found: list[Message] = []
        while len(found) < count:
            frame = await self.receive()
            if isinstance(frame, Message):
                found.append(frame)
        return found

    async def acknowledged(self, sequence: int) -> None:
        """Wait for this acknowledgement; messages before it are skipped."""
        while True:
            frame = await self.receive()
            if isinstance(frame, Acknowledge):
                assert frame.sequence <= sequence
                if frame.sequence == sequence:
                    return

    async def closed(self) -> int | None:
        """The close code; frames before it are skipped."""
        try:
            while True:
                await self.socket.recv()
        except ConnectionClosed:
            return self.socket.close_code

    def break_off(self) -> None:
        if self.socket.state is not State.CLOSED:
            self.socket.transport.abort()


@asynccontextmanager
async def bare(
    opened: Door,
    query: str = "",
    subprotocol: str = MBWS,
    origin: str | None = OURS,
    authorization: str | None = None,
) -> AsyncIterator[Bare]:
    if origin == OURS:
        origin = opened.endpoint.replace("ws", "http", 1)
    socket = await connect(
        f"{opened.endpoint}/?{query}",
        subprotocols=[Subprotocol(subprotocol)],
        origin=None if origin is None else Origin(origin),
        max_size=None,
        additional_headers=None if authorization is None else {"Authorization": authorization},
    )
    assert socket.subprotocol == subprotocol
    client = Bare(socket)
    try:
        yield client
    finally:
        client.break_off()


def numbered(address: str, numbers: range) -> list[Message]:
    return [Message((address,), b"%d" % n) for n in numbers]


def bodies_of(messages: list[Message]) -> list[int]:
    return [int(message.body) for message in messages]


async def in_log(broker_client: Connection, resource: str) -> list[bytes]:
    """The bodies of all contents."""
    end = (await broker_client.describe([resource]))[resource].next
    async with broker_client.reader(resource, start="earliest", until=end) as log:
        return [content.body async for content in log]


async def written(broker_client: Connection, resource: str, numbers: range) -> None:
    await broker_client.create_resource(resource, exist_ok=True)
    async with broker_client.writer(resource) as w:
        for n in numbers:
            await w.send(b"%d" % n)

"""The client's commands at a middleware that answers OK to every request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import zmq
import zmq.asyncio

from mtl.doors.mc0 import client as mc0
from mtl.doors.mc0.codec import Mc0Message, Verb, decode, encode, ok
from mtl.errors import Closed
from tests.support.aio import in_loop


class Middleware:
    """`commands` are the verbs and positional frames of all requests so far."""

    def __init__(self) -> None:
        self.commands: list[tuple[Verb | str, tuple[bytes, ...]]] = []
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._peer = b""
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self._task = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        while True:
            self._peer, *frames = await self._socket.recv_multipart()
            message, _ = decode(frames)
            if message.id is not None:
                self.commands.append((message.verb, tuple(message.positional or ())))
                await self._send(ok(message.id))

    async def _send(self, message: Mc0Message) -> None:
        await self._socket.send_multipart([self._peer, *encode(message)])

    async def deliver(self, topic: str, body: bytes) -> None:
        """Send a MESSAGE to the last client."""
        await self._send(Mc0Message(Verb.MESSAGE, {"TOPIC": topic}, (body,)))

    def close(self) -> None:
        self._task.cancel()
        self._context.destroy(linger=0)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Middleware, mc0.Mc0Connection]]:
    middleware = Middleware()
    try:
        async with mc0.connect(middleware.endpoint) as connection:
            middleware.commands.clear()
            yield middleware, connection
    finally:
        middleware.close()


@in_loop
async def test_the_last_reader_of_a_topic_unsubscribes_once_when_it_is_closed() -> None:
    async with connected() as (middleware, connection):
        first, second = await connection.reader("a"), await connection.reader("a")
        other = await connection.reader("b")
        middleware.commands.clear()
        await first.close()
        assert middleware.commands == []
        await second.close()
        assert middleware.commands == [(Verb.UNSUB, (b"a",))]
        for reader in (first, second):
            await reader.close()
        assert middleware.commands == [(Verb.UNSUB, (b"a",))]
        await other.close()
        assert middleware.commands[1:] == [(Verb.UNSUB, (b"b",))]


@pytest.mark.requirement("MC0-23")
@in_loop
async def test_a_message_reaches_the_open_readers_of_its_topic() -> None:
    async with connected() as (middleware, connection):
        first, second = await connection.reader("a"), await connection.reader("a")
        await middleware.deliver("a", b"1")
        for reader in (first, second):
            assert (await reader.next()).body == b"1"
        await first.close()
        await middleware.deliver("a", b"2")
        assert (await second.next()).body == b"2"
        with pytest.raises(Closed):
            await first.next()


ODD: dict[str, list[bytes]] = {
    "nothing": [b""],
    "no-verb": [b"", b""],
    "unknown-verb": [b"SHOUT", b""],
    "no-utf8": [b"\xff\xfe", b"\xff"],
    "message-without-topic": [b"MESSAGE", b"", b"body"],
    "message-with-an-odd-sequence": [b"MESSAGE", b"TOPIC", b"t", b"mtl-sequence", b"many", b"", b"body"],
    "half-a-header": [b"MESSAGE", b"TOPIC"],
    "unasked-ok": [b"OK", b"ID", b"999", b""],
    "error-without-id": [b"ERROR", b""],
    "many-frames": [b"MESSAGE", *[b"x"] * 1_000],
}


@in_loop
async def test_odd_messages_are_dropped_and_the_next_content_is_intact() -> None:
    async with connected() as (middleware, connection), connection.reader("t") as reader:
        for frames in ODD.values():
            await middleware._socket.send_multipart([middleware._peer, *frames])
        await middleware._send(Mc0Message(Verb.MESSAGE, {"TOPIC": "t"}, (b"intact",)))
        bodies = [(await reader.next()).body]
        while bodies[-1] != b"intact":
            bodies.append((await reader.next()).body)
        assert set(bodies) <= {b"body", b"intact"}

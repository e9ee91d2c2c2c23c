"""The Reactive Streams door on WebSocket: its client, and bare WebSockets with only the codec."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from mtl.client.aio import Connection
from mtl.doors.limits import RS_PART
from mtl.doors.reactive import client as reactive
from mtl.doors.reactive import codec
from mtl.doors.reactive.over_websocket import SUBPROTOCOL
from mtl.doors.reactive.streams import ReactiveReader
from mtl.doors.running import Door
from mtl.errors import Closed, OptionError, Refused, Unreachable
from mtl.limits import MAX_CONTENT
from mtl.testing import RunningBroker, broker
from tests.support.aio import in_loop, until
from tests.support.doors import BODIES, door
from tests.support.elements import apart
from tests.support.tls import Certificates

ANYWHERE = "ws://127.0.0.1:0"


names = (f"resource-{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all tests that leave it intact; each test has its own resource."""
    with broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


class Bare:
    """A WebSocket and the codec."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._decoder = codec.ReactiveDecoder()
        self._received: list[codec.Message] = []

    async def send(self, *messages: codec.Message) -> None:
        await self.socket.send(b"".join(map(codec.encode, messages)))

    async def receive(self) -> codec.Message:
        while not self._received:
            octets = await self.socket.recv()
            assert isinstance(octets, bytes)
            self._received += apart(self._decoder.feed(octets))
        return self._received.pop(0)

    async def closed(self) -> tuple[int | None, str | None]:
        """The door's close code and reason."""
        with suppress(ConnectionClosed):
            while True:
                await self.socket.recv()
        return self.socket.close_code, self.socket.close_reason


@asynccontextmanager
async def at(
    running: RunningBroker, listen: str = ANYWHERE, **config: Any
) -> AsyncIterator[tuple[Door, Connection]]:
    async with door("reactive", running.endpoint, listen, **config) as opened:
        yield opened


@asynccontextmanager
async def bare(endpoint: str, *, hello: bool = True, **options: Any) -> AsyncIterator[Bare]:
    async with connect(endpoint, subprotocols=[Subprotocol(SUBPROTOCOL)], **options) as socket:
        client = Bare(socket)
        if hello:
            await client.send(codec.ClientHello())
            assert await client.receive() == codec.ServerHello()
        yield client


@pytest.mark.requirement("RS-01", "RS-02", "RS-24", "RS-34")
@in_loop
async def test_published_elements_are_delivered_and_durable(shared: RunningBroker) -> None:
    name = next(names)
    async with at(shared) as (opened, broker_client), reactive.connect(opened.endpoint) as c:
        assert opened.endpoint.startswith("ws://127.0.0.1:")
        bodies = [*BODIES, bytes(MAX_CONTENT - 100)]
        async with c.reader(name, start="latest") as r:
            async with c.writer(name) as w:
                for body in bodies:
                    await w.send(body)
            assert [(await r.next()).body for _ in bodies] == bodies
        async with broker_client.reader(name, until=len(bodies) + 1) as log:
            assert [content.body async for content in log] == bodies
    await until(lambda: not opened.peers)  # type: ignore[attr-defined]
    with pytest.raises((Unreachable, Closed)):
        await c.writer(name)


@pytest.mark.requirement("RS-02", "RS-04")
@in_loop
async def test_websocket_message_boundaries_are_ignored(shared: RunningBroker) -> None:
    name = next(names)
    async with at(shared) as (opened, _), bare(opened.endpoint, hello=False) as client:
        commands: list[codec.Message] = [
            codec.ClientHello(),
            codec.Subscribe(name, 5, 2),
            codec.Subscribe(f"$publish/{name}", 6, 9),
        ]
        octets = b"".join(map(codec.encode, commands))
        for at_once in (octets[:1], b"", octets[1:9], octets[9:]):
            await client.socket.send(at_once)
        messages = [await client.receive() for _ in range(4)]
        (back,) = [message for message in messages if isinstance(message, codec.Subscribe)]
        others = [message for message in messages if message is not back]
        assert others[0] == codec.ServerHello()
        assert codec.Subscribed(5) in others
        assert codec.Subscribed(6, 8) in others
        q = back.subscriber
        element = codec.encode(codec.OnNext(q, b"in three fragments"))
        await client.send(codec.Subscribed(q))
        await client.socket.send([element[:2], element[2:5], element[5:]])
        answers = [await client.receive() for _ in range(3)]
        assert codec.RequestMore(q, 1) in answers
        assert codec.OnNext(5, b"in three fragments") in answers
        assert codec.OnNext(6, (1).to_bytes(8, "big")) in answers


@pytest.mark.requirement("RS-10")
@in_loop
async def test_the_subprotocol_selects_the_version(shared: RunningBroker) -> None:
    async with at(shared) as (opened, _):
        later = Subprotocol("reactive-streams.v1")
        for offered in ([later], None):
            with pytest.raises(InvalidStatus, match="400"):
                await connect(opened.endpoint, subprotocols=offered)
        async with connect(opened.endpoint, subprotocols=[later, Subprotocol(SUBPROTOCOL)]) as socket:
            assert socket.subprotocol == SUBPROTOCOL


@pytest.mark.requirement("RS-09", "RS-39", "RS-40")
@in_loop
async def test_a_goodbye_is_answered_and_then_the_websocket_is_closed(shared: RunningBroker) -> None:
    name = next(names)
    async with at(shared) as (opened, _):
        wrong: list[tuple[list[codec.Message], str]] = [
            ([codec.ClientHello(), codec.Goodbye("enough")], ""),
            ([codec.ClientHello(1)], "version 1"),
            ([codec.ClientHello(), codec.Subscribe("a", 1), codec.Subscribe("a", 1)], "Id 1 is in use"),
        ]
        for messages, words in wrong:
            async with bare(opened.endpoint, hello=False) as client:
                await client.send(*messages)
                while not isinstance(goodbye := await client.receive(), codec.Goodbye):
                    pass
                assert words in goodbye.reason
                assert await client.closed() == (1000, "")
        async with bare(opened.endpoint) as client:
            await client.socket.send("text")
            code, reason = await client.closed()
            assert code == 1003
            assert "binary" in str(reason)
        async with bare(opened.endpoint) as client:
            await client.send(codec.Subscribe(name, 1, 9))  # and Close, without a goodbye
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]


@in_loop
async def test_a_stopping_door_sends_goodbye(shared: RunningBroker) -> None:
    name = next(names)
    async with at(shared) as (opened, _):
        c = await reactive.connect(opened.endpoint)
        r, w = await c.reader(name), await c.writer(name)
        await (await w.send(b"1"))
    assert (await r.next()).body == b"1"
    with pytest.raises(Unreachable, match="the door closes"):
        await r.next()
    await c.close()
    with pytest.raises(Unreachable):
        await reactive.connect(opened.endpoint, timeout=0.5)


@in_loop
async def test_streams_of_one_connection_are_independent(shared: RunningBroker) -> None:
    async with at(shared) as (opened, broker_client), reactive.connect(opened.endpoint) as c:
        resources = [next(names) for _ in range(4)]
        for name in resources:
            await broker_client.create_resource(name)
            async with broker_client.writer(name) as w:
                for n in range(10):
                    await w.send(name.encode() + b"%d" % n + bytes(4 * RS_PART))
        stuck = await c.reader(resources[0], window=1)  # not read
        readers = [await c.reader(name, window=3) for name in resources]

        async def read(reader: ReactiveReader) -> list[bytes]:
            return [(await reader.next()).body.rstrip(b"\0") for _ in range(10)]

        assert await asyncio.gather(*map(read, readers)) == [
            [name.encode() + b"%d" % n for n in range(10)] for name in resources
        ]
        assert (await stuck.next()).body.startswith(resources[0].encode())


@in_loop
async def test_memory_for_a_stuck_subscriber_is_bounded(
    shared: RunningBroker,
) -> None:
    name = next(names)
    async with at(shared) as (opened, broker_client), bare(opened.endpoint, max_queue=1) as client:
        await broker_client.create_resource(name)
        async with broker_client.writer(name) as w:
            for n in range(300):
                await w.send(b"%d" % n + bytes(100_000))
        await client.send(codec.Subscribe(name, 1, 2**63 - 1))
        (peer,) = opened.peers.values()  # type: ignore[attr-defined]
        transport = peer._link._transport
        await until(lambda: not transport._websocket._writable.is_set())
        assert transport.waiting < 4 * RS_PART
        assert await client.receive() == codec.Subscribed(1)
        numbers: list[int] = []
        element = b""
        while len(numbers) < 300:
            part = await client.receive()
            assert isinstance(part, (codec.OnNextPart, codec.OnNextLastPart))
            element += bytes(part.data)
            if isinstance(part, codec.OnNextLastPart):
                numbers.append(int(element.rstrip(b"\0")))
                element = b""
        assert numbers == list(range(300))


@in_loop
async def test_a_full_door_and_other_origins_refuse_connections(shared: RunningBroker) -> None:
    async with at(shared, max_sessions=1, origins=("https://example.org",)) as (opened, _):
        async with reactive.connect(opened.endpoint):
            with pytest.raises(Refused, match="limit"):
                await reactive.connect(opened.endpoint)
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        with pytest.raises(InvalidStatus, match="403"):
            async with bare(opened.endpoint, origin=Origin("https://example.com")):
                pass
        async with bare(opened.endpoint, origin=Origin("https://example.org")):
            pass


@in_loop
async def test_confirmed_elements_survive_a_kill_of_the_broker(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), reactive.connect(opened.endpoint) as c:
        r, w = await c.reader("orders"), await c.writer("orders")
        confirmed = [await w.send(b"%d" % n) for n in range(300)]
        await confirmed[100]
        await asyncio.to_thread(mtl_broker.kill)
        confirmed += [await w.send(b"%d" % n) for n in range(300, 500)]
        await asyncio.to_thread(mtl_broker.restart)
        await w.close()
        expected = [b"%d" % n for n in range(500)]
        async with broker_client.reader("orders", until=501) as log:
            assert [content.body async for content in log] == expected
        assert [(await r.next()).body for _ in range(500)] == expected


@in_loop
async def test_tls_needs_a_certificate_and_a_wss_url(shared: RunningBroker, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    named = {"certificate_file": files.certificate, "key_file": files.key}
    name = next(names)
    async with at(shared, "wss://127.0.0.1:0", **named) as (opened, _):
        async with (
            reactive.connect(opened.endpoint, tls=files.trusting) as c,
            c.reader(name) as r,
            c.writer(name) as w,
        ):
            for body in BODIES:
                await w.send(body)
            assert [(await r.next()).body for _ in BODIES] == BODIES
        with pytest.raises(Refused, match="untrusted"):
            await reactive.connect(opened.endpoint)
    wrong = {ANYWHERE: named, "wss://127.0.0.1:0": {}, "http://127.0.0.1:0": {}}
    for place, members in wrong.items():
        with pytest.raises(OptionError, match=r"certificate-file|listens on"):
            async with at(shared, place, **members):
                pass

"""The Reactive Streams door with a real broker: its client, and bare sockets with only the codec."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mtl.client.aio import Connection
from mtl.doors.addresses import host_and_port
from mtl.doors.limits import RS_DEMAND, RS_PART
from mtl.doors.reactive import client as reactive
from mtl.doors.reactive import codec
from mtl.doors.reactive.streams import ReactiveReader
from mtl.doors.running import Door
from mtl.errors import Closed, ContentTooLarge, OptionError, Refused, Unreachable
from mtl.limits import MAX_CONTENT
from mtl.net.router import BindFailed
from mtl.testing import RunningBroker
from tests.support.aio import in_loop, until
from tests.support.doors import BODIES, door
from tests.support.elements import apart

ANYWHERE = "127.0.0.1:0"


class Bare:
    """A socket and the codec, without a session, so that it can violate the protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = codec.ReactiveDecoder()
        self._received: list[codec.Message] = []

    async def send(self, *messages: codec.Message) -> None:
        self._writer.write(b"".join(map(codec.encode, messages)))
        await self._writer.drain()

    async def receive(self) -> codec.Message:
        while not self._received:
            octets = await self._reader.read(1 << 16)
            assert octets, "the door closed the connection"
            self._received += apart(self._decoder.feed(octets))
        return self._received.pop(0)

    async def silent(self, seconds: float = 0.1) -> bool:
        try:
            async with asyncio.timeout(seconds):
                self._received.insert(0, await self.receive())
        except TimeoutError:
            return True
        return False

    async def closed(self) -> bool:
        return not self._received and not await self._reader.read(1)

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def at(broker: RunningBroker, max_sessions: int = 100) -> AsyncIterator[tuple[Door, Connection]]:
    async with door("reactive", broker.endpoint, ANYWHERE, max_sessions=max_sessions) as opened:
        yield opened


@asynccontextmanager
async def filled(broker: RunningBroker, count: int) -> AsyncIterator[tuple[Door, Connection]]:
    """A door with this number of contents in "orders"."""
    async with at(broker) as (opened, broker_client):
        await broker_client.create_resource("orders")
        async with broker_client.writer("orders") as w:
            for n in range(count):
                await w.send(b"%d" % n)
        yield opened, broker_client


@asynccontextmanager
async def bare(endpoint: str, *, hello: bool = True) -> AsyncIterator[Bare]:
    client = Bare(*await asyncio.open_connection(*host_and_port(endpoint)))
    try:
        if hello:
            await client.send(codec.ClientHello())
            assert await client.receive() == codec.ServerHello()
        yield client
    finally:
        client.close()


@pytest.mark.requirement("RS-01", "RS-02", "RS-24", "RS-25", "RS-34", "RS-37")
@in_loop
async def test_published_elements_are_delivered_and_durable(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), reactive.connect(opened.endpoint) as c:
        async with c.reader("orders", start="latest") as r:
            async with c.writer("orders") as w:
                for body in BODIES:
                    await w.send(body)
            received = [await r.next() for _ in BODIES]
        assert [content.body for content in received] == BODIES
        assert [content.sequence for content in received] == [1, 2, 3, 4]
        assert r.position == 5
        async with broker_client.reader("orders", until=5) as log:
            assert [content.body async for content in log] == BODIES
        async with c.reader("orders", start=3) as r:
            assert (await r.next()).body == BODIES[2]


@in_loop
async def test_contents_of_an_mtl_writer_are_delivered(mtl_broker: RunningBroker) -> None:
    name = "what? 100%"
    async with (
        at(mtl_broker) as (opened, broker_client),
        reactive.connect(opened.endpoint) as c,
        c.reader(name) as r,
        broker_client.writer(name) as w,
    ):
        await w.send(b"before", {"kind": "new"})
        assert (await r.next()).body == b"before"
        await w.send(bytes(MAX_CONTENT - 100))
        received = await r.next()
        assert (received.sequence, len(received.body)) == (2, MAX_CONTENT - 100)


@pytest.mark.requirement("RS-18", "RS-41", "RS-46", "RS-47")
@in_loop
async def test_elements_are_sent_exactly_within_demand(mtl_broker: RunningBroker) -> None:
    async with filled(mtl_broker, 20) as (opened, _), bare(opened.endpoint) as client:
        await client.send(codec.Subscribe("orders", 5, 2))
        assert await client.receive() == codec.Subscribed(5)
        assert [await client.receive() for _ in range(2)] == [codec.OnNext(5, b"0"), codec.OnNext(5, b"1")]
        assert await client.silent()
        await client.send(codec.RequestMore(5, 1), codec.RequestMore(5, 2))
        assert [await client.receive() for _ in range(3)] == [codec.OnNext(5, b"%d" % n) for n in (2, 3, 4)]
        assert await client.silent()
        await client.send(codec.RequestMore(5, 0))
        error = await client.receive()
        assert isinstance(error, codec.OnError)
        await client.send(codec.RequestMore(5, 9), codec.Cancel(5))
        assert await client.silent()


@in_loop
async def test_ended_streams_leave_no_state(mtl_broker: RunningBroker) -> None:
    async with filled(mtl_broker, 1) as (opened, _), bare(opened.endpoint) as client:
        for subscriber in range(0, 40, 4):
            await client.send(
                codec.Subscribe("orders", subscriber, 1),
                codec.Cancel(subscriber),
                codec.Subscribe("orders?to=2", subscriber + 1, 1),
                codec.Subscribe("$publish/orders", subscriber + 2),
                codec.Cancel(subscriber + 2),
                codec.Subscribe("$publish/", subscriber + 3),
            )
        (peer,) = opened.peers.values()  # type: ignore[attr-defined]
        await until(lambda: not (peer._streams or peer._intakes))
        await client.send(codec.Subscribe("orders", 99, 1))
        while await client.receive() != codec.OnNext(99, b"0"):
            pass


@pytest.mark.requirement("RS-19", "RS-29", "RS-43", "RS-45")
@in_loop
async def test_an_id_is_reused_after_cancel_and_error(mtl_broker: RunningBroker) -> None:
    async with filled(mtl_broker, 20) as (opened, _), bare(opened.endpoint) as client:
        await client.send(codec.Subscribe("orders", 5, 1))
        assert [await client.receive() for _ in range(2)] == [codec.Subscribed(5), codec.OnNext(5, b"0")]
        await client.send(codec.Cancel(5), codec.Subscribe("orders?from=2&envelope=seq", 5, 1))
        assert await client.receive() == codec.Subscribed(5)
        assert await client.receive() == codec.OnNext(5, (2).to_bytes(8, "big") + b"1")
        await client.send(
            codec.Cancel(5), codec.Subscribe("orders", 5), codec.Cancel(5), codec.Subscribe("orders?to=2", 5)
        )
        assert [await client.receive() for _ in range(2)] == [codec.Subscribed(5)] * 2
        error = await client.receive()
        assert isinstance(error, codec.OnError)
        assert "bad-publisher" in error.error
        await client.send(codec.Subscribe("orders", 5, 1))
        assert [await client.receive() for _ in range(2)] == [codec.Subscribed(5), codec.OnNext(5, b"0")]


@pytest.mark.requirement("RS-24", "RS-31", "RS-36")
@in_loop
async def test_publishing_uses_two_streams(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), bare(opened.endpoint) as client:
        await client.send(codec.Subscribe("$publish/orders", 5, 1))
        assert await client.receive() == codec.Subscribed(5, 8)
        back = await client.receive()
        assert isinstance(back, codec.Subscribe)
        assert (back.publisher, back.demand) == ("orders", RS_DEMAND)
        q = back.subscriber
        await client.send(
            codec.Subscribed(q, 0),
            codec.OnNextPart(q, 1, b"he"),
            codec.OnNext(q, b"first"),
            codec.OnNextLastPart(q, 1, b"llo"),
            codec.OnNext(q, b""),
        )
        assert await client.receive() == codec.OnNext(5, (1).to_bytes(8, "big"))
        asked = 0
        while (
            asked < 3
        ):  # renewed as they are confirmed, whether or not there is demand for the confirmations
            request = await client.receive()
            assert isinstance(request, codec.RequestMore)
            asked += request.demand
        await client.send(codec.OnComplete(q))
        assert await client.silent()
        await client.send(codec.RequestMore(5, 10))
        assert await client.receive() == codec.OnNextPacked(
            5, ((2).to_bytes(8, "big"), (3).to_bytes(8, "big"))
        )
        assert await client.receive() == codec.OnComplete(5)
        async with broker_client.reader("orders", until=4) as log:
            assert [content.body async for content in log] == [b"first", b"hello", b""]


@in_loop
async def test_invalid_publications_are_errors(mtl_broker: RunningBroker) -> None:
    async with (
        door("reactive", mtl_broker.endpoint, ANYWHERE, create=("a*",)) as (opened, _),
        reactive.connect(opened.endpoint) as c,
    ):
        with pytest.raises(Refused, match="unknown-resource"):
            await c.reader("pears")
        with pytest.raises(Refused, match="bad-publisher"):
            await c.writer("")
        writer = await c.writer("pears")
        with pytest.raises(Refused, match="unknown-resource"):
            await (await writer.send(b"1"))
        with pytest.raises(Refused, match="unknown-resource"):
            await writer.flush()
        async with c.writer("apples") as w:
            with pytest.raises(ContentTooLarge):
                await w.send(bytes(MAX_CONTENT + 1))
            await w.send(b"1")
        with pytest.raises(Closed):
            await w.send(b"2")


@pytest.mark.requirement("RS-09", "RS-39", "RS-40", "RS-41")
@in_loop
async def test_protocol_violations_are_answered_with_goodbye(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _):
        wrong: list[tuple[list[codec.Message], str]] = [
            ([codec.ClientHello(1)], "version 1"),
            ([codec.Subscribe("a", 1)], "before ClientHello"),
            ([codec.ClientHello(), codec.Subscribe("a", 1), codec.Subscribe("a", 1)], "Id 1 is in use"),
            ([codec.ClientHello(), codec.OnNextPacked(1, ())], "without a fixed size"),
            ([codec.ClientHello(), codec.Goodbye("enough")], ""),
        ]
        for messages, words in wrong:
            async with bare(opened.endpoint, hello=False) as client:
                await client.send(*messages)
                replies = [await client.receive()]
                while not isinstance(replies[-1], codec.Goodbye):
                    replies.append(await client.receive())
                assert words in replies[-1].reason, messages
                assert await client.closed()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]


@pytest.mark.requirement("RS-41")
@in_loop
async def test_elements_beyond_the_demand_are_answered_with_goodbye(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _), bare(opened.endpoint) as client:
        await client.send(codec.Subscribe("$publish/orders", 5))
        assert await client.receive() == codec.Subscribed(5, 8)
        back = await client.receive()
        assert isinstance(back, codec.Subscribe)
        q = back.subscriber
        await client.send(codec.Subscribed(q), *[codec.OnNextPart(q, n, b"") for n in range(RS_DEMAND + 1)])
        goodbye = await client.receive()
        assert isinstance(goodbye, codec.Goodbye)
        assert "requested" in goodbye.reason


@pytest.mark.requirement("RS-38", "RS-39")
@in_loop
async def test_the_end_of_either_side_ends_all_streams(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _):
        c = await reactive.connect(opened.endpoint)
        r, w = await c.reader("orders"), await c.writer("orders")
        await (await w.send(b"1"))
        client = Bare(*await asyncio.open_connection(*host_and_port(opened.endpoint)))
        await client.send(
            codec.ClientHello(), codec.Subscribe("orders", 1, 9), codec.Subscribe("$publish/orders", 2)
        )
        while not isinstance(await client.receive(), codec.OnNext):
            pass
        client.close()  # without a goodbye
        await until(lambda: len(opened.peers) == 1)  # type: ignore[attr-defined]
    assert (await r.next()).body == b"1"
    with pytest.raises((Unreachable, Closed)):
        await r.next()
    with pytest.raises((Unreachable, Closed)):
        await w.send(b"2")
    await c.close()
    with pytest.raises(Unreachable):
        await reactive.connect(opened.endpoint, timeout=0.5)


@in_loop
async def test_confirmed_elements_survive_a_kill_of_the_broker(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), reactive.connect(opened.endpoint) as c:
        r, w = await c.reader("orders"), await c.writer("orders")
        confirmed = [await w.send(b"%d" % n) for n in range(500)]
        await confirmed[100]
        await asyncio.to_thread(mtl_broker.kill)
        confirmed += [await w.send(b"%d" % n) for n in range(500, 900)]
        await asyncio.to_thread(mtl_broker.restart)
        await w.close()
        assert all(future.done() for future in confirmed)
        expected = [b"%d" % n for n in range(900)]
        async with broker_client.reader("orders", until=901) as log:
            assert [content.body async for content in log] == expected
        assert [(await r.next()).body for _ in range(900)] == expected


@in_loop
async def test_streams_of_one_connection_are_independent(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), reactive.connect(opened.endpoint) as c:
        names = [f"r{n}" for n in range(8)]
        for name in names:
            await broker_client.create_resource(name)
            async with broker_client.writer(name) as w:
                for n in range(10):
                    await w.send(name.encode() + b"%d" % n + bytes(4 * RS_PART))
        stuck = await c.reader(names[0], window=1)  # not read
        readers = [await c.reader(name, window=3) for name in names]

        async def read(reader: ReactiveReader) -> list[bytes]:
            return [(await reader.next()).body.rstrip(b"\0") for _ in range(10)]

        received = await asyncio.gather(*map(read, readers))
        assert received == [[name.encode() + b"%d" % n for n in range(10)] for name in names]
        assert (await stuck.next()).body.startswith(b"r00")


@in_loop
async def test_a_slow_subscriber_gets_every_element_within_a_window(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), bare(opened.endpoint) as client:
        await broker_client.create_resource("big")
        async with broker_client.writer("big") as w:
            for n in range(200):
                await w.send(b"%d" % n + bytes(100_000))
        await client.send(codec.Subscribe("big", 1, 2**63 - 1))
        (peer,) = opened.peers.values()  # type: ignore[attr-defined]
        await until(lambda: peer._link._transport.waiting > 0)  # the door has more than the network takes
        assert await client.receive() == codec.Subscribed(1)
        numbers: list[int] = []
        while len(numbers) < 200:
            element = b""
            while not isinstance(part := await client.receive(), codec.OnNextLastPart):
                assert isinstance(part, codec.OnNextPart)
                element += bytes(part.data)
            numbers.append(int((element + bytes(part.data)).rstrip(b"\0")))
        assert numbers == list(range(200))


@in_loop
async def test_a_cancelled_partial_send_ends_the_writer(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _), reactive.connect(opened.endpoint) as c:
        w = await c.writer("orders")
        async with c._link._turn:
            sending = asyncio.create_task(w.send(bytes(RS_PART + 1)))
            await until(lambda: bool(w._unconfirmed))
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        with pytest.raises(Closed):
            await w.send(b"next")
        async with c.writer("orders") as w:
            await (await w.send(b"1"))


@in_loop
async def test_writers_of_one_resource_keep_their_own_order(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), reactive.connect(opened.endpoint) as c:
        async with c.writer("orders") as first_writer, c.writer("orders") as second_writer:
            for n in range(10):
                await first_writer.send(b"one%d" % n)
                await second_writer.send(b"two%d" % n)
        async with broker_client.reader("orders", until=21) as log:
            bodies = [content.body async for content in log]
        assert [body for body in bodies if body.startswith(b"one")] == [b"one%d" % n for n in range(10)]
        assert [body for body in bodies if body.startswith(b"two")] == [b"two%d" % n for n in range(10)]


@in_loop
async def test_a_full_door_refuses_clients_until_others_leave(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker, max_sessions=1) as (opened, _):
        async with reactive.connect(opened.endpoint):
            with pytest.raises(Unreachable, match="limit"):
                await reactive.connect(opened.endpoint)
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        async with reactive.connect(opened.endpoint) as c, c.writer("orders") as w:
            await w.send(b"1")


@in_loop
async def test_a_stop_with_a_silent_peer_logs_no_error(
    mtl_broker: RunningBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.doors.reactive.link.RS_GOODBYE_S", 0.01)
    async with at(mtl_broker) as (opened, _), bare(opened.endpoint) as client:
        await client.send(codec.Subscribe("orders", 1))
        assert await client.receive() == codec.Subscribed(1)
        await opened.stop()
        assert not caplog.records


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:70000", "192.0.2.1:1"])
@in_loop
async def test_an_endpoint_that_cannot_be_bound_is_an_error(mtl_broker: RunningBroker, listen: str) -> None:
    with pytest.raises((OptionError, BindFailed)):
        async with door("reactive", mtl_broker.endpoint, listen):
            pass

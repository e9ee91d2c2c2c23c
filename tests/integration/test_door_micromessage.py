"""The MicroMessage2 door with a real broker: its client, and bare sockets that implement only the document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import mtl
from mtl.client.aio import Connection
from mtl.doors.micromessage import client as mm2
from mtl.doors.micromessage.codec import (
    CommandFrame,
    Error,
    Frame,
    Handshake,
    MessageFrame,
    MicroDecoder,
    encode,
    encode_handshake,
)
from mtl.doors.running import Door
from mtl.errors import FieldError, MtlError, Refused
from mtl.testing import RunningBroker
from mtl.wire.fields import Value
from tests.support.aio import in_loop, until
from tests.support.doors import BODIES, PROPERTIES, door

ANYWHERE = "127.0.0.1:0"
HULK = bytes.fromhex("0100000468756c6b000b6a736f6e3b646f746e6574000962617463682d61636b")


@asynccontextmanager
async def at(broker: RunningBroker, max_sessions: int = 100) -> AsyncIterator[tuple[Door, Connection]]:
    async with door("micromessage", broker.endpoint, ANYWHERE, max_sessions=max_sessions) as opened:
        yield opened


class Bare:
    """A socket and the document."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = MicroDecoder()

    async def send(self, octets: bytes) -> None:
        self._writer.write(octets)
        await self._writer.drain()

    async def receive(self) -> Frame | None:
        while (frame := self._decoder.frame()) is None:
            data = await self._reader.read(65_536)
            if not data:
                return None
            self._decoder.feed(data)
        return frame

    async def handshake(self, octets: bytes) -> str:
        """All three steps of the handshake; returns the identity of the door."""
        await self.send(octets)
        while (reply := self._decoder.handshake()) is None:
            self._decoder.feed(await self._reader.read(65_536))
        await self.send(octets)
        assert isinstance(reply, Handshake)
        return reply.identity


@asynccontextmanager
async def bare(endpoint: str) -> AsyncIterator[Bare]:
    host, port = endpoint.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Bare(reader, writer)
    finally:
        writer.close()


@pytest.mark.parametrize("window", [1, 100, None])
@in_loop
async def test_sent_messages_are_delivered_and_durable(mtl_broker: RunningBroker, window: int | None) -> None:
    async with at(mtl_broker) as (opened, broker_client), mm2.connect(opened.endpoint, window=window) as c:
        async with c.reader("topic/orders", start="earliest") as r, c.writer("topic/orders") as w:
            for body in BODIES:
                await w.send(body, PROPERTIES)
            received = [await r.next() for _ in BODIES]
        assert [content.body for content in received] == BODIES
        assert [content.sequence for content in received] == [1, 2, 3, 4]
        assert all(content.properties == PROPERTIES for content in received)
        async with broker_client.reader("orders", start="earliest", until=5) as log:
            assert [(content.body, content.properties) async for content in log] == [
                (body, PROPERTIES) for body in BODIES
            ]


@in_loop
async def test_properties_are_copied_when_sent(mtl_broker: RunningBroker) -> None:
    async with (
        at(mtl_broker) as (opened, broker_client),
        mm2.connect(opened.endpoint) as c,
        c.writer("orders") as w,
    ):
        properties: dict[str, Value] = {"n": 1}
        await w.send(b"", properties)
        properties["n"] = True  # which is equal
        await w.send(b"", properties)
        await w.flush()
        async with broker_client.reader("orders", start="earliest", until=3) as log:
            assert [content.properties async for content in log] == [{"n": 1}, {"n": "true"}]


@pytest.mark.requirement("MM2-02", "MM2-20", "MM2-47", "MM2-53")
@in_loop
async def test_a_client_of_the_document_alone_works(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), bare(opened.endpoint) as client:
        assert await client.handshake(HULK) == f"mtl {mtl.__version__}"
        await client.send(bytes.fromhex("000001024d5100116c6173742d6e616d653a546b616c6c653b03") + b"123")
        frame = await client.receive()
        assert frame is not None
        assert str(frame) == "ExtensionFrame(id=3, payload=b'\\x00\\x01')"
        async with broker_client.reader("MQ", start="earliest", until=2) as log:
            (content,) = [content async for content in log]
        assert content.body == b"123"
        assert content.properties == {"last-name": "kalle", "content-type": "application/json"}


@pytest.mark.requirement("MM2-55", "MM2-56", "MM2-63")
@in_loop
async def test_filters_apply_per_receiver_in_the_door(mtl_broker: RunningBroker) -> None:
    async with (
        at(mtl_broker) as (opened, _),
        mm2.connect(opened.endpoint) as c,
        mm2.connect(opened.endpoint) as d,
        c.writer("topic/t") as w,
    ):
        low = await c.reader("topic/t", start="earliest", filter="n<N3")
        new = await d.reader("topic/t", start="earliest", filter="kind<Tne;n>=N2")
        for n in range(6):
            await w.send(b"%d" % n, {"n": n, "kind": "new" if n % 2 == 0 else "old"})
        assert [(await low.next()).body for _ in range(3)] == [b"0", b"1", b"2"]
        assert [(await new.next()).body for _ in range(2)] == [b"2", b"4"]


@pytest.mark.requirement("MM2-64")
@in_loop
async def test_messages_of_a_queue_go_to_one_consumer_and_are_redelivered(
    mtl_broker: RunningBroker,
) -> None:
    async with at(mtl_broker) as (opened, _):
        async with mm2.connect(opened.endpoint) as c, c.writer("jobs") as w:
            for n in range(20):
                await w.send(b"%d" % n)
        async with mm2.connect(opened.endpoint, window=1) as c, c.reader("jobs") as q:
            taken = {(await q.next()).body for _ in range(5)}
        bodies: set[bytes] = set()
        async with mm2.connect(opened.endpoint) as c, mm2.connect(opened.endpoint) as d:
            readers = [await c.reader("jobs"), await d.reader("jobs")]

            async def drain(reader: mm2.MicroReader) -> None:
                async for received in reader:
                    assert received.body not in bodies
                    bodies.add(received.body)

            draining = [asyncio.create_task(drain(reader)) for reader in readers]
            await until(lambda: len(bodies) >= 15)
            for task in draining:
                task.cancel()
        assert sorted([*taken, *bodies], key=int) == [b"%d" % n for n in range(20)]


@pytest.mark.requirement("MM2-64")
@pytest.mark.parametrize("window", [1, 5])
@in_loop
async def test_a_consumer_of_a_queue_has_at_most_the_agreed_window(
    mtl_broker: RunningBroker, window: int
) -> None:
    async with at(mtl_broker) as (opened, _):
        async with mm2.connect(opened.endpoint) as c, c.writer("jobs") as w:
            for n in range(20):
                await w.send(b"%d" % n)
        async with bare(opened.endpoint) as slow, mm2.connect(opened.endpoint) as d:
            final = encode_handshake(Handshake("slow", "pub-sub", f"batch-ack:max-count={window}"))
            await slow.handshake(final)
            await slow.send(encode(CommandFrame("subscribe", {"destination": "jobs"})))
            first = await slow.receive()
            assert isinstance(first, MessageFrame)  # and acknowledges nothing
            others = await d.reader("jobs")
            bodies = [(await others.next()).body for _ in range(20 - window)]
            assert bodies == [b"%d" % n for n in range(window, 20)]


@pytest.mark.requirement("MM2-64")
@in_loop
async def test_deliveries_to_a_dead_consumer_count(mtl_broker: RunningBroker) -> None:
    """Each delivery of the content counts, except if the consumer unsubscribes."""
    async with at(mtl_broker) as (opened, broker_client):
        await broker_client.create_resource("jobs", max_deliveries=3)
        await broker_client.create_resource("jobs.dead")
        async with broker_client.writer("jobs") as w:
            await w.send(b"poison")
        final = encode_handshake(Handshake("mortal", "pub-sub", "batch-ack:max-count=1"))
        for unsubscribes in (False, True, False, False):
            async with bare(opened.endpoint) as mortal:
                await mortal.handshake(final)
                await mortal.send(encode(CommandFrame("subscribe", {"destination": "jobs"})))
                message = await mortal.receive()
                assert isinstance(message, MessageFrame)
                assert message.payload == b"poison"
                if unsubscribes:
                    await mortal.send(encode(CommandFrame("unsubscribe", {"destination": "jobs"})))
                    while (await broker_client.queues(resource="jobs"))[0].consumers:
                        pass
        async with broker_client.reader("jobs.dead", start="earliest", until=2) as dead:
            (letter,) = [content async for content in dead]
        assert letter.properties["dead-letter-reason"] == "deliveries"
        assert letter.properties["dead-letter-deliveries"] == 3


@pytest.mark.requirement("MM2-64")
@in_loop
async def test_contents_without_message_form_are_skipped_or_dead_letters(
    mtl_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Properties above 65,535 octets in URL encoding, and a large binary body under json."""
    async with at(mtl_broker) as (opened, broker_client):
        await broker_client.create_resource("jobs")
        await broker_client.create_resource("jobs.dead")
        async with broker_client.writer("jobs") as w:
            await w.send(b"1", {"large": "ü" * 12_000})
            await w.send(b"\xff" * (4 << 20))
            await w.send(b'"good"')
        async with mm2.connect(opened.endpoint, json=True) as c, c.reader("jobs") as q:
            assert (await q.next()).body == b'"good"'
            async with broker_client.reader("jobs.dead", start="earliest", until=3) as dead:
                letters = [content async for content in dead]
            assert [len(letter.body) for letter in letters] == [1, 4 << 20]
            reasons = [str(letter.properties["dead-letter-reason"]) for letter in letters]
            assert all(reason.startswith("rejected: ") for reason in reasons)
            assert "octets" in reasons[0]
            async with c.reader("topic/jobs", start="earliest") as t:
                assert (await t.next()).body == b'"good"'
    messages = [record.message for record in caplog.records if record.name == "mtl.doors.micromessage"]
    assert [line.partition(":")[0] for line in messages] == ["jobs", "jobs", "topic/jobs", "topic/jobs"]
    assert "content 1 becomes a dead letter" in messages[0]


@in_loop
async def test_types_and_json_become_properties(mtl_broker: RunningBroker) -> None:
    async with (
        at(mtl_broker) as (opened, broker_client),
        mm2.connect(opened.endpoint, json=True, dotnet=True) as c,
        c.reader("topic/t", start="earliest") as r,
        c.writer("topic/t") as w,
    ):
        await (await w.send(b'{"a":1}', {"dotnet-type": "A.Type"}))
        received = await r.next()
        assert received.properties == {"dotnet-type": "A.Type", "content-type": "application/json"}
        await w.send(b"{")
        with pytest.raises(MtlError, match="not JSON"):
            await w.flush()
        async with broker_client.writer("t") as other:
            await other.send(b"\xff")
        assert (await r.next()).body == b'"/w=="'


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (b"\0\0\0\0\0\0\0\0", "is expected"),
        (b"\1\0\0\0\0\7x-other\0\0", "x-other"),
        (b"\x01\0\0\1\xff", "ASCII"),
    ],
)
@in_loop
async def test_a_failed_handshake_is_answered_with_error_and_closed(
    mtl_broker: RunningBroker, octets: bytes, words: str
) -> None:
    async with at(mtl_broker) as (opened, _), bare(opened.endpoint) as client:
        await client.send(octets)
        frame = await client.receive()
        assert isinstance(frame, Error)
        assert words in frame.text
        assert await client.receive() is None


@in_loop
async def test_invalid_requests_are_answered_with_error_and_closed(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _):
        for start, rule in (("latest", "n&N1"), ("0", "")):
            c = await mm2.connect(opened.endpoint)
            r = await c.reader("topic/t", start=start, filter=rule)
            with pytest.raises(Refused):
                await r.next()
            await c.close()
        c = await mm2.connect(opened.endpoint)
        w = await c.writer("q")
        await w.send(bytes(5 << 20))
        with pytest.raises(FieldError):
            await w.flush()
        with pytest.raises(Refused, match="broker's"):
            await (await w.send(b"", {"mtl-count": 1}))
        await c.close()


@in_loop
async def test_acknowledged_messages_survive_a_kill_of_the_broker(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), mm2.connect(opened.endpoint) as c:
        w = await c.writer("orders")
        answered = [await w.send(b"%d" % n) for n in range(300)]
        await answered[100]
        await asyncio.to_thread(mtl_broker.kill)
        sending = asyncio.create_task(send_all(w, range(300, 500)))
        await asyncio.to_thread(mtl_broker.restart)
        await sending
        await w.flush()
        async with broker_client.reader("orders", start="earliest", until=501) as log:
            assert [content.body async for content in log] == [b"%d" % n for n in range(500)]


async def send_all(w: mm2.MicroWriter, numbers: range) -> None:
    for n in numbers:
        await w.send(b"%d" % n)


@in_loop
async def test_the_client_reconnects_to_a_restarted_door(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, _):
        endpoint = opened.endpoint
        c = await mm2.connect(endpoint)
        r, w = await c.reader("topic/orders", start="earliest"), await c.writer("topic/orders")
        await (await w.send(b"before"))
        assert (await r.next()).body == b"before"
    away = await w.send(b"while away")
    async with door("micromessage", mtl_broker.endpoint, endpoint):
        await away
        assert (await r.next()).body == b"while away"
        await c.close()


@in_loop
async def test_a_slow_subscriber_gets_every_message(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), bare(opened.endpoint) as client:
        await client.handshake(b"\1\0\0\0\0\7pub-sub\0\0")
        command = b"subscribe;destination=topic%2Fbig,from=earliest"
        await client.send(b"\1%c" % len(command) + command)
        await broker_client.create_resource("big", exist_ok=True)
        async with broker_client.writer("big") as w:
            for n in range(100):
                await w.send(b"%d" % n + bytes(100_000))
        for n in range(100):
            frame = await client.receive()
            assert isinstance(frame, MessageFrame)
            assert int(frame.payload.rstrip(b"\0")) == n


@in_loop
async def test_a_full_door_refuses_clients(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker, max_sessions=1) as (opened, _):
        async with mm2.connect(opened.endpoint):
            with pytest.raises(Refused, match="limit"):
                await mm2.connect(opened.endpoint)
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        async with mm2.connect(opened.endpoint):
            pass

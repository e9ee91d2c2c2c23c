"""The MBWS door in front of a real broker: its own client, and bare WebSockets that know the document."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from mtl.client import aio
from mtl.client.aio import Connection
from mtl.doors.limits import MBWS_WINDOW
from mtl.doors.mbws import client as mbws
from mtl.doors.mbws.codec import Acknowledge, Connect, Frame, Kind, Message, decode, encode
from mtl.doors.mbws.intake import DEAD
from mtl.doors.mbws.session import MBLWS, MBWS
from mtl.doors.running import Door
from mtl.doors.websocket import break_off
from mtl.errors import ContentTooLarge, FieldError, OptionError, Refused
from mtl.testing import RunningBroker, broker
from tests.support.aio import in_loop, until
from tests.support.cutting_proxy import HERE, CuttingProxy
from tests.support.doors import BODIES, PROPERTIES, await_line, door, door_process
from tests.support.tls import Certificates

ANYWHERE = "127.0.0.1:0"
OURS = "ours"
"""The origin of a page of the door's own."""

names = (f"resource-{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all that do no harm to it; each has a resource of its own."""
    with broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@asynccontextmanager
async def at(broker: RunningBroker, **config: Any) -> AsyncIterator[tuple[Door, Connection]]:
    async with door("mbws", broker.endpoint, ANYWHERE, **config) as opened:
        yield opened


class Bare:
    """A WebSocket and the document."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, *frames: Frame, kind: Kind = Kind.BINARY) -> None:
        for frame in frames:
            await self.socket.send(encode(frame, kind))

    async def hear(self) -> Frame:
        return decode(await self.socket.recv())

    async def connect(self, name: str = "", *numbers: int, kind: Kind = Kind.BINARY) -> Connect:
        await self.say(Connect(name, numbers), kind=kind)
        frame = await self.hear()
        assert isinstance(frame, Connect)
        return frame

    async def messages(self, count: int) -> list[Message]:
        """The next ones; acknowledgements between them are passed over."""
        found: list[Message] = []
        while len(found) < count:
            frame = await self.hear()
            if isinstance(frame, Message):
                found.append(frame)
        return found

    async def acknowledged(self, sequence: int) -> None:
        """Wait for it; messages before it are passed over."""
        while True:
            frame = await self.hear()
            if isinstance(frame, Acknowledge):
                assert frame.sequence <= sequence
                if frame.sequence == sequence:
                    return

    async def closed(self) -> int | None:
        """The code; what comes before it is passed over."""
        try:
            while True:
                await self.socket.recv()
        except ConnectionClosed:
            return self.socket.close_code

    def break_off(self) -> None:
        break_off(self.socket)


@asynccontextmanager
async def bare(
    opened: Door, query: str = "", subprotocol: str = MBWS, origin: str | None = OURS
) -> AsyncIterator[Bare]:
    if origin == OURS:
        origin = opened.endpoint.replace("ws", "http", 1)
    socket = await connect(
        f"{opened.endpoint}/?{query}",
        subprotocols=[Subprotocol(subprotocol)],
        origin=None if origin is None else Origin(origin),
        max_size=None,
    )
    assert socket.subprotocol == subprotocol
    try:
        yield Bare(socket)
    finally:
        break_off(socket)


def numbered(address: str, numbers: range) -> list[Message]:
    return [Message((address,), b"%d" % n) for n in numbers]


def bodies_of(messages: list[Message]) -> list[int]:
    return [int(message.body) for message in messages]


async def in_log(beside: Connection, resource: str) -> list[bytes]:
    """All that is there."""
    end = (await beside.describe([resource]))[resource].next
    async with beside.reader(resource, start="earliest", until=end) as log:
        return [content.body async for content in log]


async def written(beside: Connection, resource: str, numbers: range) -> None:
    await beside.create_resource(resource, exist_ok=True)
    async with beside.writer(resource) as w:
        for n in numbers:
            await w.send(b"%d" % n)


# --- bare WebSockets --------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "MBWS-01", "MBWS-02", "MBWS-03", "MBWS-08", "MBWS-09", "MBWS-18", "MBWS-38", "MBWS-58"
)
@pytest.mark.parametrize("kind", Kind)
@in_loop
async def test_the_document_is_enough(shared: RunningBroker, kind: Kind) -> None:
    a = next(names)
    async with at(shared) as (opened, beside), bare(opened, f"address={a}&from=earliest") as one:
        connected = await one.connect(kind=kind)
        assert connected.name.startswith("urn:uuid:")
        assert connected.numbers == ()
        for n in range(3):
            await one.say(Message((a,), b"%d" % n, "text/plain", (("k", "v"),)), kind=kind)
        heard = [await one.socket.recv() for _ in range(4)]
        assert all(isinstance(data, str) is (kind is Kind.TEXT) for data in heard)
        frames = [decode(data) for data in heard]
        while (
            len([frame for frame in frames if isinstance(frame, Message)]) < 3 or Acknowledge(3) not in frames
        ):
            frames.append(await one.hear())
        assert [frame for frame in frames if isinstance(frame, Message)] == [
            Message((a,), b"%d" % n, "text/plain", (("k", "v"), ("mtl-sequence", str(n + 1))))
            for n in range(3)
        ]
        assert await in_log(beside, a) == [b"0", b"1", b"2"]


@pytest.mark.requirement("MBWS-03", "MBWS-04")
@in_loop
async def test_the_subprotocol_is_negotiated(shared: RunningBroker) -> None:
    async with at(shared) as (opened, _):
        for offered in ([MBLWS, MBWS], ["other", MBWS]):
            async with connect(opened.endpoint, subprotocols=[Subprotocol(one) for one in offered]) as socket:
                assert socket.subprotocol == next(one for one in offered if one != "other")
        for nothing in ([Subprotocol("other")], None):
            with pytest.raises(InvalidStatus, match="400"):
                await connect(opened.endpoint, subprotocols=nothing)


@pytest.mark.requirement("MBWS-05", "MBWS-11")
@pytest.mark.parametrize("subprotocol", [MBWS, MBLWS])
@in_loop
async def test_a_close_that_is_answered_acknowledges_all_before_it(
    shared: RunningBroker, subprotocol: str
) -> None:
    a = next(names)
    async with at(shared) as (opened, beside):
        name = ""
        async with bare(opened, subprotocol=subprotocol) as one:
            if subprotocol == MBWS:
                name = (await one.connect()).name
            await one.say(*numbered(a, range(500)))
            await one.socket.close()
            assert one.socket.close_code == 1000
        assert await in_log(beside, a) == [b"%d" % n for n in range(500)]
        if name:
            async with bare(opened) as one:
                assert (await one.connect(name, 0, 1, 500)).name != name


@pytest.mark.requirement("MBWS-06", "MBWS-07", "MBWS-16", "MBWS-24", "MBWS-25", "MBWS-29", "MBWS-30")
@in_loop
async def test_a_connection_goes_on_where_both_sides_are(shared: RunningBroker) -> None:
    """Contents come while the client is away, and it does not know what became of its last ones."""
    a, b = next(names), next(names)
    query = f"address={a}"  # from now on
    async with at(shared) as (opened, beside):
        async with bare(opened, query) as one:
            name = (await one.connect()).name
            await written(beside, a, range(10))
            assert bodies_of(await one.messages(10)) == list(range(10))
            await one.say(Acknowledge(3), *numbered(b, range(5)))
            await one.acknowledged(5)
            await one.say(*numbered(b, range(5, 8)))
            one.break_off()
        await written(beside, a, range(10, 12))
        async with bare(opened, query) as one:
            connected = await one.connect(name, 7, 6, 8)
            assert connected.name == name
            assert len(connected.numbers) == 1
            (received,) = connected.numbers
            assert 5 <= received <= 8
            assert bodies_of(await one.messages(5)) == [7, 8, 9, 10, 11]
            await one.say(*numbered(b, range(received, 10)))
            await one.acknowledged(10)
        assert await in_log(beside, b) == [b"%d" % n for n in range(10)]


@pytest.mark.requirement("MBWS-24")
@in_loop
async def test_a_session_that_is_lost_without_a_word_is_taken_over(shared: RunningBroker) -> None:
    """The door knows nothing of a loss when the client comes back; both have messages under way."""
    a = next(names)
    async with at(shared) as (opened, beside), bare(opened, f"address={a}&from=earliest") as old:
        name = (await old.connect()).name
        await old.say(*numbered(a, range(300)))
        assert bodies_of(await old.messages(50)) == list(range(50))
        async with bare(opened) as new:
            connected = await new.connect(name, 50, 1, 300)
            assert connected.name == name
            await new.say(*numbered(a, range(connected.numbers[0], 400)))
            assert bodies_of(await new.messages(350)) == list(range(50, 400))
            assert await old.closed() == 1006
        assert await in_log(beside, a) == [b"%d" % n for n in range(400)]


@pytest.mark.requirement("MBWS-14", "MBWS-26", "MBWS-27", "MBWS-28", "MBWS-31")
@pytest.mark.parametrize(
    ("numbers", "origin", "theirs"),
    [
        ((2, 1, 2), "https://example.org", True),
        ((0, 1, 2), OURS, False),
        ((4, 1, 2), OURS, False),
        ((3, 4, 9), OURS, False),
    ],
)
@in_loop
async def test_what_does_not_fit_is_a_new_connection(
    shared: RunningBroker, numbers: tuple[int, ...], origin: str, *, theirs: bool
) -> None:
    """And the old one is over, unless it was another's."""
    a, b = next(names), next(names)
    async with at(shared, origins=("https://example.org",)) as (opened, beside):
        await written(beside, a, range(3))
        async with bare(opened, f"address={a}&from=earliest") as one:
            name = (await one.connect()).name
            await one.say(*numbered(b, range(2)))
            assert bodies_of(await one.messages(3)) == [0, 1, 2]
            await one.say(Acknowledge(1))
            await one.acknowledged(2)
            one.break_off()
        async with bare(opened, f"address={a}&from=3", origin=origin) as one:
            connected = await one.connect(name, *numbers)
            assert connected.name != name
            assert connected.numbers == ()
            assert bodies_of(await one.messages(1)) == [2]
        async with bare(opened) as one:
            assert ((await one.connect(name, 2, 1, 2)).name == name) is theirs


@in_loop
async def test_a_client_in_a_hurry_has_its_connection_once(shared: RunningBroker) -> None:
    """Three sessions ask for it at the same time: one of them has it, and nothing is lost or doubled."""
    a, b = next(names), next(names)
    async with at(shared) as (opened, beside):
        await written(beside, a, range(20))
        async with bare(opened, f"address={a}&from=earliest") as one:
            name = (await one.connect()).name
            assert bodies_of(await one.messages(20)) == list(range(20))
            await one.say(*numbered(b, range(100)))
            one.break_off()
        async with bare(opened) as first, bare(opened) as second, bare(opened) as third:
            hasty = {first, second, third}
            for one in hasty:
                await one.say(Connect(name, (7, 1, 100)))
            await until(lambda: sum(one.socket.close_code == 1006 for one in hasty) == 2)
            (recovered,) = (one for one in hasty if one.socket.close_code is None)
            connected = await recovered.hear()
            assert isinstance(connected, Connect)
            assert connected.name == name
            assert bodies_of(await recovered.messages(13)) == list(range(7, 20))
            await recovered.say(*numbered(b, range(connected.numbers[0], 101)))
            await recovered.acknowledged(101)  # SSLR may have acknowledged all before it
        assert await in_log(beside, b) == [b"%d" % n for n in range(101)]


@in_loop
async def test_a_resource_that_was_made_anew_is_no_place_to_go_on(shared: RunningBroker) -> None:
    """Its sequences are others: the client is told, instead of having them take the old ones' places."""
    a = next(names)
    async with at(shared) as (opened, beside):
        await written(beside, a, range(3))
        async with bare(opened, f"address={a}&from=earliest") as one:
            name = (await one.connect()).name
            assert bodies_of(await one.messages(3)) == [0, 1, 2]
            one.break_off()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        await beside.delete_resource(a)
        await written(beside, a, range(10, 14))
        async with bare(opened) as one:
            await one.say(Connect(name, (2, 1, 0)))
            assert await one.closed() == 1008
            assert "incarnation" in str(one.socket.close_reason)


@pytest.mark.requirement("MBWS-23")
@in_loop
async def test_another_connect_clears_the_connection_before(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared) as (opened, beside), bare(opened, f"address={a}&from=earliest") as one:
        first = await one.connect()
        await written(beside, a, range(3))
        assert bodies_of(await one.messages(3)) == [0, 1, 2]
        second = await one.connect(first.name, 3, 1, 0)
        assert second.name != first.name
        assert second.numbers == ()
        await one.say(Acknowledge(0))
        one.break_off()
        async with bare(opened) as other:
            assert (await other.connect(first.name, 3, 1, 0)).name != first.name
        async with bare(opened) as other:
            assert (await other.connect(second.name, 0, 1, 0)).name == second.name


@pytest.mark.requirement("MBWS-33", "MBWS-34", "MBWS-35")
@in_loop
async def test_without_recovery_messages_flow_at_once(shared: RunningBroker) -> None:
    a = next(names)
    async with (
        at(shared) as (opened, _),
        bare(opened, f"address={a}&from=earliest&frames=text", MBLWS) as one,
    ):
        await one.say(Connect(), Acknowledge(77), *numbered(a, range(3)))
        for n in range(3):
            data = await one.socket.recv()
            assert isinstance(data, str)
            assert decode(data) == Message((a,), b"%d" % n, "", (("mtl-sequence", str(n + 1)),))
        one.break_off()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        assert not len(opened._connections)  # type: ignore[attr-defined]


@pytest.mark.requirement("MBWS-37", "MBWS-38")
@in_loop
async def test_a_message_goes_to_each_of_its_addresses(shared: RunningBroker) -> None:
    a, b = next(names), next(names)
    query = f"address={a}&from=earliest&address={b}&from=earliest"
    async with at(shared) as (opened, beside), bare(opened, query) as one:
        await one.connect()
        await one.say(Message((a, "", b, a), b"both"))
        got = await one.messages(2)
        assert sorted(message.addresses for message in got) == [(a,), (b,)]
        assert [message.body for message in got] == [b"both", b"both"]
        for address in (a, b):
            assert await in_log(beside, address) == [b"both"]


@pytest.mark.requirement("MBWS-40", "MBWS-41")
@in_loop
async def test_what_cannot_be_delivered_is_acknowledged_and_a_dead_letter(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared, create=(DEAD, a)) as (opened, beside), bare(opened) as one:
        await one.connect()
        await one.say(
            Message(("nowhere", a), b"unknown", "t/t", (("k", "v"),)),
            Message((), b"no address"),
            Message((a,), b"bad", "", (("mtl-sequence", "1"),)),
            Message((a,), b"long", "", tuple((f"{n:04}", "x" * 60) for n in range(990))),
            Message((a,), b"good"),
        )
        await one.acknowledged(5)
        assert await in_log(beside, a) == [b"unknown", b"good"]
        async with beside.reader(DEAD, start="earliest", until=5) as log:
            letters = {content.body: content.properties async for content in log}
        assert set(letters) == {b"unknown", b"no address", b"bad", b"long"}
        assert letters[b"unknown"].items() >= {"k": "v", "content-type": "t/t"}.items()
        assert letters[b"unknown"]["dead-letter-address"] == "nowhere"
        assert "broker's" in str(letters[b"bad"]["dead-letter-reason"])
    async with at(shared, create=()) as (opened, _), bare(opened) as one:
        await one.connect()
        await one.say(Message(("nowhere",), b""))
        await one.acknowledged(1)


@pytest.mark.parametrize(
    ("query", "data", "code"),
    [
        ("", [b"\3\0\0\0"], 1002),
        ("", [b"\1\0\0", b"\2\1"], 1002),
        ("", [b"\1\0\0", "9 "], 1002),
        ("", [b"\1\1x\1\0"], 1002),
        ("", [b"\1\1\xff\0"], 1007),
        ("", [b"\1\0\0", b"\3\0\0\0" + bytes((4 << 20) + 1)], 1009),
        ("", [bytes(5 << 20)], 1009),
        ("x=y", [], 1008),
        ("address=nowhere", [b"\1\0\0"], 1008),
    ],
)
@in_loop
async def test_what_cannot_be_is_a_close_code(
    shared: RunningBroker, query: str, data: list[bytes | str], code: int
) -> None:
    async with at(shared, create=()) as (opened, _), bare(opened, query) as one:
        for message in data:
            with suppress(ConnectionClosed):
                await one.socket.send(message)
        assert await one.closed() == code
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        assert not len(opened._connections)  # type: ignore[attr-defined]


@in_loop
async def test_a_client_that_says_nothing_is_let_go(
    shared: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.doors.mbws.peer.MBWS_CONNECT_S", 0.05)
    async with at(shared) as (opened, _), bare(opened) as one:
        assert await one.closed() == 1002


@in_loop
async def test_no_more_than_the_window_is_sent_without_acknowledgement(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared) as (opened, beside), bare(opened, f"address={a}&from=earliest") as one:
        await written(beside, a, range(MBWS_WINDOW + 100))
        await one.connect()
        assert bodies_of(await one.messages(MBWS_WINDOW)) == list(range(MBWS_WINDOW))
        more = asyncio.create_task(one.messages(100))
        done, _ = await asyncio.wait({more}, timeout=0.1)
        assert not done
        await one.say(Acknowledge(99))
        done, _ = await asyncio.wait({more}, timeout=0.1)
        assert not done
        await one.say(Acknowledge(100))
        assert bodies_of(await more) == list(range(MBWS_WINDOW, MBWS_WINDOW + 100))


@in_loop
async def test_a_slow_client_misses_nothing(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared) as (opened, beside), bare(opened, f"address={a}&from=earliest", MBLWS) as one:
        await beside.create_resource(a, exist_ok=True)
        async with beside.writer(a) as w:
            for n in range(100):
                await w.send(b"%d" % n + bytes(100_000))
        got = [message.body.rstrip(b"\0") for message in await one.messages(100)]
        assert got == [b"%d" % n for n in range(100)]


@pytest.mark.requirement("MBWS-55")
@in_loop
async def test_a_peer_may_count_characters_in_binary_frames(shared: RunningBroker) -> None:
    a = "größe-" + next(names)
    query = f"address=gr%C3%B6%C3%9Fe-{a.removeprefix('größe-')}&from=earliest&lengths=characters"
    async with at(shared) as (opened, _), bare(opened, query, MBLWS) as one:
        await one.socket.send(encode(Message((a,), b"hi"), Kind.BINARY, characters=True))
        data = await one.socket.recv()
        assert decode(data, characters=True) == Message((a,), b"hi", "", (("mtl-sequence", "1"),))


# --- the client -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [False, True])
@in_loop
async def test_what_is_sent_is_delivered_and_durable(shared: RunningBroker, *, text: bool) -> None:
    a = next(names)
    async with at(shared) as (opened, beside), mbws.connect(opened.endpoint, text=text) as c:
        async with c.reader(a, start="earliest") as r, c.writer(a) as w:
            for body in BODIES:
                await w.send(body, PROPERTIES)
            received = [await r.next() for _ in BODIES]
        assert [one.body for one in received] == BODIES
        assert [one.sequence for one in received] == [1, 2, 3, 4]
        assert all(one.properties == PROPERTIES for one in received)
        async with beside.reader(a, start="earliest", until=5) as log:
            assert [(content.body, content.properties) async for content in log] == [
                (body, PROPERTIES) for body in BODIES
            ]


@pytest.mark.requirement("MBWS-07", "MBWS-10", "MBWS-18", "MBWS-21", "MBWS-30")
@in_loop
async def test_a_cut_network_costs_nothing_and_doubles_nothing(shared: RunningBroker) -> None:
    """Numbered contents in both directions, cut again and again in the middle of them."""
    a = next(names)
    async with at(shared) as (opened, beside):
        port = urlsplit(opened.endpoint).port
        assert port is not None
        with CuttingProxy(port) as proxy:
            async with (
                mbws.connect(f"ws://{HERE}:{port}") as c,
                c.reader(a, start="earliest") as r,
                c.writer(a) as w,
            ):
                got: list[int] = []
                reading = asyncio.create_task(read(r, got))
                for n in range(3000):
                    await w.send(b"%d" % n)
                    if n % 500 == 250:
                        await until(lambda n=n: len(got) > n - 200)  # type: ignore[misc]
                        await asyncio.to_thread(proxy.cut)
                await w.flush()
                await until(lambda: len(got) >= 3000)
                reading.cancel()
                assert got == list(range(3000))
                assert c.line.beginnings == r.line.beginnings == 1
                assert c.line.recoveries + r.line.recoveries >= 6
        assert await in_log(beside, a) == [b"%d" % n for n in range(3000)]


async def read(r: mbws.Reader, got: list[int]) -> None:
    while True:
        got.append(int((await r.next()).body))


@pytest.mark.requirement("MBWS-32")
@in_loop
async def test_a_door_that_was_started_again_knows_nothing_and_nothing_is_lost(shared: RunningBroker) -> None:
    """The reader goes on behind what it has; the writer sends what was not acknowledged."""
    a = next(names)
    async with at(shared) as (opened, _):
        place = opened.endpoint.removeprefix("ws://")
        c = await mbws.connect(opened.endpoint)
        r, w = await c.reader(a, start="earliest"), await c.writer(a)
        for n in range(3):
            await w.send(b"%d" % n)
        await w.flush()
        assert [int((await r.next()).body) for _ in range(2)] == [0, 1]
    away = await w.send(b"3")
    async with door("mbws", shared.endpoint, place) as (_, beside):
        await away
        assert [int((await r.next()).body) for _ in range(2)] == [2, 3]
        assert c.line.beginnings == r.line.beginnings == 2
        await c.close()
        assert await in_log(beside, a) == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_a_door_that_stops_has_acknowledged_what_it_took_in(shared: RunningBroker) -> None:
    """Nothing is sent twice, then: the next door's log has each number once."""
    a = next(names)
    sending: asyncio.Task[None]
    async with at(shared) as (opened, _):
        place = opened.endpoint.removeprefix("ws://")
        c = await mbws.connect(opened.endpoint)
        w = await c.writer(a)
        sending = asyncio.create_task(send_all(w, range(5000)))
        await until(lambda: c.line._outgoing.acked > 500)
    async with door("mbws", shared.endpoint, place) as (_, beside):
        await sending
        await w.flush()
        await c.close()
        assert await in_log(beside, a) == [b"%d" % n for n in range(5000)]


async def send_all(w: mbws.Writer, numbers: range) -> None:
    for n in numbers:
        await w.send(b"%d" % n)


@in_loop
async def test_a_killed_broker_costs_nothing_that_was_acknowledged(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, beside), mbws.connect(opened.endpoint) as c:
        w, r = await c.writer("orders"), await c.reader("orders", start="earliest")
        answered = [await w.send(b"%d" % n) for n in range(300)]
        await answered[100]
        await asyncio.to_thread(mtl_broker.kill)
        sending = asyncio.create_task(send_all(w, range(300, 500)))
        await asyncio.to_thread(mtl_broker.restart)
        await sending
        await w.flush()
        assert await in_log(beside, "orders") == [b"%d" % n for n in range(500)]
        assert [int((await r.next()).body) for _ in range(500)] == list(range(500))


@in_loop
async def test_a_killed_door_costs_nothing_that_was_acknowledged(shared: RunningBroker) -> None:
    """The next one knows no connection: what was under way may be there twice, what was acknowledged is there once."""
    a = next(names)
    command = ["mbws", "--connect", shared.endpoint, "--listen"]
    with door_process(*command, ANYWHERE) as process:
        assert process.stdout is not None
        place = await_line(process.stdout.fileno(), r"mtl door mbws ready at ws://(\S+) ")
        c = await mbws.connect(f"ws://{place}")
        w, r = await c.writer(a), await c.reader(a, start="earliest")
        sent = [await w.send(b"%d" % n) for n in range(500)]
        got = [int((await r.next()).body) for _ in range(50)]
        await sent[300]
        process.kill()
    acknowledged = sum(one.done() for one in sent)
    with door_process(*command, place) as process:
        await w.flush()
        async with aio.connect(shared.endpoint) as beside:
            log = [int(body) for body in await in_log(beside, a)]
        got += [int((await r.next()).body) for _ in log[50:]]
        await c.close()
    assert got == log, "the reader went on where it was"
    assert sorted(set(log)) == list(range(500))
    assert log[:acknowledged] == list(range(acknowledged))
    assert log.count(acknowledged - 1) == 1


CLIENT = """
import asyncio, sys
from mtl.doors.mbws import client as mbws
async def main():
    async with mbws.connect(sys.argv[1]) as c, c.writer(sys.argv[2]) as w:
        for n in range(10**9):
            sent = await w.send(b"%d" % n)
            sent.add_done_callback(lambda _, n=n: print(n, flush=True))
asyncio.run(main())
"""


@in_loop
async def test_what_a_killed_client_was_told_is_there(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared) as (opened, beside):
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, opened.endpoint, a, stdout=asyncio.subprocess.PIPE
        )
        assert client.stdout is not None
        told = -1
        while told < 500:
            told = int(await client.stdout.readline())
        client.kill()
        for line in (await client.stdout.read()).split(b"\n")[:-1]:
            told = int(line)
        await client.wait()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        log = [int(body) for body in await in_log(beside, a)]
        assert log == list(range(len(log)))
        assert len(log) > told


@pytest.mark.requirement("MBWS-44", "MBWS-45")
@in_loop
async def test_tls_and_origins(shared: RunningBroker, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with at(shared, certificate_file=certificates.certificate, key_file=certificates.key) as (
        opened,
        _,
    ):
        assert opened.endpoint.startswith("wss://")
        async with mbws.connect(opened.endpoint, tls=certificates.trusting) as c, c.writer(next(names)) as w:
            await w.send(b"private")
        with pytest.raises(Refused, match="untrusted"):
            await mbws.connect(opened.endpoint)
    async with at(shared) as (opened, _):
        with pytest.raises(InvalidStatus, match="403"):
            async with bare(opened, origin="https://example.org"):
                pass


@in_loop
async def test_what_cannot_be_sent_is_said_at_once(shared: RunningBroker) -> None:
    async with at(shared, create=()) as (opened, _), mbws.connect(opened.endpoint) as c, c.writer("a") as w:
        with pytest.raises(ContentTooLarge):
            await w.send(bytes((4 << 20) + 1))
        with pytest.raises(FieldError, match="are the most"):
            await w.send(b"", {"k": "x" * 70_000})
        with pytest.raises(Refused, match="no such resource"):
            await c.reader("nowhere")
    for url in ("127.0.0.1:5979", "http://127.0.0.1", "ws://127.0.0.1/?address=a", "ws://"):
        with pytest.raises(OptionError):
            mbws.connect(url)


@in_loop
async def test_a_full_door_turns_clients_away(shared: RunningBroker) -> None:
    async with at(shared, max_sessions=1) as (opened, _):
        async with mbws.connect(opened.endpoint):
            with pytest.raises(Refused, match="limit"):
                await mbws.connect(opened.endpoint)
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        async with mbws.connect(opened.endpoint):
            pass

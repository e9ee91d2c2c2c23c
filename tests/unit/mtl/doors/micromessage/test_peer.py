"""One peer of the MicroMessage2 door, with a bridge that records what it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from mtl.client.consuming import QueuedContent
from mtl.client.contents import Content
from mtl.client.reader_part import Start
from mtl.doors.arriving import Arriving
from mtl.doors.budget import Budget
from mtl.doors.micromessage.door import OFFER
from mtl.doors.micromessage.negotiation import Extension, ExtensionOffer
from mtl.doors.micromessage.peer import MicroPeer
from mtl.doors.micromessage.session import Acked, Ended, Event, MessageArrived, MicroRole, MicroSession
from mtl.doors.peer_session import PeerSession
from mtl.doors.runs import ContentRun
from mtl.errors import Closed
from mtl.protocol.consuming import ConsumerAnswer, Hand
from mtl.wire.fields import EMPTY
from tests.support.aio import in_loop, until
from tests.support.bridge import turns

WITH_ACK = ExtensionOffer((Extension("ack"), Extension("pub-sub")))
WITHOUT_ACK = ExtensionOffer((Extension("pub-sub"),))


class Log:
    """A subscription to contents that the test adds."""

    def __init__(self) -> None:
        self.contents: asyncio.Queue[list[Content]] = asyncio.Queue()

    async def some(self) -> list[Content]:
        return await self.contents.get()

    async def close(self) -> None:
        """There is nothing to close."""


class Broker:
    """Records runs and starts. `settle` is called with the result of each run: it confirms it at once."""

    def __init__(self) -> None:
        self.settle: Callable[[asyncio.Future[None]], None] = lambda result: result.set_result(None)
        self.runs: list[ContentRun] = []
        self.starts: list[Start] = []
        self.log = Log()

    def arriving(self) -> Arriving:
        return Arriving(Budget(1 << 30), "")

    def end(self) -> None:
        """The peer has gone."""

    async def publish_run(self, run: ContentRun) -> asyncio.Future[None]:
        self.runs.append(run)
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settle(result)
        return result

    async def subscribe(self, _: str, start: Start, **__: object) -> Log:
        self.starts.append(start)
        return self.log

    async def consume(self, _: str, contents: int, **__: object) -> Log:
        return self.log


class Wire:
    """The peer's end of the connection; `events` are those of the door's answers."""

    transport = property(lambda self: self)

    def __init__(self, session: MicroSession) -> None:
        self.session = session
        self.peer: MicroPeer
        self.reader = asyncio.StreamReader()
        self.events: list[Event] = []

    def send(self) -> None:
        """Send the output of the session, in one piece."""
        self.reader.feed_data(self.session.to_send())

    def write(self, octets: bytes) -> None:
        self.events += self.session.received(octets)

    def is_closing(self) -> bool:
        return False

    async def drain(self) -> None:
        """The peer reads at once."""

    def close(self) -> None:
        """There is no connection."""

    def abort(self) -> None:
        """There is no connection."""


@asynccontextmanager
async def opened(offer: ExtensionOffer) -> AsyncIterator[tuple[Wire, Broker]]:
    """A peer after its handshake."""
    wire, broker = Wire(MicroSession(MicroRole.CLIENT, offer, "hulk")), Broker()
    writer = cast(asyncio.StreamWriter, wire)
    session = cast(PeerSession, broker)
    wire.peer = peer = MicroPeer(session, wire.reader, writer, OFFER, "mtl", lambda: None)
    try:
        wire.send()
        await until(lambda: bool(wire.events))
        wire.events.clear()
        wire.send()
        yield wire, broker
    finally:
        await peer.stop()


@pytest.mark.requirement("MM2-02", "MM2-40")
@in_loop
async def test_messages_to_one_destination_that_arrive_together_are_published_together() -> None:
    async with opened(WITHOUT_ACK) as (wire, broker):
        for destination, body in (("a", b"1"), ("a", b"2"), ("a", b"3"), ("b", b"4")):
            wire.session.send(destination, body)
        wire.send()
        await until(lambda: len(broker.runs) >= 2)
        assert [(run.resource, run.bodies) for run in broker.runs] == [
            ("a", [b"1", b"2", b"3"]),
            ("b", [b"4"]),
        ]


@pytest.mark.requirement("MM2-55", "MM2-63")
@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ({}, "latest"),
        ({"from": "latest"}, "latest"),
        ({"from": "earliest"}, "earliest"),
        ({"from": "7"}, 7),
    ],
)
@in_loop
async def test_a_topic_is_delivered_from_the_start_that_its_subscriber_names(
    arguments: dict[str, str], start: Start
) -> None:
    async with opened(WITH_ACK) as (wire, broker):
        wire.session.command("subscribe", {"destination": "topic/orders", **arguments})
        wire.send()
        await until(lambda: bool(broker.starts or wire.events))
        assert broker.starts == [start]


@pytest.mark.requirement("MM2-55")
@pytest.mark.parametrize("start", ["0", "-1", "soon", "9" * 19])
@in_loop
async def test_a_start_that_is_not_a_position_is_an_error(start: str) -> None:
    async with opened(WITH_ACK) as (wire, broker):
        wire.session.command("subscribe", {"destination": "topic/orders", "from": start})
        wire.send()
        await until(lambda: bool(broker.starts or wire.events))
        (ended,) = wire.events
        assert isinstance(ended, Ended)
        assert "from is earliest, latest or a sequence above 0" in ended.text


@pytest.mark.requirement("MM2-34", "MM2-63")
@in_loop
async def test_the_next_content_is_delivered_after_the_acknowledgement_of_the_one_before() -> None:
    async with opened(WITH_ACK) as (wire, broker):
        wire.session.command("subscribe", {"destination": "topic/orders"})
        wire.send()
        await broker.log.contents.put([Content("orders", n, EMPTY, b"%d" % n) for n in (1, 2)])
        for body in (b"1", b"2"):
            await until(lambda: bool(wire.events))
            (arrived,) = wire.events
            assert isinstance(arrived, MessageArrived)
            assert arrived.payload == body
            wire.events.clear()
            wire.session.ack(1)
            wire.send()


@pytest.mark.requirement("MM2-47")
@in_loop
async def test_a_published_message_is_acknowledged() -> None:
    async with opened(WITH_ACK) as (wire, _):
        wire.session.send("a", b"1")
        wire.send()
        await until(lambda: bool(wire.events))
        assert wire.events == [Acked(1)]


@pytest.mark.requirement("MM2-40")
@in_loop
async def test_a_failed_message_ends_the_connection_with_an_error() -> None:
    async with opened(WITH_ACK) as (wire, broker):
        broker.settle = lambda result: result.set_exception(Closed("the broker stops"))
        wire.session.send("a", b"1")
        wire.send()
        await until(lambda: bool(wire.events))
        assert [type(event) for event in wire.events] == [Ended]


@in_loop
async def test_a_cancelled_message_is_not_acknowledged() -> None:
    async with opened(WITH_ACK) as (wire, broker):
        results: list[asyncio.Future[None]] = []
        broker.settle = results.append
        wire.session.send("a", b"1")
        wire.send()
        await until(lambda: bool(results))
        results[0].cancel()
        await turns()
        assert wire.events == []


@pytest.mark.requirement("MM2-47")
@in_loop
async def test_a_peer_that_stops_reading_acknowledges_the_messages_under_way() -> None:
    async with opened(WITH_ACK) as (wire, broker):
        results: list[asyncio.Future[None]] = []
        broker.settle = results.append
        wire.session.send("a", b"1")
        wire.send()
        await until(lambda: bool(results))
        wire.peer.stop_reading()
        results[0].set_result(None)
        await until(lambda: bool(wire.events))
        assert wire.events == [Acked(1)]
        wire.session.send("a", b"2")
        wire.send()
        await turns()
        assert len(broker.runs) == 1


@pytest.mark.requirement("MM2-63")
@pytest.mark.parametrize(("stopped", "answers"), [(False, [ConsumerAnswer.RECYCLE]), (True, [])])
@in_loop
async def test_a_peer_that_stops_reading_leaves_its_contents_to_the_broker(
    *, stopped: bool, answers: list[ConsumerAnswer]
) -> None:
    """The broker knows which contents a door had at its stop; a peer that goes has had each of its contents once."""
    given: list[ConsumerAnswer] = []
    content = QueuedContent(
        "jobs", Hand(1, 1, 1, False), EMPTY, b"1", lambda _, answer, __: given.append(answer)
    )
    async with opened(WITH_ACK) as (wire, broker):
        wire.session.command("subscribe", {"destination": "jobs"})
        wire.send()
        await broker.log.contents.put([content])
        await until(lambda: bool(wire.events))
        if stopped:
            wire.peer.stop_reading()
    assert given == answers

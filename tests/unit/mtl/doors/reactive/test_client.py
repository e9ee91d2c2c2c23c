"""The client of a Reactive Streams door, against a door that the test speaks for."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mtl.doors.reactive import codec
from mtl.doors.reactive.client import ReactiveConnection
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.publishing import UNBOUNDED
from mtl.doors.reactive.session import ReactiveRole
from mtl.doors.reactive.streams import ReactiveReader, ReactiveWriter
from mtl.errors import Closed, OptionError, Refused
from tests.support.aio import in_loop, until

ORDERS = "orders?from=earliest&envelope=seq"


class Door:
    """A transport whose other end is the test. It answers a goodbye, as every peer has to."""

    peer = None
    waiting = 0

    def __init__(self) -> None:
        self.received: list[codec.Message] = []
        """The messages of the client, after its hello."""
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._decoder = codec.ReactiveDecoder()

    def send(self, *messages: codec.Message) -> None:
        self._input.put_nowait(b"".join(map(codec.encode, messages)))

    async def next_message(self) -> codec.Message:
        """The next message of the client."""
        await until(lambda: bool(self.received))
        return self.received.pop(0)

    async def read(self, incomplete: int = 0) -> bytes:
        return await self._input.get()

    def write(self, octets: bytes) -> None:
        for message in self._decoder.feed(octets):
            self.received.append(message)
            if isinstance(message, codec.Goodbye):
                self.send(codec.Goodbye())

    async def wait_drained(self) -> None:
        """There is nothing to wait for."""

    async def close_transport(self) -> None:
        """There is no connection."""

    def abort(self) -> None:
        self._input.put_nowait(b"")


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[ReactiveConnection, Door]]:
    """A connection after both hellos."""
    door = Door()
    connection = ReactiveConnection("the door", ReactiveLink(ReactiveRole.CLIENT, door))
    try:
        door.send(codec.ServerHello())
        await connection.wait_hello()
        assert await door.next_message() == codec.ClientHello()
        yield connection, door
    finally:
        await connection.close()


async def reading(connection: ReactiveConnection, door: Door, window: int = 4) -> ReactiveReader:
    """A reader, whose Id is 0."""
    opening = asyncio.ensure_future(_opened(connection, window))
    assert await door.next_message() == codec.Subscribe(ORDERS, 0, window)
    door.send(codec.Subscribed(0))
    return await opening


async def _opened(connection: ReactiveConnection, window: int) -> ReactiveReader:
    return await connection.reader("orders", window=window)


def element(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big") + b"%d" % sequence


@pytest.mark.requirement("RS-25")
@in_loop
async def test_elements_are_read_in_order_and_requested_again_at_the_pace_of_the_reader() -> None:
    async with connected() as (connection, door):
        reader = await reading(connection, door, window=4)
        door.send(
            codec.OnNext(0, element(1)),
            codec.OnNexts(0, (element(2), element(3))),
            codec.OnNext(0, element(4)),
        )
        assert (await reader.next()).body == b"1"
        assert door.received == []  # one of four is read
        assert [(await reader.next()).body for _ in range(3)] == [b"2", b"3", b"4"]
        assert await door.next_message() == codec.RequestMore(0, 2)
        assert reader.position == 5


@pytest.mark.requirement("RS-21", "RS-25")
@in_loop
async def test_the_close_of_a_reader_is_sent_to_the_door_once_and_ends_the_reader() -> None:
    async with connected() as (connection, door):
        reader = await reading(connection, door)
        await reader.close()
        assert await door.next_message() == codec.Cancel(0)
        with pytest.raises(Closed, match="this end of 'orders' is closed"):
            await asyncio.wait_for(reader.next(), 10)
        await reader.close()
        await _turns()
        assert door.received == []


@pytest.mark.requirement("RS-25", "RS-29")
@in_loop
async def test_a_repeated_close_leaves_the_reader_that_reuses_the_id_open() -> None:
    async with connected() as (connection, door):
        first = await reading(connection, door)
        await first.close()
        assert await door.next_message() == codec.Cancel(0)
        second = await reading(connection, door)
        await first.close()
        door.send(codec.OnNext(0, element(7)))
        assert (await asyncio.wait_for(second.next(), 10)).body == b"7"


@pytest.mark.requirement("RS-25")
@in_loop
async def test_a_reader_that_the_door_ended_cancels_nothing() -> None:
    async with connected() as (connection, door):
        reader = await reading(connection, door)
        door.send(codec.OnNext(0, element(1)), codec.OnComplete(0))
        assert (await reader.next()).body == b"1"
        with pytest.raises(Closed, match="the door has ended the stream"):
            await reader.next()
        await reading(connection, door)
        await reader.close()
        await _turns()
        assert door.received == []  # a cancel would end the other reader, which has the same Id


@pytest.mark.requirement("RS-24", "RS-25")
@in_loop
async def test_both_ends_publish_and_subscribe_on_one_connection() -> None:
    async with connected() as (connection, door):
        reader = await reading(connection, door)
        opening = asyncio.ensure_future(_writer(connection))
        assert await door.next_message() == codec.Subscribe("$publish/orders", 1, UNBOUNDED)
        door.send(codec.Subscribed(1))
        await _turns()
        assert not opening.done()
        door.send(codec.Subscribe("orders", 0, 2))  # our Id 0 is apart from the door's
        assert await door.next_message() == codec.Subscribed(0)
        writer = await opening
        sent = [await writer.send(body) for body in (b"a", b"b")]
        assert await door.next_message() == codec.OnNexts(0, (b"a", b"b"))
        assert not any(future.done() for future in sent)
        waiting = asyncio.ensure_future(writer.send(b"c"))
        door.send(codec.OnNext(1, b"\0" * 7 + b"\1"), codec.OnNext(0, element(1)))
        await sent[0]
        assert (await reader.next()).body == b"1"
        assert not sent[1].done()
        assert not waiting.done()  # no demand is left
        door.send(codec.RequestMore(0, 1))
        assert await door.next_message() == codec.OnNext(0, b"c")
        door.send(codec.OnNext(1, b"\0" * 7 + b"\3"))
        await asyncio.gather(*sent, await waiting)


@in_loop
async def test_a_refused_writer_leaves_the_id_of_its_contents_to_the_next_one() -> None:
    async with connected() as (connection, door):
        first = await writing(connection, door)
        door.send(codec.OnError(0, "there is no room"), codec.Cancel(0))
        with pytest.raises(Refused, match="there is no room") as refused:
            await first.send(b"a")
        assert (refused.value.status, refused.value.reason) == (400, "error")
        second = await writing(connection, door)
        sending = asyncio.ensure_future(second.send(b"b"))
        await _turns()
        assert not sending.done()
        door.send(codec.RequestMore(0, 1))
        await sending
        assert await door.next_message() == codec.OnNext(0, b"b")


@in_loop
async def test_the_door_subscribes_to_waiting_writers_of_its_name_in_their_order() -> None:
    async with connected() as (connection, door):
        names = ("orders", "pears", "orders")
        writers = [asyncio.ensure_future(_writer(connection, name)) for name in names]
        for subscriber, name in enumerate(names):
            assert await door.next_message() == codec.Subscribe(f"$publish/{name}", subscriber, UNBOUNDED)
            door.send(codec.Subscribed(subscriber))
        for subscriber, (name, opened) in enumerate((("orders", 0), ("orders", 2), ("pears", 1))):
            door.send(codec.Subscribe(name, subscriber, 1))
            assert await door.next_message() == codec.Subscribed(subscriber)
            await (await writers[opened]).send(name.encode())
            assert await door.next_message() == codec.OnNext(subscriber, name.encode())


@in_loop
async def test_the_door_does_not_subscribe_to_a_writer_that_it_refused() -> None:
    async with connected() as (connection, door):
        refused, opening = (asyncio.ensure_future(_writer(connection)) for _ in range(2))
        for subscriber in (0, 1):
            assert await door.next_message() == codec.Subscribe("$publish/orders", subscriber, UNBOUNDED)
        door.send(
            codec.Subscribed(0),
            codec.OnError(0, "there is no room"),
            codec.Subscribed(1),
            codec.Subscribe("orders", 0, 1),
        )
        with pytest.raises(Refused, match="there is no room"):
            await refused
        assert await door.next_message() == codec.Subscribed(0)
        await opening


@in_loop
async def test_a_subscription_to_a_cancelled_or_unknown_writer_is_refused() -> None:
    async with connected() as (connection, door):
        opening = asyncio.ensure_future(_writer(connection))
        assert await door.next_message() == codec.Subscribe("$publish/orders", 0, UNBOUNDED)
        opening.cancel()
        assert await door.next_message() == codec.Cancel(0)
        for subscriber in (0, 1):
            door.send(codec.Subscribe("orders", subscriber, 1))
            assert await door.next_message() == codec.Subscribed(subscriber)
            assert await door.next_message() == codec.OnError(subscriber, "there is no such publisher here")


@in_loop
async def test_a_writer_whose_contents_the_door_cancels_is_not_kept() -> None:
    async with connected() as (connection, door):
        kept = weakref.WeakSet([await writing(connection, door)])
        assert len(kept) == 1
        door.send(codec.Cancel(0), codec.OnComplete(0))
        await until(lambda: gc.collect() >= 0 and not kept)


async def writing(connection: ReactiveConnection, door: Door) -> ReactiveWriter:
    """A writer without demand. The Id of the confirmations is 0, and so is that of the contents."""
    opening = asyncio.ensure_future(_writer(connection))
    assert await door.next_message() == codec.Subscribe("$publish/orders", 0, UNBOUNDED)
    door.send(codec.Subscribed(0), codec.Subscribe("orders", 0, 0))
    assert await door.next_message() == codec.Subscribed(0)
    return await opening


async def _writer(connection: ReactiveConnection, resource: str = "orders") -> ReactiveWriter:
    return await connection.writer(resource)


@pytest.mark.requirement("RS-38")
@in_loop
async def test_a_reader_that_the_door_refuses_does_not_open() -> None:
    async with connected() as (connection, door):
        opening = asyncio.ensure_future(_opened(connection, 1))
        assert await door.next_message() == codec.Subscribe(ORDERS, 0, 1)
        door.send(codec.Subscribed(0), codec.OnError(0, "there is no such resource"))
        with pytest.raises(Refused, match="there is no such resource"):
            await opening


@in_loop
async def test_a_window_of_one_element_is_the_smallest() -> None:
    async with connected() as (connection, door):
        with pytest.raises(OptionError, match="window has to be above 0"):
            connection.reader("orders", window=0)
        reader = await reading(connection, door, window=1)
        door.send(codec.OnNext(0, element(1)))
        assert (await reader.next()).body == b"1"
        assert await door.next_message() == codec.RequestMore(0, 1)


@pytest.mark.requirement("RS-39")
@in_loop
async def test_the_end_of_a_block_says_goodbye_and_ends_the_connection() -> None:
    async with connected() as (connection, door):
        await connection.leave(failed=False)
        assert await door.next_message() == codec.Goodbye()
        with pytest.raises(Closed, match="the connection is closed"):
            await connection.reader("orders")


async def _turns() -> None:
    """Turns of the event loop that are enough for a flush."""
    for _ in range(5):
        await asyncio.sleep(0)

"""A client's connection, readers and writers, at a door that the test speaks for; time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import pytest

from mtl.client.aio.opening import Opening
from mtl.client.reader_part import Start
from mtl.doors.limits import MBWS_CLIENT_OCTETS, MBWS_CLIENT_WINDOW, MBWS_HEADER, WS_CLOSE_S
from mtl.doors.mbws.client import MbwsConnection, MbwsReader, MbwsWriter, connect
from mtl.doors.mbws.codec import Acknowledge, Connect, Kind, Message, decode
from mtl.doors.mbws.link import LinkTarget, MbwsLink
from mtl.doors.received import Received
from mtl.errors import Closed, ContentTooLarge, FieldError, OptionError, Refused, Unreachable
from mtl.limits import MAX_CONTENT
from mtl.wire.fields import Value
from tests.support.scripted_mbws_door import ScriptedDoor, ScriptedSocket
from tests.support.virtual_time import idle, in_virtual_time, now

NO_SEQUENCES = ("", "x", "-1", "0", "²", "٣", "9" * 19, "1" * 5000)
"""Values of `mtl-sequence` that are no number, or that no log has."""
TARGET = LinkTarget("ws://door", Kind.BINARY, None, 100.0)


class RecordingLink:
    """Sends nothing. `flushed` are the numbers of messages that `flush` waited for."""

    def __init__(self) -> None:
        self.sent = 0
        self.messages: list[Message] = []
        self.sizes: list[int] = []
        self.flushed: list[int] = []

    async def send(self, data: bytes | str, size: int) -> asyncio.Future[None]:
        message = decode(data)
        assert isinstance(message, Message)
        self.messages.append(message)
        self.sizes.append(size)
        self.sent += 1
        return asyncio.get_running_loop().create_future()

    async def flush(self, sent: int) -> None:
        self.flushed.append(sent)


def writing(kind: Kind = Kind.BINARY) -> tuple[MbwsWriter, RecordingLink]:
    link = RecordingLink()
    return MbwsWriter(cast("MbwsLink", link), "a", kind), link


@asynccontextmanager
async def reading(
    door: ScriptedDoor, start: Start = "latest"
) -> AsyncIterator[tuple[MbwsReader, ScriptedSocket]]:
    """A reader and its WebSocket."""
    reader = MbwsReader(TARGET, "a", start, lambda _: None)
    try:
        yield reader, await door.connected()
    finally:
        await reader.close()


def message(body: bytes, **properties: str) -> Message:
    """A message of the door; its sequence is the property `mtl_sequence`."""
    pairs = ((name.replace("_", "-"), value) for name, value in properties.items())
    return Message(("a",), body, "", tuple(pairs))


# --- the connection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["door:1", "http://door", "ws://", "ws://door?address=a", "ws://door#a"])
def test_an_address_that_is_not_of_a_websocket_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="is not ws://HOST:PORT or wss://HOST:PORT"):
        connect(url)


@pytest.mark.parametrize("url", ["ws://door", "wss://door:1/path"])
@pytest.mark.parametrize(
    ("opening", "form"), [(connect, bytes), (partial(connect, text=True), str)], ids=["binary", "text"]
)
@in_virtual_time
async def test_a_client_connects_as_its_options_say(
    door: ScriptedDoor, url: str, opening: Callable[..., Opening[MbwsConnection]], form: type
) -> None:
    connecting = asyncio.ensure_future(opening(url, authorization="Basic x").__aenter__())
    socket = await door.connected()
    connection = await connecting
    assert (socket.url, socket.options["authorization"]) == (url, "Basic x")
    writer = await connection.writer("a")
    sent = await writer.send(b"1")
    assert await socket.frame() == Message(("a",), b"1")
    assert not sent.done()
    socket.deliver(Acknowledge(1))
    await sent
    assert [type(data) for write in socket.writes for data in write] == [form, form]
    assert connection.endpoint == url
    await connection.close()


@in_virtual_time
async def test_a_client_waits_for_a_door_as_long_as_its_option_says(door: ScriptedDoor) -> None:
    door.failures.extend([ConnectionRefusedError()] * 100)
    with pytest.raises(Unreachable):
        await connect("ws://door", retry_deadline=7.0)
    assert 7.0 < now() < 9.0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_leaving_a_connection_closes_it(door: ScriptedDoor) -> None:
    connection = MbwsConnection(TARGET)
    socket = await door.connected()
    await idle()
    await connection.leave(failed=False)
    assert isinstance(connection.link.error, Closed)
    assert socket.closes == [1000]


@in_virtual_time
async def test_a_reader_has_a_connection_of_its_own_that_ends_with_that_of_the_writers(
    door: ScriptedDoor,
) -> None:
    connection = MbwsConnection(TARGET)
    await door.connected()
    opening = asyncio.ensure_future(connection.reader("b", start="earliest").__aenter__())
    socket = await door.socket()
    assert socket.url == "ws://door?address=b&from=earliest"
    await idle()
    assert not opening.done()
    await socket.accept("two")
    reader = await opening
    socket.deliver(message(b"1"))
    assert (await reader.next()).resource == "b"
    await connection.close()
    with pytest.raises(Closed):
        await reader.next()
    assert socket.closes == [1000]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_a_reader_that_opens_ends_with_its_connection(door: ScriptedDoor) -> None:
    connection = MbwsConnection(TARGET)
    opening = asyncio.ensure_future(connection.reader("a").__aenter__())
    await idle()
    await connection.close()
    with pytest.raises(Closed):
        await opening


@in_virtual_time
async def test_a_reader_that_the_door_refuses_does_not_open(door: ScriptedDoor) -> None:
    connection = MbwsConnection(TARGET)
    await door.connected()
    opening = asyncio.ensure_future(connection.reader("a").__aenter__())
    socket = await door.socket()
    assert socket.url == "ws://door?address=a&from=latest"
    socket.end(1008, "no such resource")
    with pytest.raises(Refused, match="no such resource"):
        await opening
    assert connection._readers == set()
    await connection.close()


@in_virtual_time
async def test_a_closed_connection_opens_no_reader(door: ScriptedDoor) -> None:
    connection = MbwsConnection(TARGET)
    await connection.close()
    with pytest.raises(Closed, match="the connection is closed"):
        await connection.reader("a")
    await idle()
    assert len(door.attempts) <= 1, "that of the writers"


# --- writers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failed", "flushed"), [(False, [2]), (True, [])])
@in_virtual_time
async def test_leaving_a_writer_flushes_its_messages_unless_its_block_failed(
    failed: bool, flushed: list[int]
) -> None:
    writer, link = writing()
    for body in (b"1", b"2"):
        await writer.send(body)
    await writer.leave(failed=failed)
    assert link.flushed == flushed


@in_virtual_time
async def test_a_writer_flushes_only_the_messages_up_to_its_own() -> None:
    first, link = writing()
    second = MbwsWriter(cast("MbwsLink", link), "b", Kind.BINARY)
    await first.flush()
    await first.send(b"1")
    await second.send(b"2")
    await first.flush()
    await second.flush()
    assert link.flushed == [0, 1, 2]


@in_virtual_time
async def test_each_message_has_the_properties_of_its_call() -> None:
    writer, link = writing()
    changing: dict[str, Value] = {"n": 1}
    await writer.send(b"", changing)
    await writer.send(b"", changing)
    changing["n"] = 2
    await writer.send(b"", changing)
    await writer.send(b"")
    await writer.send(b"", {"content-type": "text/plain"})
    assert [(sent.content_type, sent.properties) for sent in link.messages] == [
        ("", (("n", "1"),)),
        ("", (("n", "1"),)),
        ("", (("n", "2"),)),
        ("", ()),
        ("text/plain", ()),
    ]


@pytest.mark.parametrize("kind", Kind)
@in_virtual_time
async def test_the_size_of_a_message_is_in_octets(kind: Kind) -> None:
    writer, link = writing(kind)
    await writer.send(b"")
    await writer.send("ü".encode())
    empty, other = link.sizes
    assert other == empty + 2


@in_virtual_time
async def test_a_body_above_the_limit_is_not_sent() -> None:
    writer, link = writing()
    await writer.send(bytes(MAX_CONTENT))
    with pytest.raises(ContentTooLarge):
        await writer.send(bytes(MAX_CONTENT + 1))
    assert link.sent == 1


@in_virtual_time
async def test_the_octets_before_the_body_are_limited() -> None:
    writer, link = writing()
    await writer.send(b"123", {"k": "x" * (MBWS_HEADER // 2)})
    rest = MBWS_HEADER - (link.sizes[0] - 3)
    await writer.send(b"123", {"k": "x" * (MBWS_HEADER // 2 + rest)})
    assert link.sizes[1] == MBWS_HEADER + 3
    with pytest.raises(FieldError, match=f"have {MBWS_HEADER + 1} octets, {MBWS_HEADER} are the most"):
        await writer.send(b"123", {"k": "x" * (MBWS_HEADER // 2 + rest + 1)})
    assert link.sent == 2


# --- readers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (message(b"1", n="1", mtl_sequence="12"), Received("a", 12, b"1", {"n": "1"})),
        (Message(("a",), b"1", "text/plain"), Received("a", None, b"1", {"content-type": "text/plain"})),
        (message(b"1"), Received("a", None, b"1")),
        *((message(b"1", mtl_sequence=other), Received("a", None, b"1")) for other in NO_SEQUENCES),
    ],
)
@in_virtual_time
async def test_a_content_has_the_sequence_the_type_and_the_properties_of_its_message(
    door: ScriptedDoor, sent: Message, received: Received
) -> None:
    async with reading(door) as (reader, socket):
        socket.deliver(sent)
        assert await reader.next() == received


@pytest.mark.requirement("MBWS-18")
@in_virtual_time
async def test_a_content_is_acknowledged_when_the_next_one_is_requested(door: ScriptedDoor) -> None:
    async with reading(door) as (reader, socket):
        socket.deliver(message(b"1"), message(b"2"))
        await reader.next()
        await asyncio.sleep(1)
        assert socket.frames == []
        await reader.next()
        assert await socket.frame() == Acknowledge(1)
        next_one = asyncio.create_task(reader.next())
        assert await socket.frame() == Acknowledge(2)
        socket.deliver(message(b"3"))
        assert (await next_one).body == b"3"


@in_virtual_time
async def test_a_content_is_acknowledged_once_although_the_request_of_the_next_one_is_cancelled(
    door: ScriptedDoor,
) -> None:
    async with reading(door) as (reader, socket):
        socket.deliver(message(b"1"))
        await reader.next()
        waiting = asyncio.create_task(reader.next())
        await idle()
        waiting.cancel()
        socket.deliver(message(b"2"))
        assert (await reader.next()).body == b"2"
        assert await socket.frame() == Acknowledge(1)
        assert reader._octets.held == 1


@pytest.mark.requirement("MBWS-18")
@in_virtual_time
async def test_a_content_of_an_earlier_connection_is_not_acknowledged(door: ScriptedDoor) -> None:
    async with reading(door) as (reader, first):
        first.deliver(message(b"1"))
        await reader.next()
        first.end(1012)
        second = await door.connected("two")
        second.deliver(message(b"2"), message(b"3"))
        await reader.next()
        await asyncio.sleep(1)
        assert second.frames == []
        await reader.next()
        assert await second.frame() == Acknowledge(1)


@pytest.mark.requirement("MBWS-18")
@in_virtual_time
async def test_a_closed_reader_has_acknowledged_only_the_contents_that_it_returned(
    door: ScriptedDoor,
) -> None:
    ended: list[MbwsReader] = []
    reader = MbwsReader(TARGET, "a", "latest", ended.append)
    socket = await door.connected()
    socket.deliver(message(b"1"), message(b"2"))
    await reader.next()
    assert ended == []
    await reader.close()
    assert socket.frames == [Acknowledge(1)]
    assert socket.closes == [1000]
    assert ended == [reader]
    with pytest.raises(Closed, match="the reader is closed"):
        await reader.next()
    await reader.close()
    assert socket.closes == [1000]


@in_virtual_time
async def test_a_close_ends_a_reader_that_waits(door: ScriptedDoor) -> None:
    async with reading(door) as (reader, _):
        waiting = asyncio.create_task(reader.next())
        await idle()
        await reader.close()
        with pytest.raises(Closed, match="the reader is closed"):
            await waiting


@in_virtual_time
async def test_the_error_of_a_connection_follows_the_contents_that_arrived(door: ScriptedDoor) -> None:
    async with reading(door) as (reader, socket):
        socket.deliver(message(b"1"))
        await idle()
        socket.end(1008, "enough")
        await idle()
        assert (await reader.next()).body == b"1"
        with pytest.raises(Refused, match="enough"):
            await reader.next()


@in_virtual_time
async def test_nothing_is_read_while_the_window_of_a_reader_is_full(door: ScriptedDoor) -> None:
    async with reading(door) as (reader, socket):
        socket.deliver(*(message(b"%d" % n) for n in range(MBWS_CLIENT_WINDOW)))
        await idle()
        socket.deliver(message(b"next"))
        await idle()
        assert len(socket.unread) == 1
        await reader.next()
        await idle()
        assert len(socket.unread) == 0


@in_virtual_time
async def test_nothing_is_read_while_the_unconsumed_contents_have_too_many_octets(door: ScriptedDoor) -> None:
    async with reading(door) as (reader, socket):
        socket.deliver(*[message(bytes(MAX_CONTENT))] * (MBWS_CLIENT_OCTETS // MAX_CONTENT))
        await idle()
        socket.deliver(message(b"1"))
        await idle()
        socket.deliver(message(b"2"))
        await idle()
        assert len(socket.unread) == 1
        await reader.next()
        await idle()
        assert len(socket.unread) == 1, "the content is not consumed"
        await reader.next()
        await idle()
        assert len(socket.unread) == 0


@pytest.mark.parametrize(
    "waiting", [[b""] * MBWS_CLIENT_WINDOW, [bytes(MAX_CONTENT)] * (MBWS_CLIENT_OCTETS // MAX_CONTENT)]
)
@in_virtual_time
async def test_a_reader_with_a_full_window_closes_at_once(door: ScriptedDoor, waiting: list[bytes]) -> None:
    """It reads on, up to the answer to its Close."""
    async with reading(door) as (reader, socket):
        for bodies in (waiting, [b"1"], [b"2"]):
            socket.deliver(*map(message, bodies))
            await idle()
        assert len(socket.unread) > 0
        begun = now()
        await reader.close()
        assert now() - begun < WS_CLOSE_S / 2


@in_virtual_time
async def test_without_recovery_a_reader_continues_behind_its_last_content_with_a_sequence(
    door: ScriptedDoor,
) -> None:
    async with reading(door, "earliest") as (_, first):
        assert first.url == "ws://door?address=a&from=earliest"
        first.deliver(message(b"1"))
        await idle()
        first.end(1012)
        second = await door.connected("two")
        assert second.url == "ws://door?address=a&from=earliest"
        second.deliver(message(b"1", mtl_sequence="1"), message(b"2", mtl_sequence="2"), message(b"3"))
        await idle()
        second.end(1012)
        third = await door.socket()
        assert third.url == "ws://door?address=a&from=3"
        assert await third.frame() == Connect()

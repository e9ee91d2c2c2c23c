"""One end of a WebSocket, on a transport without a network; the other end is the protocol of the library."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterable
from pathlib import Path
from time import process_time
from typing import Any, cast

import pytest
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

import mtl
from mtl.doors.arriving import Arriving
from mtl.doors.budget import Budget
from mtl.doors.limits import (
    DOOR_ARRIVING_FREE,
    DOOR_ARRIVING_STEP,
    DOOR_STALL_S,
    WS_CLOSE_S,
    WS_FRAGMENTS,
    WS_PING_S,
    WS_WRITE,
)
from mtl.doors.websocket import WebSocket
from mtl.errors import Malformed
from tests.support.virtual_time import idle, in_virtual_time, now

LARGEST = 1000

DOCUMENTED = {
    "client": {"ClientProtocol"},
    "exceptions": {"NegotiationError"},
    "frames": {"Close", "CloseCode", "Frame", "Opcode"},
    "http11": {"Request", "Response"},
    "protocol": {"SEND_EOF", "State"},
    "server": {"ServerProtocol"},
    "typing": {"BytesLike", "Subprotocol"},
    "uri": {"parse_uri"},
    "the attributes of a protocol": {
        *("accept", "close_exc", "close_expected", "connect", "data_to_send", "events_received", "fail"),
        *("handshake_exc", "receive_data", "receive_eof", "reject", "send_binary", "send_close", "send_ping"),
        *("send_request", "send_response", "send_text", "state"),
    },
}
"""What the reference of the library has, by modules: its pages Sans-I/O, Data structures, Types and Exceptions."""


class FakeSocket:
    def setsockopt(self, *option: int) -> None:
        """Forget the option."""


class FakeTransport(asyncio.Transport):
    """Keeps what is written. The peer reads it when the test says so."""

    def __init__(self, end: WebSocket, *, half_closes: bool) -> None:
        super().__init__({"socket": FakeSocket(), "peername": ("192.0.2.1", 7)})
        self.end = end
        self.writes: list[bytes] = []
        self.half_closes = half_closes
        self.output_ended = False
        self.reads = True
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (WS_WRITE, None)

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        assert not self.output_ended
        self.writes.append(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return self.half_closes

    def write_eof(self) -> None:
        self.output_ended = True

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.end.connection_lost, None)

    abort = close


class Opened(WebSocket):
    """An end that was opened."""

    def receive_handshake(self, event: Request | Response) -> None:
        raise AssertionError


class HeldOpen(Opened):
    """An end that waits with the answer to a Close."""

    def __init__(self, protocol: ServerProtocol, silence: float | None = None) -> None:
        super().__init__(protocol, silence)
        self._holds_answer = True

    def answer_close(self) -> None:
        self._holds_answer = False
        self._flush()


class Ends:
    """A door's end, and its peer."""

    def __init__(
        self,
        kind: type[Opened] = Opened,
        silence: float | None = None,
        *,
        half_closes: bool = True,
        largest: int = LARGEST,
    ) -> None:
        self.ours = kind(ServerProtocol(state=State.OPEN, max_size=largest), silence)
        self.rest = b""
        self.transport = FakeTransport(self.ours, half_closes=half_closes)
        self.ours.connection_made(self.transport)
        self.peer = ClientProtocol(parse_uri("ws://door"), state=State.OPEN, max_size=None)

    def deliver(self) -> None:
        """What the peer has sent arrives together."""
        self.ours.data_received(b"".join(self.peer.data_to_send()))

    def is_read(self) -> bool:
        """Whether octets of the peer are read from the socket."""
        return self.transport.reads

    def taken(self) -> list[Frame]:
        """The frames that the peer reads."""
        writes, self.transport.writes = self.transport.writes, []
        self.peer.receive_data(b"".join(writes))
        return cast("list[Frame]", self.peer.events_received())


def closes(frames: list[Frame]) -> list[int]:
    """The codes of the Closes among them."""
    return [int.from_bytes(frame.data[:2]) for frame in frames if frame.opcode is Opcode.CLOSE]


# --- receiving ----------------------------------------------------------------------------------------------


@in_virtual_time
async def test_messages_that_arrive_together_are_received_together() -> None:
    ends = Ends()
    ends.peer.send_text("größe".encode())
    ends.peer.send_binary(b"1")
    ends.peer.send_binary(b"")
    ends.deliver()
    assert await ends.ours.messages() == ["größe", b"1", b""]
    waiting = asyncio.create_task(ends.ours.messages())
    await idle()
    assert not waiting.done()
    ends.peer.send_text(b"")
    ends.deliver()
    assert await waiting == [""]


@in_virtual_time
async def test_fragments_are_joined() -> None:
    ends = Ends()
    for fragments in ([b"gr\xc3", b"\xb6", b"\xc3\x9fe"], [b"", b""], [b""] * WS_FRAGMENTS):
        first, *others = fragments
        ends.peer.send_text(first, fin=False)
        for fragment in others[:-1]:
            ends.peer.send_continuation(fragment, fin=False)
            ends.deliver()
        ends.peer.send_continuation(others[-1], fin=True)
        ends.deliver()
        assert await ends.ours.messages() == [b"".join(fragments).decode()]


@in_virtual_time
async def test_the_cost_of_a_fragment_does_not_grow_with_their_number() -> None:
    def cost(messages: int, fragments: int) -> float:
        octets = b"\x02\x80\0\0\0\0" + b"\0\x80\0\0\0\0" * (fragments - 2) + b"\x80\x80\0\0\0\0"
        ends, began = Ends(), process_time()
        ends.ours.data_received(octets * messages)
        return process_time() - began

    assert min(cost(1, 4000) for _ in range(3)) < 5 * min(cost(100, 40) for _ in range(3))


@in_virtual_time
async def test_the_socket_is_not_read_while_messages_wait() -> None:
    ends = Ends()
    for readable in (True, False, False):
        ends.peer.send_binary(b"1")
        ends.deliver()
        assert ends.is_read() is readable
    await ends.ours.messages()
    assert ends.is_read()


@pytest.mark.parametrize(
    ("octets", "code", "words"),
    [
        (b"\x81\x81\0\0\0\0\xff\x82\x81\0\0\0\x002", CloseCode.INVALID_DATA, "a text message is UTF-8"),
        (b"\x02\x80\0\0\0\0" + b"\0\x80\0\0\0\0" * 10_000, CloseCode.MESSAGE_TOO_BIG, "4096 fragments"),
        (b"\x82\xfe\x03\xe9\0\0\0\0", CloseCode.MESSAGE_TOO_BIG, "breaks RFC 6455"),
        (b"\x83\x80\0\0\0\0", CloseCode.PROTOCOL_ERROR, "breaks RFC 6455"),
    ],
    ids=["not UTF-8", "fragments", "too large", "opcode"],
)
@in_virtual_time
async def test_an_invalid_message_is_answered_with_a_close_and_ends_the_messages(
    octets: bytes, code: CloseCode, words: str
) -> None:
    ends = Ends()
    ends.ours.data_received(b"\x82\x81\0\0\0\x001" + octets)
    assert closes(ends.taken()) == [code]
    assert ends.transport.output_ended
    assert await ends.ours.messages() == [b"1"]
    for _ in range(2):
        with pytest.raises(Malformed, match=words) as refused:
            await ends.ours.messages()
        assert getattr(refused.value, "code", code) == code
    await idle()
    assert not ends.transport.closed
    await asyncio.sleep(WS_CLOSE_S)
    assert ends.transport.closed


@in_virtual_time
async def test_after_the_end_messages_are_received_that_came_before_it() -> None:
    for ending in ("stop_receiving", "drop", "eof_received"):
        ends = Ends()
        ends.peer.send_binary(b"1")
        ends.deliver()
        getattr(ends.ours, ending)()
        await idle()
        assert await ends.ours.messages() == [b"1"]
        ends.transport.abort()
        assert [await ends.ours.messages() for _ in range(2)] == [[], []]


@in_virtual_time
async def test_dropped_input_is_read() -> None:
    ends = Ends()
    for _ in range(5):
        ends.peer.send_binary(b"1")
    ends.deliver()
    assert not ends.is_read()
    ends.ours.drop_input()
    assert ends.is_read()
    ends.peer.send_binary(b"2")
    ends.deliver()
    assert await ends.ours.messages() == []


# --- the room for an incomplete message --------------------------------------------------------------------------


def begun(ends: Ends, room: Budget) -> None:
    """A large message begins at a door whose room is bounded."""
    ends.ours.arriving = ends.ours.arriving or Arriving(room, "alice")
    ends.peer.send_binary(bytes(2 * DOOR_ARRIVING_FREE))
    octets = b"".join(ends.peer.data_to_send())
    ends.rest = octets[DOOR_ARRIVING_FREE + 1 :]
    ends.ours.data_received(octets[: DOOR_ARRIVING_FREE + 1])


@in_virtual_time
async def test_a_large_message_without_room_is_not_read_until_there_is_room() -> None:
    room = Budget(DOOR_ARRIVING_STEP)
    first, second = Ends(largest=4 * DOOR_ARRIVING_FREE), Ends(largest=4 * DOOR_ARRIVING_FREE)
    begun(first, room)
    begun(second, room)
    assert (first.is_read(), second.is_read()) == (True, False)
    first.ours.data_received(first.rest)
    assert await first.ours.messages() == [bytes(2 * DOOR_ARRIVING_FREE)]
    await idle()
    assert (first.is_read(), second.is_read()) == (False, False), "the message is not processed"
    processed = asyncio.create_task(first.ours.messages())
    await idle()
    assert (first.is_read(), second.is_read()) == (True, True)
    processed.cancel()
    assert room.held == DOOR_ARRIVING_STEP
    second.ours.connection_lost(None)
    assert room.held == 0


@in_virtual_time
async def test_octets_that_the_receiver_keeps_need_room_too() -> None:
    """One reservation counts for all: two of one connection could wait for each other."""
    room = Budget(DOOR_ARRIVING_STEP)
    ends = Ends(largest=4 * DOOR_ARRIVING_FREE)
    ends.ours.arriving = Arriving(room, "alice")
    ends.ours.retained = DOOR_ARRIVING_FREE + 1
    waiting = asyncio.create_task(ends.ours.messages())
    await idle()
    assert (ends.is_read(), room.held) == (True, DOOR_ARRIVING_STEP)
    begun(ends, room)
    ends.ours.data_received(ends.rest)
    assert len(await waiting) == 1
    assert room.held == DOOR_ARRIVING_STEP
    other = Ends()
    other.ours.arriving = Arriving(room, "alice")
    other.ours.retained = DOOR_ARRIVING_FREE + 1
    waiting = asyncio.create_task(other.ours.messages())
    await idle()
    assert not other.is_read()
    waiting.cancel()
    other.ours.connection_lost(None)


@in_virtual_time
async def test_a_connection_that_is_lost_does_not_wait_for_room() -> None:
    room = Budget(DOOR_ARRIVING_STEP)
    first, second = Ends(largest=4 * DOOR_ARRIVING_FREE), Ends(largest=4 * DOOR_ARRIVING_FREE)
    begun(first, room)
    begun(second, room)
    second.ours.connection_lost(None)
    await idle()
    assert (room.held, room.waiting) == (DOOR_ARRIVING_STEP, 0)


@in_virtual_time
async def test_a_message_that_stops_arriving_ends_the_connection_and_a_slow_one_does_not() -> None:
    ends = Ends(largest=4 * DOOR_ARRIVING_FREE)
    begun(ends, Budget(DOOR_ARRIVING_STEP))
    for octet in ends.rest[:3]:
        await asyncio.sleep(0.9 * DOOR_STALL_S)
        ends.ours.data_received(bytes((octet,)))
    assert not closes(ends.taken())
    await asyncio.sleep(1.1 * DOOR_STALL_S)
    assert closes(ends.taken()) == [CloseCode.TRY_AGAIN_LATER]
    with pytest.raises(Malformed, match="nothing of a begun message"):
        await ends.ours.messages()


# --- sending ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_messages_are_sent_with_one_write() -> None:
    ends = Ends()
    await ends.ours.send_all(["a", b"b"])
    await ends.ours.send(b"c")
    assert len(ends.transport.writes) == 2
    assert ends.ours.unsent == 9
    sent = [(frame.opcode, frame.data) for frame in ends.taken()]
    assert sent == [(Opcode.TEXT, b"a"), (Opcode.BINARY, b"b"), (Opcode.BINARY, b"c")]


@in_virtual_time
async def test_a_sender_waits_for_a_slow_peer() -> None:
    ends = Ends()
    for ending in ("resume_writing", "drop"):
        ends.ours.pause_writing()
        sending = asyncio.create_task(ends.ours.send("a"))
        await idle()
        assert not sending.done()
        getattr(ends.ours, ending)()
        await asyncio.wait({sending})
        assert isinstance(sending.exception(), ConnectionResetError) is (ending == "drop")


@in_virtual_time
async def test_nothing_is_sent_after_the_end() -> None:
    ends = Ends()
    closing = asyncio.create_task(ends.ours.close())
    await idle()
    with pytest.raises(ConnectionResetError):
        await ends.ours.send("a")
    ends.ours.write(["a"])
    assert [frame.opcode for frame in ends.taken()] == [Opcode.CLOSE]
    ends.transport.abort()
    await closing
    with pytest.raises(ConnectionResetError):
        await ends.ours.send("a")
    ends.ours.write(["a"])
    assert ends.transport.writes == []


# --- pings --------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_ping_is_sent_from_time_to_time() -> None:
    ends = Ends(silence=3 * WS_PING_S)
    ends.ours.start_pings()
    for _ in range(5):
        await asyncio.sleep(WS_PING_S)
        await idle()
        assert [frame.opcode for frame in ends.taken()] == [Opcode.PING]
        ends.deliver()
    assert not ends.transport.closed


@pytest.mark.parametrize("silence", [None, 3 * WS_PING_S])
@in_virtual_time
async def test_a_peer_that_answers_no_ping_is_dropped(silence: float | None) -> None:
    ends = Ends(silence=silence)
    ends.ours.start_pings()
    try:
        async with asyncio.timeout(10 * WS_PING_S):
            await ends.ours.ended.wait()
    except TimeoutError:
        assert silence is None
    else:
        assert now() == pytest.approx(WS_PING_S + (silence or 0))
    ends.ours.drop()


@in_virtual_time
async def test_pongs_of_a_peer_that_does_not_read_do_not_pile_up() -> None:
    ends = Ends()
    ends.peer.send_ping(b"1")
    ends.deliver()
    assert ends.is_read()
    ends.ours.pause_writing()
    ends.peer.send_ping(b"2")
    ends.deliver()
    assert not ends.is_read()
    assert [frame.data for frame in ends.taken()] == [b"1", b"2"]
    ends.ours.resume_writing()
    assert ends.is_read()


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half_closes", [True, False])
@in_virtual_time
async def test_a_close_is_answered(*, half_closes: bool) -> None:
    """Without halves of an end, as with TLS, the transport is closed."""
    ends = Ends(half_closes=half_closes)
    ends.peer.send_close(CloseCode.GOING_AWAY, "bye")
    ends.deliver()
    assert ends.ours.closed_by_peer
    assert await ends.ours.messages() == []
    assert closes(ends.taken()) == [CloseCode.GOING_AWAY]
    assert (ends.transport.output_ended, ends.transport.closed) == (half_closes, not half_closes)
    await ends.ours.wait_closed()
    assert now() == (WS_CLOSE_S if half_closes else 0)
    assert ends.ours.close_received is not None
    assert (ends.ours.close_received.code, ends.ours.close_received.reason) == (CloseCode.GOING_AWAY, "bye")


@in_virtual_time
async def test_the_answer_to_a_close_can_wait() -> None:
    ends = Ends(HeldOpen)
    assert isinstance(ends.ours, HeldOpen)
    ends.peer.send_close(CloseCode.NORMAL_CLOSURE)
    ends.deliver()
    await asyncio.sleep(10 * WS_CLOSE_S)
    assert ends.transport.writes == []
    await ends.ours.send("a")
    ends.ours.answer_close()
    assert closes(ends.taken()) == [CloseCode.NORMAL_CLOSURE]
    await asyncio.sleep(WS_CLOSE_S)
    await idle()
    assert ends.ours.ended.is_set()


@in_virtual_time
async def test_a_close_ends_with_its_answer() -> None:
    ends = Ends(HeldOpen)
    closing = asyncio.create_task(ends.ours.close(CloseCode.PROTOCOL_ERROR, "why"))
    await idle()
    assert closes(ends.taken()) == [CloseCode.PROTOCOL_ERROR]
    ends.deliver()
    assert ends.transport.output_ended
    ends.transport.abort()
    await closing
    assert now() < WS_CLOSE_S
    await ends.ours.close()
    assert ends.transport.writes == []


@in_virtual_time
async def test_a_close_without_answer_ends_after_some_time() -> None:
    ends = Ends()
    await ends.ours.close()
    assert now() == WS_CLOSE_S
    assert ends.transport.closed
    assert ends.ours.close_received is None


@in_virtual_time
async def test_an_end_without_close_sends_none() -> None:
    ends = Ends()
    ending = asyncio.create_task(ends.ours.end_without_close())
    await idle()
    assert ends.transport.output_ended
    ends.peer.send_ping(b"")
    ends.peer.send_close(CloseCode.NORMAL_CLOSURE)
    ends.deliver()
    assert ends.transport.writes == []
    ends.ours.eof_received()
    ends.transport.close()
    await ending
    assert now() < WS_CLOSE_S
    ends.ours.drop()


# --- the library --------------------------------------------------------------------------------------------


def test_only_documented_parts_of_the_library_are_used() -> None:
    """Also of the clients and doors that use this module."""
    used: dict[str, set[str]] = {name: set() for name in DOCUMENTED}
    for path in Path(cast("Any", mtl).__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "websockets":
                    used[module.partition(".")[2]] |= {alias.name for alias in node.names}
                case ast.Import():
                    assert all(alias.name.partition(".")[0] != "websockets" for alias in node.names), path
                case ast.Attribute(value=ast.Attribute(attr="_protocol")) if "websocket" in path.name:
                    used["the attributes of a protocol"].add(node.attr)
    assert used == DOCUMENTED

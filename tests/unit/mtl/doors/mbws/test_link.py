"""The client's side of a connection, at a door that the test speaks for; time is virtual."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from mtl.doors.limits import MBWS_ACK_S, MBWS_CLIENT_OCTETS, MBWS_CLIENT_WINDOW, MBWS_CONNECT_S, WS_WRITE
from mtl.doors.mbws.codec import Acknowledge, Connect, Kind, Message, encode
from mtl.doors.mbws.link import LinkTarget, MbwsLink
from mtl.doors.mbws.session import LARGEST, MBWS
from mtl.doors.mbws.subscription_query import SubscriptionQuery
from mtl.errors import ClientFailed, Closed, MtlError, Refused, Unreachable
from mtl.limits import RECONNECT_DELAY_S
from mtl.wire.control import OVERLOADED
from tests.support.scripted_mbws_door import ScriptedDoor, ScriptedSocket
from tests.support.virtual_time import idle, in_virtual_time, now

DEADLINE_S = 100.0
TARGET = LinkTarget("ws://door", Kind.BINARY, None, DEADLINE_S)
MANY = MBWS_CLIENT_WINDOW // 8
"""This many consumed messages are acknowledged at once."""
FIRST, SECOND = RECONNECT_DELAY_S, 2 * RECONNECT_DELAY_S
"""The pauses after failed attempts to reconnect."""


class Owner:
    """The owner of a link. `batches` are the bodies that it got together, with their beginning. While `ready` is not
    set it handles no more.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[list[bytes], int]] = []
        self.errors: list[MtlError] = []
        self.ready = asyncio.Event()
        self.ready.set()

    async def handle(self, messages: Sequence[Message], beginning: int) -> None:
        self.batches.append(([message.body for message in messages], beginning))
        await self.ready.wait()


@asynccontextmanager
async def linked(
    target: LinkTarget = TARGET,
    owner: Owner | None = None,
    subscriptions: Callable[[], SubscriptionQuery] = SubscriptionQuery,
) -> AsyncIterator[MbwsLink]:
    owner = owner or Owner()
    link = MbwsLink(target, subscriptions, owner.handle, owner.errors.append)
    try:
        yield link
    finally:
        await link.close()


def messages(*numbers: int) -> list[Message]:
    return [Message(("a",), b"%d" % n) for n in numbers]


async def sent(link: MbwsLink, *numbers: int, size: int = 1) -> list[asyncio.Future[None]]:
    """Send messages; `size` is what each takes of the limit on octets."""
    return [await link.send(encode(message, Kind.BINARY), size) for message in messages(*numbers)]


async def taken(socket: ScriptedSocket, count: int) -> list[int]:
    """The numbers of the next frames of the client, which are messages."""
    found = []
    for _ in range(count):
        frame = await socket.frame()
        assert isinstance(frame, Message)
        found.append(int(frame.body))
    return found


def done(futures: Sequence[asyncio.Future[None]]) -> list[bool]:
    return [future.done() for future in futures]


def held(link: MbwsLink) -> tuple[int, int]:
    """The messages and the octets that the limits count."""
    return link.room.held, link.octets.held


# --- opening ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MBWS-08")
@in_virtual_time
async def test_a_new_connection_is_requested_without_a_name(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.socket()
        assert await socket.frame() == Connect()
        await idle()
        assert not link.opened.done()
        socket.deliver(Connect("one"))
        await link.opened
        assert (link.name, link.beginnings) == ("one", 1)


@in_virtual_time
async def test_a_websocket_is_opened_with_the_subprotocol_and_the_credentials(door: ScriptedDoor) -> None:
    tls = ssl.create_default_context()
    async with linked(LinkTarget("wss://door", Kind.BINARY, tls, DEADLINE_S, "Basic x")):
        socket = await door.socket()
        assert socket.url == "wss://door"
        assert socket.options == {
            "tls": tls,
            "subprotocol": MBWS,
            "largest": LARGEST,
            "authorization": "Basic x",
        }


@in_virtual_time
async def test_each_url_has_the_subscriptions_of_its_time(door: ScriptedDoor) -> None:
    starts = iter([5, 7])
    async with linked(subscriptions=lambda: SubscriptionQuery({"a": next(starts)})):
        first = await door.connected()
        first.lose()
        second = await door.socket()
        assert [first.url, second.url] == ["ws://door?address=a&from=5", "ws://door?address=a&from=7"]


@pytest.mark.parametrize(("kind", "form"), [(Kind.BINARY, bytes), (Kind.TEXT, str)])
@in_virtual_time
async def test_frames_have_the_form_of_the_target(door: ScriptedDoor, kind: Kind, form: type) -> None:
    async with linked(LinkTarget("ws://door", kind, None, DEADLINE_S)) as link:
        socket = await door.connected()
        socket.deliver(*messages(1))
        await idle()
        link.count_consumed(1)
        assert await socket.frame() == Acknowledge(1)
        assert [type(message) for write in socket.writes for message in write] == [form, form]


@in_virtual_time
async def test_a_door_that_is_absent_at_first_is_tried_again(door: ScriptedDoor) -> None:
    door.failures.extend([ConnectionRefusedError(), TimeoutError()])
    async with linked() as link:
        await door.connected()
        await link.opened
        assert door.attempts == pytest.approx([0, FIRST, FIRST + SECOND])


@in_virtual_time
async def test_a_door_that_does_not_answer_is_unreachable_after_the_deadline(door: ScriptedDoor) -> None:
    owner = Owner()
    door.failures.extend([ConnectionRefusedError()] * 1000)
    async with linked(owner=owner) as link:
        with pytest.raises(Unreachable, match=r"ws://door .*connecting to an MBWS door"):
            await link.opened
        assert DEADLINE_S < now() < DEADLINE_S + 2
        assert owner.errors == [link.error]
    assert len(owner.errors) == 2
    assert owner.errors[0] is owner.errors[1]


@in_virtual_time
async def test_an_attempt_to_open_a_websocket_has_a_limited_time(door: ScriptedDoor) -> None:
    door.answers = False
    async with linked():
        await asyncio.sleep(MBWS_CONNECT_S + 1)
        assert door.attempts == pytest.approx([0, MBWS_CONNECT_S + FIRST])


@in_virtual_time
async def test_a_door_that_does_not_answer_a_connect_in_time_is_disconnected(door: ScriptedDoor) -> None:
    async with linked():
        first = await door.socket()
        await asyncio.sleep(MBWS_CONNECT_S - 1)
        assert not first.ended.is_set()
        second = await door.socket()
        assert first.ended.is_set()
        second.lose()
        await door.socket()
        first_pause = MBWS_CONNECT_S + FIRST
        assert door.attempts == pytest.approx([0, first_pause, first_pause + SECOND])


@in_virtual_time
async def test_a_session_may_be_silent_for_any_time(door: ScriptedDoor) -> None:
    async with linked():
        socket = await door.connected()
        await asyncio.sleep(10 * MBWS_CONNECT_S)
        assert not socket.ended.is_set()
        assert door.attempts == [0]


@in_virtual_time
async def test_a_door_that_refuses_the_client_is_not_tried_again(door: ScriptedDoor) -> None:
    door.failures.append(Refused(403, "refused"))
    async with linked() as link:
        with pytest.raises(Refused, match="403"):
            await link.opened
        await asyncio.sleep(DEADLINE_S)
        assert door.attempts == [0]


@in_virtual_time
async def test_a_full_door_refuses_a_client_that_opens(door: ScriptedDoor) -> None:
    door.failures.append(Refused(503, OVERLOADED))
    async with linked() as link:
        with pytest.raises(Refused, match="503"):
            await link.opened


@in_virtual_time
async def test_a_client_that_was_connected_waits_for_a_full_door(door: ScriptedDoor) -> None:
    async with linked() as link:
        first = await door.connected()
        await link.opened
        door.failures.extend([Refused(503, OVERLOADED), Refused(503, OVERLOADED)])
        first.lose()
        await door.recovered("one", 0)
        await idle()
        assert link.beginnings == 1
        assert door.attempts == pytest.approx([0, FIRST, FIRST + SECOND, FIRST + SECOND * 3])


@in_virtual_time
async def test_a_client_that_was_connected_ends_when_the_door_refuses_it(door: ScriptedDoor) -> None:
    async with linked() as link:
        first = await door.connected()
        await link.opened
        door.failures.append(Refused(403, "refused"))
        first.lose()
        with pytest.raises(Refused, match="403"):
            await link.flush(1)


# --- sending ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_messages_that_were_sent_before_the_connection_follow_it_in_order(door: ScriptedDoor) -> None:
    async with linked() as link:
        await sent(link, 1, 2)
        socket = await door.connected()
        assert await taken(socket, 2) == [1, 2]
        await sent(link, 3)
        assert await taken(socket, 1) == [3]
        assert link.sent == 3


@pytest.mark.requirement("MBWS-19")
@in_virtual_time
async def test_an_acknowledgement_settles_all_messages_up_to_its_number(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        futures = await sent(link, 1, 2, 3, size=10)
        assert await taken(socket, 3) == [1, 2, 3]
        assert held(link) == (3, 30)
        socket.deliver(Acknowledge(2))
        await idle()
        assert done(futures) == [True, True, False]
        assert held(link) == (1, 10)
        socket.deliver(Acknowledge(1), Acknowledge(3))
        await idle()
        assert done(futures) == [True, True, True]
        assert held(link) == (0, 0)
        await sent(link, 4)
        assert await taken(socket, 1) == [4]


@in_virtual_time
async def test_one_write_has_all_waiting_messages_up_to_its_limit(door: ScriptedDoor) -> None:
    async with linked() as link:
        await sent(link, 1, 2, 3, size=WS_WRITE // 2)
        await sent(link, 4, size=WS_WRITE // 2 - 1)
        await sent(link, 5)
        socket = await door.connected()
        await taken(socket, 5)
        assert [len(write) for write in socket.writes] == [1, 2, 3]


@in_virtual_time
async def test_messages_wait_for_a_door_that_does_not_read(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        socket.writable.clear()
        await sent(link, 1, 2, size=WS_WRITE)
        assert await taken(socket, 1) == [1]
        await idle()
        assert socket.frames == []
        socket.writable.set()
        assert await taken(socket, 1) == [2]


@in_virtual_time
async def test_a_full_window_waits_for_an_acknowledgement(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        await sent(link, *range(MBWS_CLIENT_WINDOW))
        waiting = asyncio.create_task(sent(link, MBWS_CLIENT_WINDOW))
        await taken(socket, MBWS_CLIENT_WINDOW)
        await idle()
        assert not waiting.done()
        socket.deliver(Acknowledge(1))
        assert await taken(socket, 1) == [MBWS_CLIENT_WINDOW]


@in_virtual_time
async def test_octets_under_way_are_limited(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        await sent(link, 1, size=MBWS_CLIENT_OCTETS - 1)
        waiting = asyncio.create_task(sent(link, 2, size=2))
        assert await taken(socket, 1) == [1]
        await idle()
        assert not waiting.done()
        socket.deliver(Acknowledge(1))
        assert await taken(socket, 1) == [2]
        assert held(link) == (1, 2)


@in_virtual_time
async def test_a_send_that_is_cancelled_at_a_full_window_holds_no_octets(door: ScriptedDoor) -> None:
    async with linked() as link:
        await sent(link, *range(MBWS_CLIENT_WINDOW))
        waiting = asyncio.create_task(sent(link, MBWS_CLIENT_WINDOW, size=7))
        await idle()
        assert held(link) == (MBWS_CLIENT_WINDOW, MBWS_CLIENT_WINDOW + 7)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert held(link) == (MBWS_CLIENT_WINDOW, MBWS_CLIENT_WINDOW)
        assert link.sent == MBWS_CLIENT_WINDOW


@in_virtual_time
async def test_a_flush_waits_for_the_messages_that_it_names(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        await link.flush(0)
        await sent(link, 1, 2, 3)
        flushes = [asyncio.create_task(link.flush(count)) for count in (1, 2, 3)]
        await taken(socket, 3)
        await idle()
        assert [task.done() for task in flushes] == [False, False, False]
        socket.deliver(Acknowledge(2))
        await idle()
        assert [task.done() for task in flushes] == [True, True, False]
        socket.deliver(Acknowledge(3))
        await flushes[2]


@in_virtual_time
async def test_a_flush_counts_messages_of_all_connections(door: ScriptedDoor) -> None:
    async with linked() as link:
        first = await door.connected()
        await sent(link, 1, 2)
        await taken(first, 2)
        first.deliver(Acknowledge(1))
        await link.flush(1)
        first.lose()
        second = await door.connected("two")
        assert await taken(second, 1) == [2]
        second.deliver(Acknowledge(1))
        await link.flush(2)


# --- receiving ----------------------------------------------------------------------------------------------


@in_virtual_time
async def test_messages_that_arrive_together_are_handled_together(door: ScriptedDoor) -> None:
    owner = Owner()
    async with linked(owner=owner) as link:
        socket = await door.connected()
        (future,) = await sent(link, 1)
        await taken(socket, 1)
        socket.deliver(*messages(1), Acknowledge(1), *messages(2))
        await idle()
        assert owner.batches == [([b"1", b"2"], 1)]
        assert future.done()
        socket.deliver(Acknowledge(1))
        socket.deliver(*messages(3))
        await idle()
        assert owner.batches[1:] == [([b"3"], 1)]


@in_virtual_time
async def test_acknowledgements_alone_are_not_passed_to_the_owner(door: ScriptedDoor) -> None:
    owner = Owner()
    async with linked(owner=owner) as link:
        socket = await door.connected()
        await sent(link, 1)
        await taken(socket, 1)
        socket.deliver(Acknowledge(1))
        await link.flush(1)
        await idle()
        assert owner.batches == []


@in_virtual_time
async def test_nothing_is_read_while_the_owner_is_busy(door: ScriptedDoor) -> None:
    owner = Owner()
    owner.ready.clear()
    async with linked(owner=owner):
        socket = await door.connected()
        socket.deliver(*messages(1))
        await idle()
        socket.deliver(*messages(2))
        await idle()
        assert owner.batches == [([b"1"], 1)]
        assert len(socket.unread) == 1
        owner.ready.set()
        await idle()
        assert owner.batches[1:] == [([b"2"], 1)]


@in_virtual_time
async def test_a_link_without_a_handler_counts_messages(door: ScriptedDoor) -> None:
    link = MbwsLink(TARGET)
    first = await door.connected()
    first.deliver(*messages(1, 2))
    await idle()
    first.lose()
    _, connect = await door.recovered("one", 0)
    assert connect.numbers[0] == 2
    await link.close()


# --- acknowledgements ---------------------------------------------------------------------------------------


@pytest.mark.requirement("MBWS-18", "MBWS-19")
@in_virtual_time
async def test_consumed_messages_are_acknowledged_together_after_a_delay(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        socket.deliver(*messages(1, 2, 3, 4))
        await idle()
        begun = now()
        link.count_consumed(1)
        await asyncio.sleep(MBWS_ACK_S * 0.6)
        link.count_consumed(1)
        assert await socket.frame() == Acknowledge(2)
        assert now() == pytest.approx(begun + MBWS_ACK_S)
        await asyncio.sleep(MBWS_ACK_S * 0.2)
        third = now()
        link.count_consumed(1)
        assert await socket.frame() == Acknowledge(3)
        assert now() == pytest.approx(third + MBWS_ACK_S), "the second message began no timer of its own"
        await asyncio.sleep(10 * MBWS_ACK_S)
        assert socket.frames == []


@pytest.mark.requirement("MBWS-18")
@in_virtual_time
async def test_many_consumed_messages_are_acknowledged_at_once(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        socket.deliver(*messages(*range(2 * MANY)))
        await idle()
        begun = now()
        for count in (MANY, 2 * MANY):
            for _ in range(MANY - 1):
                link.count_consumed(1)
            await idle()
            assert socket.frames == []
            link.count_consumed(1)
            assert await socket.frame() == Acknowledge(count)
        assert now() - begun < MBWS_ACK_S / 2


@pytest.mark.requirement("MBWS-18")
@in_virtual_time
async def test_a_message_of_an_earlier_connection_is_not_acknowledged(door: ScriptedDoor) -> None:
    async with linked() as link:
        first = await door.connected()
        first.deliver(*messages(1, 2, 3))
        await idle()
        for _ in range(2):
            link.count_consumed(1)
        assert await first.frame() == Acknowledge(2)
        first.lose()
        second = await door.connected("two")
        await idle()
        for _ in range(MANY):
            link.count_consumed(1)
        await asyncio.sleep(2 * MBWS_ACK_S)
        assert second.frames == []
        second.deliver(*messages(3))
        await idle()
        link.count_consumed(2)
        assert await second.frame() == Acknowledge(1)


@pytest.mark.requirement("MBWS-18")
@in_virtual_time
async def test_messages_that_were_consumed_during_a_loss_are_acknowledged_in_the_next_session(
    door: ScriptedDoor,
) -> None:
    async with linked() as link:
        first = await door.connected()
        first.deliver(*messages(1, 2))
        await idle()
        first.lose()
        await idle()
        link.count_consumed(1)
        second, _ = await door.recovered("one", 0)
        assert await second.frame() == Acknowledge(1)


# --- a lost session -----------------------------------------------------------------------------------------


@pytest.mark.requirement("MBWS-10", "MBWS-21", "MBWS-25", "MBWS-30")
@in_virtual_time
async def test_a_connection_continues_after_a_loss_behind_the_messages_of_both_sides(
    door: ScriptedDoor,
) -> None:
    owner = Owner()
    async with linked(owner=owner) as link:
        first = await door.connected()
        futures = await sent(link, 1, 2, 3, 4)
        await taken(first, 4)
        first.deliver(Acknowledge(1), *messages(1, 2, 3))
        await futures[0]
        first.lose()
        second, connect = await door.recovered("one", 3)
        assert connect == Connect("one", (3, 2, 4))
        assert await taken(second, 1) == [4]
        assert done(futures) == [True, True, True, False]
        assert held(link) == (1, 1)
        second.deliver(*messages(4))
        await idle()
        assert owner.batches == [([b"1", b"2", b"3"], 1), ([b"4"], 1)]
        assert (link.name, link.beginnings) == ("one", 1)
        second.lose()
        third, connect = await door.recovered("one", 4)
        assert connect == Connect("one", (4, 4, 4))
        await link.flush(4)
        await idle()
        assert third.frames == []
        assert link.beginnings == 1


@pytest.mark.requirement("MBWS-17", "MBWS-32")
@in_virtual_time
async def test_a_new_connection_instead_of_a_recovery_repeats_the_unacknowledged_messages(
    door: ScriptedDoor,
) -> None:
    owner = Owner()
    async with linked(owner=owner) as link:
        first = await door.connected()
        futures = await sent(link, 1, 2, 3)
        await taken(first, 3)
        first.deliver(Acknowledge(1), *messages(1))
        await futures[0]
        first.lose()
        second = await door.connected("two")
        assert await taken(second, 2) == [2, 3]
        assert (link.name, link.beginnings) == ("two", 2)
        second.deliver(Acknowledge(1), *messages(1, 2))
        await idle()
        assert done(futures) == [True, True, False]
        assert owner.batches == [([b"1"], 1), ([b"1", b"2"], 2)]
        second.lose()
        _, connect = await door.recovered("two", 1)
        assert connect == Connect("two", (2, 2, 2))


@in_virtual_time
async def test_a_message_that_was_sent_during_a_loss_is_written_once(door: ScriptedDoor) -> None:
    """The task that wrote to the lost WebSocket takes no more messages."""
    async with linked() as link:
        first = await door.connected()
        await idle()
        first.lose()
        await idle()
        await sent(link, 1)
        await idle()
        second, _ = await door.recovered("one", 0)
        assert await taken(second, 1) == [1]
        assert first.frames == []


@in_virtual_time
async def test_a_failed_write_is_repeated_in_the_next_session(door: ScriptedDoor) -> None:
    """The write fails before the end of the WebSocket is read."""
    owner = Owner()
    owner.ready.clear()
    async with linked(owner=owner) as link:
        first = await door.connected()
        first.deliver(*messages(1))
        await idle()
        first.lose()
        await sent(link, 1)
        await idle()
        owner.ready.set()
        second, connect = await door.recovered("one", 0)
        assert connect == Connect("one", (1, 1, 1))
        assert await taken(second, 1) == [1]


@pytest.mark.requirement("MBWS-11")
@pytest.mark.parametrize("code", [1000, 1001, 1011, 1012, 1013])
@in_virtual_time
async def test_a_new_connection_follows_a_close_that_is_no_error_of_the_client(
    door: ScriptedDoor, code: int
) -> None:
    async with linked() as link:
        first = await door.connected()
        await sent(link, 1)
        await taken(first, 1)
        first.end(code)
        second = await door.socket()
        assert await second.accept("two") == Connect()
        assert await taken(second, 1) == [1]
        assert link.beginnings == 2


@pytest.mark.parametrize("code", [1002, 1003, 1007, 1008, 1009, 1010, 3000, 4000])
@pytest.mark.parametrize("answered", [False, True])
@in_virtual_time
async def test_a_close_about_an_error_of_the_client_ends_it(
    door: ScriptedDoor, code: int, answered: bool
) -> None:
    async with linked() as link:
        socket = await (door.connected() if answered else door.socket())
        await idle()
        socket.end(code, "no such resource")
        with pytest.raises(Refused, match=f"400 closed: ws://door closed with {code}: no such resource"):
            await link.flush(1)
        await asyncio.sleep(DEADLINE_S)
        assert door.attempts == [0]


@pytest.mark.parametrize(
    ("event", "pauses"),
    [
        ("loss before the answer", [FIRST, SECOND]),
        ("loss", [FIRST, FIRST]),
        ("close", [FIRST, SECOND]),
        ("close after a message", [FIRST, FIRST]),
        ("close after an acknowledgement", [FIRST, FIRST]),
    ],
)
@in_virtual_time
async def test_pauses_are_short_only_while_connections_make_progress(
    door: ScriptedDoor, event: str, pauses: list[float]
) -> None:
    async with linked() as link:
        await sent(link, 1, 2)
        for _ in pauses:
            socket = await door.socket()
            await idle()
            if event != "loss before the answer":
                await socket.accept(f"new {now()}")
                await taken(socket, 1)
            if event.endswith("message"):
                socket.deliver(*messages(1))
            elif event.endswith("acknowledgement"):
                socket.deliver(Acknowledge(1))
            await idle()
            if event.startswith("close"):
                socket.end(1012)
            else:
                socket.lose()
        await door.socket()
        first, second, third = door.attempts
        assert [second - first, third - second] == pytest.approx(pauses, abs=1e-4)


@in_virtual_time
async def test_the_progress_of_a_former_session_is_none_of_the_next_one(door: ScriptedDoor) -> None:
    async with linked() as link:
        first = await door.connected()
        await sent(link, 1)
        await taken(first, 1)
        first.deliver(Acknowledge(1), *messages(1))
        await link.flush(1)
        first.lose()
        second, _ = await door.recovered("one", 1)
        await idle()
        second.end(1012)
        await door.socket()
        assert door.attempts == pytest.approx([0, FIRST, FIRST + SECOND], abs=1e-4)


# --- errors -------------------------------------------------------------------------------------------------


async def assert_refused_as_malformed(link: MbwsLink, socket: ScriptedSocket, words: str) -> None:
    with pytest.raises(Refused, match=f"400 malformed: ws://door did not send MBWS: .*{words}"):
        await link.flush(link.sent + 1)
    assert socket.closes == [1002]


@pytest.mark.parametrize("message", [b"", b"\x09", "text"])
@pytest.mark.parametrize("answered", [False, True])
@in_virtual_time
async def test_a_door_that_does_not_send_mbws_is_refused(
    door: ScriptedDoor, message: bytes | str, answered: bool
) -> None:
    async with linked() as link:
        socket = await (door.connected() if answered else door.socket())
        socket.deliver_messages(message)
        await assert_refused_as_malformed(link, socket, "")


@in_virtual_time
async def test_a_first_frame_other_than_connect_is_malformed(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.socket()
        socket.deliver(Acknowledge(0))
        await assert_refused_as_malformed(link, socket, "no Acknowledge is expected")


@pytest.mark.parametrize("numbers", [(), (0,)])
@in_virtual_time
async def test_a_reply_without_a_name_is_malformed(door: ScriptedDoor, numbers: tuple[int, ...]) -> None:
    async with linked() as link:
        socket = await door.socket()
        await socket.accept("", *numbers)
        await assert_refused_as_malformed(link, socket, "has no name")


@pytest.mark.parametrize("numbers", [(), (0, 0)])
@in_virtual_time
async def test_a_reply_to_a_reconnect_has_one_number(door: ScriptedDoor, numbers: tuple[int, ...]) -> None:
    async with linked() as link:
        first = await door.connected()
        await idle()
        first.lose()
        second, _ = await door.recovered("one", *numbers)
        await assert_refused_as_malformed(link, second, f"has 1 number, not {len(numbers)}")


@in_virtual_time
async def test_an_acknowledgement_of_a_message_that_was_not_written_is_malformed(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        socket.writable.clear()
        await sent(link, 1, 2, size=WS_WRITE)
        await taken(socket, 1)
        socket.deliver(Acknowledge(2))
        await assert_refused_as_malformed(
            link, socket, "message 2 is acknowledged, 1 is the last that was sent"
        )


@in_virtual_time
async def test_an_error_of_the_owner_ends_the_link_and_is_logged(
    door: ScriptedDoor, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(_: Sequence[Message], __: int) -> None:
        raise ValueError("a bug")

    link = MbwsLink(TARGET, handle=handle)
    socket = await door.connected()
    (future,) = await sent(link, 1)
    socket.deliver(*messages(1))
    with pytest.raises(ClientFailed, match=r"unexpected ValueError in the client: a bug"):
        await future
    assert socket.ended.is_set()
    await idle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert "ValueError: a bug" in caplog.text


@in_virtual_time
async def test_the_end_of_a_link_fails_all_waiting_tasks_with_its_first_error(door: ScriptedDoor) -> None:
    owner = Owner()
    async with linked(owner=owner) as link:
        futures = await sent(link, *range(MBWS_CLIENT_WINDOW), size=2)
        waiting = [asyncio.create_task(task) for task in (sent(link, 0, size=2), link.flush(1))]
        await idle()
        assert held(link) == (MBWS_CLIENT_WINDOW, 2 * MBWS_CLIENT_WINDOW + 2)
        first = Closed("first")
        link.fail(first)
        link.fail(Closed("second"))
        results = await asyncio.gather(*futures, *waiting, link.opened, return_exceptions=True)
        assert set(results) == {first}
        assert held(link) == (0, 0)
        with pytest.raises(Closed, match="first"):
            await sent(link, 1)
        assert held(link) == (0, 0)
        assert owner.errors == [first, first]


# --- the close ----------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_close_drops_unsent_messages_and_ends_all_tasks(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        socket.writable.clear()
        futures = await sent(link, 1, 2, size=WS_WRITE)
        await taken(socket, 1)
        await link.close()
        assert socket.closes == [1000]
        assert all(isinstance(future.exception(), Closed) for future in futures)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await link.close()
        await asyncio.sleep(DEADLINE_S)
        assert socket.closes == [1000]
        assert socket.frames == []
        assert door.attempts == [0]


@in_virtual_time
async def test_a_link_that_is_closed_while_it_opens_ends(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.socket()
        await link.close()
        with pytest.raises(Closed, match="the connection is closed"):
            await link.opened
        assert socket.ended.is_set()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.requirement("MBWS-18")
@in_virtual_time
async def test_a_close_follows_the_acknowledgement_of_all_consumed_messages(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        socket.deliver(*messages(1, 2))
        await idle()
        link.count_consumed(1)
        begun = now()
        await link.close()
        assert now() - begun < MBWS_ACK_S
        assert socket.frames == [Acknowledge(1)]
        assert socket.closes == [1000]


@in_virtual_time
async def test_a_lost_websocket_is_not_closed_again(door: ScriptedDoor) -> None:
    async with linked() as link:
        socket = await door.connected()
        await idle()
        socket.lose()
        await idle()
        await link.close()
        assert socket.closes == []

from __future__ import annotations

import asyncio
import gc
from itertools import count

import pytest

from mtl.doors.clients import (
    AnsweredWriter,
    ContentReader,
    Inbox,
    SendWindow,
    UnansweredContents,
    reconnect_forever,
    settle,
    wait_opened,
)
from mtl.doors.received import Received
from mtl.errors import ClientFailed, Closed, Refused, Unreachable
from mtl.limits import RECONNECT_DELAY_S, RECONNECT_DELAY_TOP_S
from tests.support.aio import in_loop


def future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def turns() -> None:
    """Let all runnable tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


# --- opened, and kept up ------------------------------------------------------------------------------------


class FakeConnection:
    closed = False

    async def close(self) -> None:
        self.closed = True


@in_loop
async def test_a_connection_is_opened_when_it_is_ready() -> None:
    connection, ready = FakeConnection(), future()
    opening = asyncio.create_task(wait_opened(connection, ready))
    await turns()
    assert not opening.done()
    settle(ready)
    assert await opening is connection
    assert not connection.closed


@in_loop
async def test_a_connection_that_fails_to_get_ready_is_closed() -> None:
    connection, ready = FakeConnection(), future()
    settle(ready, Refused(403, "denied"))
    with pytest.raises(Refused):
        await wait_opened(connection, ready)
    assert connection.closed


@in_loop
async def test_a_connection_is_closed_when_its_opening_is_cancelled() -> None:
    connection = FakeConnection()
    opening = asyncio.create_task(wait_opened(connection, future()))
    await turns()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert connection.closed


class Lives:
    """Successive connections with lifetimes in seconds; None is a connection refused at once."""

    def __init__(self, *lives: float | Refused | None) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self._lives = iter(lives)

    async def next(self) -> bool:
        life = next(self._lives, None)
        if isinstance(life, Refused):
            raise life
        self.now += life or 0.0
        return life is not None

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def lived(self, deadline: float) -> None:
        await reconnect_forever(
            self.next, "here", deadline, "testing", clock=lambda: self.now, sleep=self.sleep
        )


@in_loop
async def test_without_a_peer_the_client_is_unreachable_after_the_deadline() -> None:
    lives = Lives()
    with pytest.raises(Unreachable) as caught:
        await lives.lived(5.0)
    assert 5.0 < caught.value.waited <= 5.0 + RECONNECT_DELAY_TOP_S
    assert caught.value.endpoint == "here"
    assert lives.slept[:3] == [RECONNECT_DELAY_S, 2 * RECONNECT_DELAY_S, 4 * RECONNECT_DELAY_S]
    assert lives.slept[-1] == RECONNECT_DELAY_TOP_S


@in_loop
async def test_an_unexpected_exception_is_a_named_error() -> None:
    async def life() -> bool:
        raise KeyError("an odd message")

    with pytest.raises(ClientFailed, match="here has ended by an unexpected KeyError"):
        await reconnect_forever(life, "here", 5.0, "testing")


@in_loop
async def test_deadline_and_pause_are_reset_by_each_successful_connection() -> None:
    lives = Lives(None, None, 60.0, None, 60.0)
    with pytest.raises(Unreachable) as caught:
        await lives.lived(1.0)
    assert caught.value.waited <= 1.0 + RECONNECT_DELAY_TOP_S
    first = RECONNECT_DELAY_S
    assert lives.slept[:6] == [first, 2 * first, first, 2 * first, first, 2 * first]


@in_loop
async def test_an_exception_of_a_connection_ends_the_client() -> None:
    lives = Lives(None, Refused(403, "denied"))
    with pytest.raises(Refused):
        await lives.lived(5.0)
    assert lives.slept == [RECONNECT_DELAY_S]


# --- sends in flight ----------------------------------------------------------------------------------------


@in_loop
async def test_settling_a_cancelled_future_has_no_effect() -> None:
    cancelled = future()
    cancelled.cancel()
    settle(cancelled)
    settle(cancelled, Closed("it ended"))
    assert cancelled.cancelled()
    once = future()
    settle(once)
    settle(once, Closed("it ended"))
    assert once.exception() is None


@in_loop
async def test_an_unretrieved_failure_is_not_logged() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    settle(future(), Closed("it ended"))
    gc.collect()
    await turns()
    assert complaints == []


@in_loop
async def test_a_full_window_waits_in_order() -> None:
    window, begun = SendWindow(1), [future() for _ in range(3)]
    placed: list[int] = []

    async def place(number: int) -> None:
        assert await window.place(lambda: begun[number]) is begun[number]
        placed.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(place(number))
        for number in range(3):
            await turns()
            assert placed == list(range(number + 1))
            settle(begun[number])


@in_loop
async def test_a_send_that_fails_to_start_uses_no_place_in_the_window() -> None:
    window = SendWindow(1)

    def refused() -> asyncio.Future[None]:
        raise Closed("it ended")

    for _ in range(3):
        with pytest.raises(Closed):
            await window.place(refused)
    await window.place(future)


@in_loop
async def test_flush_waits_for_all_and_raises_the_first_failure_once() -> None:
    under_way, sent = UnansweredContents(), [future() for _ in range(3)]
    for content in sent:
        under_way.add(content)
    flushing = asyncio.create_task(under_way.flush())
    settle(sent[2], Refused(413, "too-large"))
    settle(sent[0], Closed("it ended"))
    await turns()
    assert not flushing.done()
    sent[1].cancel()
    with pytest.raises(Refused):
        await flushing
    await under_way.flush()


class Answered(AnsweredWriter):
    def send(self, answered: asyncio.Future[None]) -> None:
        assert self._sent(answered) is answered


@in_loop
async def test_a_writer_flushes_at_the_end_of_a_successful_block() -> None:
    writer, sent = Answered(), future()
    writer.send(sent)
    await writer.leave(failed=True)
    leaving = asyncio.create_task(writer.leave(failed=False))
    await turns()
    assert not leaving.done()
    settle(sent)
    await leaving


# --- the inbox ----------------------------------------------------------------------------------------------


@in_loop
async def test_an_inbox_returns_items_in_order_and_waits() -> None:
    inbox: Inbox[int] = Inbox(10)
    inbox.put(1)
    inbox.put(2)
    assert [await inbox.get(), await inbox.get()] == [1, 2]
    taking = asyncio.create_task(inbox.get())
    await turns()
    assert not taking.done()
    inbox.put(3)
    assert await taking == 3


@in_loop
async def test_items_added_together_are_returned_singly() -> None:
    inbox: Inbox[int] = Inbox(2)
    inbox.put_all([1, 2, 3])
    waiting = asyncio.create_task(inbox.room())
    assert [await inbox.get(), await inbox.get()] == [1, 2]
    await waiting
    assert await inbox.get() == 3


@in_loop
async def test_two_waiting_tasks_get_one_item_each() -> None:
    inbox: Inbox[int] = Inbox(10)
    taking = [asyncio.create_task(inbox.get()) for _ in range(2)]
    await turns()
    inbox.put(1)
    await turns()
    assert [task.done() for task in taking] == [True, False]
    inbox.put(2)
    assert await asyncio.gather(*taking) == [1, 2]


@in_loop
async def test_an_inbox_has_room_below_its_limit() -> None:
    inbox: Inbox[int] = Inbox(2)
    await inbox.room()
    inbox.put(1)
    await inbox.room()
    inbox.put(2)
    waiting = asyncio.create_task(inbox.room())
    await turns()
    assert not waiting.done()
    await inbox.get()
    await waiting


@in_loop
async def test_an_inbox_fails_after_its_remaining_items() -> None:
    inbox: Inbox[int] = Inbox(1)
    inbox.put(1)
    inbox.fail(Refused(404, "unknown-resource"))
    inbox.fail(Closed("it ended"))
    inbox.put(2)
    await inbox.room()
    assert await inbox.get() == 1
    for _ in range(2):
        with pytest.raises(Refused):
            await inbox.get()


@in_loop
async def test_waiting_tasks_get_the_failure_of_an_inbox() -> None:
    inbox: Inbox[int] = Inbox(1)
    taking = [asyncio.create_task(inbox.get()) for _ in range(2)]
    await turns()
    inbox.fail(Closed("it ended"))
    assert all(
        isinstance(outcome, Closed) for outcome in await asyncio.gather(*taking, return_exceptions=True)
    )


@in_loop
async def test_drained_items_are_not_returned_again() -> None:
    inbox: Inbox[int] = Inbox(2)
    inbox.put(1)
    inbox.put(2)
    assert inbox.drain() == [1, 2]
    await inbox.room()
    inbox.put(3)
    assert await inbox.get() == 3


class Numbers(ContentReader):
    closed = False

    def __init__(self) -> None:
        self._numbers = count(1)

    async def next(self) -> Received:
        return Received("numbers", next(self._numbers), b"")

    async def close(self) -> None:
        self.closed = True


@in_loop
async def test_a_reader_returns_all_items_and_is_closed_at_the_end_of_its_block() -> None:
    numbers, seen = Numbers(), []
    async for received in numbers:
        seen.append(received.sequence)
        if len(seen) == 3:
            break
    await numbers.leave(failed=True)
    assert (seen, numbers.closed) == ([1, 2, 3], True)

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from mtl.client import Connection
from mtl.client.aio.worker import Worker
from mtl.client.aio.writer import Writer
from mtl.errors import Closed, ContentRefused, ContentTooLarge, Unreachable
from mtl.protocol.writing import RefusedContent
from mtl.wire.fields import EMPTY
from tests.support.aio import in_loop
from tests.support.memory_broker import RESOURCE, MemoryBroker


def writer_of(blocking: Connection, *, packed: bool = False, window: int | None = None) -> Writer:
    return Writer(blocking.writer(RESOURCE, packed=packed, window_contents=window), Worker(), 0.3)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@in_loop
async def test_everything_is_durable_at_the_end_of_the_block(
    blocking: Connection, memory_broker: MemoryBroker, packed: bool
) -> None:
    writer = writer_of(blocking, packed=packed)
    assert [await writer.send(b"%d" % n) for n in range(5)] == [1, 2, 3, 4, 5]
    await writer.leave(failed=False)
    assert memory_broker.stored == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(Closed):
        await writer.send(b"late")
    await writer.close()


@in_loop
async def test_many_wait_for_their_own_content(blocking: Connection, memory_broker: MemoryBroker) -> None:
    memory_broker.holding = True
    writer = writer_of(blocking)
    numbers = [await writer.send(b"%d" % n) for n in range(50)]
    waits = [writer.settled(number) for number in reversed(numbers)]
    await asyncio.sleep(0.02)  # for what must not happen
    assert not any(wait.done() for wait in waits)
    waits[0].cancel()
    memory_broker.let_go(blocking._loop)
    await asyncio.gather(*waits[1:])
    await writer.settled(1)  # again: it is so already
    await writer.close()


@in_loop
async def test_a_full_window_makes_senders_wait_in_turn(
    blocking: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = writer_of(blocking, window=3)
    for body in (b"0", b"1", b"2"):
        await writer.send(body)
    sending = [asyncio.create_task(writer.send(b"%d" % n)) for n in range(3, 6)]
    await asyncio.sleep(0.02)  # for what must not happen
    assert not any(task.done() for task in sending)
    memory_broker.let_go(blocking._loop)
    assert await asyncio.gather(*sending) == [4, 5, 6]
    await writer.close()
    assert memory_broker.stored == [b"0", b"1", b"2", b"3", b"4", b"5"]


@in_loop
async def test_a_broker_without_progress_is_unreachable(
    blocking: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = writer_of(blocking, window=1)
    number = await writer.send(b"0")
    with pytest.raises(Unreachable, match="1 contents unconfirmed"):
        await writer.settled(number)
    with pytest.raises(Unreachable):
        await writer.send(b"1")
    await writer.abandon()
    assert isinstance(writer.error, Closed)


@in_loop
async def test_a_refusal_is_told_to_whoever_waits_for_it(
    blocking: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.refuse = b"bad"
    writer = writer_of(blocking)
    good, bad, after = [await writer.send(body) for body in (b"good", b"bad", b"also good")]
    wait = writer.settled(bad)
    await writer.settled(good)
    with pytest.raises(ContentRefused) as refused:
        await wait
    assert (refused.value.resource, refused.value.sequence) == (RESOURCE, 2)
    await writer.settled(after)
    await writer.send(b"bad")
    with pytest.raises(ContentRefused):
        await writer.flush()
    await writer.flush()
    await writer.close()
    assert memory_broker.stored == [b"good", b"also good"]


class RefusedMeanwhile:
    """A blocking writer whose content 1 is refused by the IO thread right after somebody looked at it."""

    error = None
    progress = 0

    def __init__(self) -> None:
        self.looks = 0
        self.heard: Callable[[], None] = lambda: None

    def listen(self, listener: Callable[[], None]) -> None:
        self.heard = listener

    def _look(self) -> bool:
        self.looks += 1
        return self.looks > 1

    @property
    def confirmed(self) -> int:
        return 1 if self._look() else 0

    def take_refused(self) -> list[RefusedContent]:
        return [RefusedContent(RESOURCE, 1, 1)] if self._look() else []


@in_loop
async def test_what_is_refused_while_its_writer_looks_is_not_taken_for_durable() -> None:
    io_thread = RefusedMeanwhile()
    writer = Writer(cast(Any, io_thread), Worker(), 5)
    settled = writer.settled(1)
    io_thread.heard()
    with pytest.raises(ContentRefused):
        await settled


@in_loop
async def test_a_run_waits_for_room_and_is_settled_whole(
    blocking: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = writer_of(blocking, packed=True, window=3)
    whole = writer.settled(await writer.send_run([b"0", b"1"], [EMPTY] * 2))
    sending = asyncio.create_task(writer.send_run([b"2", b"3"], [EMPTY] * 2))
    await asyncio.sleep(0.02)
    assert not whole.done()
    assert not sending.done()
    memory_broker.let_go(blocking._loop)
    await whole
    assert await sending == 4
    await writer.close()
    assert memory_broker.stored == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_the_end_of_the_writer_ends_every_wait(
    blocking: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    writer = writer_of(blocking)
    wait = writer.settled(await writer.send(b"0"))
    await writer.leave(failed=True)
    with pytest.raises(Closed):
        await wait


@in_loop
async def test_what_cannot_be_sent_is_the_callers_mistake(blocking: Connection) -> None:
    writer = writer_of(blocking)
    assert (writer.max_content, writer.name is not None) == (10_000, True)
    with pytest.raises(ContentTooLarge):
        await writer.send(bytes(10_001))
    await writer.close()

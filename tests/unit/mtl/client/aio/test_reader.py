from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mtl.client.aio import Connection
from mtl.client.aio.opening import Opening
from mtl.errors import Closed, Fenced
from mtl.wire import control
from tests.support.aio import in_loop, until
from tests.support.bridge import turns
from tests.support.memory_broker import RESOURCE, MemoryBroker

Connect = Callable[..., Opening[Connection]]


@pytest.fixture
def stored(memory_broker: MemoryBroker) -> list[bytes]:
    memory_broker.stored += [b"%d" % n for n in range(10)]
    return memory_broker.stored


@in_loop
async def test_a_reader_iterates_up_to_the_end_of_its_range(connected: Connect, stored: list[bytes]) -> None:
    async with connected() as connection:
        reader = await connection.reader(RESOURCE, start=3, until=7, packed=False)
        assert (reader.resource, reader.position) == (RESOURCE, 3)
        contents = [content async for content in reader]
        assert [(content.sequence, content.body) for content in contents] == [
            (n, b"%d" % (n - 1)) for n in range(3, 7)
        ]
        assert await reader.next() is None
        await reader.close()
        await reader.close()
        with pytest.raises(Closed):
            await reader.next()


@in_loop
async def test_batches_wait_for_packs_up_to_the_end_of_the_range(
    connected: Connect, stored: list[bytes]
) -> None:
    async with connected() as connection:
        reader = await connection.reader(RESOURCE, until=4, packed=False)
        packs = [pack async for pack in reader.batches()]
        bodies = [body for pack in packs for body in pack.batch.column(1).to_pylist()]
        assert bodies == [b"0", b"1", b"2"]


@in_loop
async def test_next_returns_a_content_or_none_after_its_timeout(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected() as connection:
        reader = await connection.reader(RESOURCE, start=1, packed=False)
        assert await reader.next(timeout=0.0) is None
        assert await reader.next(timeout=0.02) is None
        waiting = asyncio.create_task(reader.next(timeout=60.0))
        await asyncio.sleep(0)
        memory_broker.stored.append(b"new")
        connection._loop.post(memory_broker.deliver)
        content = await waiting
        assert content is not None
        assert content.body == b"new"
        await reader.close()


@in_loop
async def test_some_returns_available_contents_within_its_bounds(
    connected: Connect, stored: list[bytes]
) -> None:
    async with connected() as connection:
        reader = await connection.reader(RESOURCE, start=1, until=10, packed=False)

        async def taken(contents: int, octets: int) -> list[int]:
            return [content.sequence for content in await reader.some(contents, octets)]

        assert await taken(5, 100) == [1]  # the first content arrives alone
        assert await taken(3, 100) == [2, 3, 4]
        assert reader.position == 5
        assert await taken(5, 2) == [5, 6]
        assert await taken(5, 0) == [7]
        assert await taken(5, 100) == [8, 9]
        assert await taken(5, 100) == []
        await reader.close()


@in_loop
async def test_consumed_contents_are_confirmed_by_the_next_wait(
    connected: Connect, memory_broker: MemoryBroker, stored: list[bytes]
) -> None:
    async with connected() as connection:
        reader = await connection.reader(RESOURCE, packed=False)
        for _ in range(10):
            assert await reader.next() is not None
        assert memory_broker.confirmed == []
        waiting = asyncio.create_task(reader.next())
        await until(lambda: memory_broker.confirmed[-1:] == [10])
        waiting.cancel()
        await reader.close()


@pytest.fixture
def rfc_only(memory_broker: MemoryBroker) -> None:
    """A broker of RFC 11 only: consumed contents are confirmed in the next turn of a wait, without a delay."""
    greeting = control.Ready(profiles=["log"])
    memory_broker.answers[control.ConnectionOpen] = lambda: control.encode_reply(201, greeting)


@pytest.mark.usefixtures("rfc_only")
@in_loop
async def test_a_cancelled_wait_confirms_nothing(
    connected: Connect, memory_broker: MemoryBroker, stored: list[bytes]
) -> None:
    async with connected() as connection:
        reader = await connection.reader(RESOURCE)
        for _ in stored:
            assert await reader.next() is not None
        waiting = asyncio.create_task(reader.next())
        await asyncio.sleep(0)  # it has begun to wait
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await turns()
        assert memory_broker.confirmed == []
        assert await reader.next(timeout=0.01) is None
        assert memory_broker.confirmed != []


@pytest.mark.usefixtures("rfc_only")
@in_loop
async def test_consumed_contents_are_not_confirmed_after_the_end_of_the_connection(
    connected: Connect, memory_broker: MemoryBroker, stored: list[bytes]
) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    connection = await connected()
    reader = await connection.reader(RESOURCE)
    for _ in stored:
        assert await reader.next() is not None
    waiting = asyncio.create_task(reader.next())
    await asyncio.sleep(0)  # it has begun to wait
    dropping = asyncio.create_task(connection.drop())  # in the turn of the Confirm, and before it
    with pytest.raises(Closed):
        await waiting
    await dropping
    assert memory_broker.confirmed == []
    assert failures == []


@in_loop
async def test_a_holder_confirms_and_raises_fenced_when_replaced(
    connected: Connect, memory_broker: MemoryBroker, stored: list[bytes]
) -> None:
    async with connected() as connection:
        reader = await connection.reader(RESOURCE, group="g", packed=False)
        assert await reader.next() is not None
        await reader.confirm(1)
        assert memory_broker.confirmed == [1]
        memory_broker.fenced = True
        fenced = control.encode_reply(
            409, {"status": "no", "reason": control.FENCED, "message": "another took over"}
        )
        memory_broker.answers[control.ConnectionReader] = lambda: fenced
        with pytest.raises(Fenced):
            await reader.confirm(2)
        with pytest.raises(Fenced):
            [content async for content in reader]  # delivered contents, and then the end


@in_loop
async def test_close_ends_a_pending_next(connected: Connect) -> None:
    async with connected() as connection:
        reader = await connection.reader(RESOURCE, packed=False)
        waiting = asyncio.create_task(reader.next())
        await asyncio.sleep(0)  # it has begun to wait
        await reader.leave(failed=False)
        with pytest.raises(Closed):
            await waiting

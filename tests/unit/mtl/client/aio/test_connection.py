from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from mtl.client.aio import Connection
from mtl.client.aio.opening import Opening
from mtl.errors import Closed, Refused, Unreachable
from mtl.wire import control
from tests.support.aio import in_loop, until
from tests.support.memory_broker import RESOURCE, MemoryBroker

Connect = Callable[..., Opening[Connection]]


@in_loop
async def test_a_connection_reads_writes_and_sends_requests(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected() as connection:
        assert connection.endpoint == "tcp://memory:1"
        assert await connection.own_name("me") == "me"
        async with connection.writer(RESOURCE) as writer:
            await writer.send(b"0")
        async with connection.reader(RESOURCE, until=2, packed=False) as reader:
            assert [content.body async for content in reader] == [b"0"]
        memory_broker.answers[control.ResourceList] = lambda: control.encode_reply(
            200, control.DescriptionList(resources=[])
        )
        assert await connection.list_resources() == []
    with pytest.raises(Closed):
        await connection.reader(RESOURCE)
    with pytest.raises(Closed):
        await connection.list_resources()
    await connection.close()


@in_loop
async def test_a_silent_broker_is_unreachable(connected: Connect, memory_broker: MemoryBroker) -> None:
    memory_broker.silent = True
    with pytest.raises(Unreachable):
        await connected(request_timeout=0.05, retry_deadline=0.1)


@in_loop
async def test_a_refused_lease_is_raised(connected: Connect, memory_broker: MemoryBroker) -> None:
    missing = {"reason": control.UNKNOWN_RESOURCE, "status": "", "message": "", "missing": ["nowhere"]}
    memory_broker.answers[control.ConnectionReader] = lambda: control.encode_reply(404, missing)
    async with connected() as connection:
        for _ in range(3):
            with pytest.raises(Refused, match="unknown-resource"):
                await connection.reader("nowhere", packed=False)
        opened = sum(isinstance(asked, control.ConnectionOpen) for asked in memory_broker.asked)
        assert opened == 2, "the connection's own session, and one for leases"


@pytest.mark.parametrize("kind", ["reader", "writer"])
@in_loop
async def test_a_lease_granted_after_a_cancelled_open_is_closed(
    connected: Connect, memory_broker: MemoryBroker, kind: str
) -> None:
    async with connected() as connection:
        memory_broker.silent = True
        opening = asyncio.ensure_future(getattr(connection, kind)(RESOURCE, packed=False))
        await until(lambda: memory_broker.ignored > 0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        memory_broker.silent = False
        await until(lambda: any(isinstance(request, control.LeaseClose) for request in memory_broker.asked))
        assert not connection._users
        await until(lambda: not connection._sessions._lent)


@in_loop
async def test_drop_does_not_wait_for_a_silent_broker(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    connection = await connected()
    memory_broker.holding = True
    reader = await connection.reader(RESOURCE, packed=False)
    writer = await connection.writer(RESOURCE)
    settled, reading = writer.settled(await writer.send(b"0")), asyncio.ensure_future(reader.next())
    memory_broker.silent = True
    describing = asyncio.ensure_future(connection.describe())
    await asyncio.sleep(0)
    await connection.leave(failed=True)
    for error in await asyncio.gather(settled, reading, describing, return_exceptions=True):
        assert isinstance(error, Closed)


@in_loop
async def test_dropping_the_connection_ends_a_pending_close(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    connection = await connected(request_timeout=60.0, retry_deadline=60.0)
    reader = await connection.reader(RESOURCE, packed=False)
    memory_broker.silent = True
    closing = asyncio.ensure_future(reader.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    await connection.drop()
    await closing


@in_loop
async def test_a_cancelled_task_closes_its_reader_and_writer(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    connection = await connected()
    waiting = asyncio.Event()

    async def read() -> None:
        async with connection.reader(RESOURCE, packed=False) as reader, connection.writer(RESOURCE):
            waiting.set()
            await reader.next()

    task = asyncio.ensure_future(read())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sum(isinstance(request, control.LeaseClose) for request in memory_broker.asked) == 2
    assert not connection._users
    await connection.close()


@in_loop
async def test_a_connection_starts_no_threads(connected: Connect, memory_broker: MemoryBroker) -> None:
    before = threading.enumerate()
    memory_broker.stored.append(b"0")
    async with connected() as connection, connection.reader(RESOURCE, packed=False) as reader:
        assert await reader.next() is not None
        assert threading.enumerate() == before

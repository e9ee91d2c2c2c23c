from __future__ import annotations

import asyncio

import pytest

from mtl.client import Connection as BlockingConnection
from mtl.client.aio.connection import Connection, connect
from mtl.client.aio.worker import Worker
from mtl.errors import Closed, Unreachable
from mtl.wire import control as w
from tests.support.aio import in_loop, until
from tests.support.memory_broker import RESOURCE, MemoryBroker


@in_loop
async def test_connects_reads_writes_and_asks(
    blocking: BlockingConnection, memory_broker: MemoryBroker
) -> None:
    async with connect("tcp://memory:1", request_timeout=0.5, retry_deadline=1.0) as connection:
        assert connection.endpoint == "tcp://memory:1"
        async with connection.writer(RESOURCE) as writer:
            await writer.send(b"0")
        async with connection.reader(RESOURCE, until=2, packed=False) as reader:
            assert [content.body async for content in reader] == [b"0"]
        memory_broker.answers[w.ResourceList] = lambda: w.encode_reply(200, w.Resources(resources=[]))
        assert await connection.list_resources() == []
    with pytest.raises(Closed):
        await connection.reader(RESOURCE)


@in_loop
async def test_nobody_there(blocking: BlockingConnection, memory_broker: MemoryBroker) -> None:
    memory_broker.silent = True
    with pytest.raises(Unreachable):
        await connect("tcp://memory:1", request_timeout=0.05, retry_deadline=0.1)


@in_loop
async def test_a_reader_that_is_granted_after_a_cancellation_is_closed(
    blocking: BlockingConnection, memory_broker: MemoryBroker
) -> None:
    connection = Connection(blocking, Worker())
    memory_broker.silent = True
    opening = asyncio.ensure_future(connection.reader(RESOURCE, packed=False))
    await until(lambda: memory_broker.ignored > 0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    memory_broker.silent = False
    await connection.worker.close()
    assert not blocking._users
    assert any(isinstance(request, w.LeaseClose) for request in memory_broker.asked)


@in_loop
async def test_dropping_does_not_wait_for_a_broker_that_is_silent(
    blocking: BlockingConnection, memory_broker: MemoryBroker
) -> None:
    connection = Connection(blocking, Worker())
    memory_broker.holding = True
    await connection.reader(RESOURCE, packed=False)
    writer = await connection.writer(RESOURCE)
    wait = writer.settled(await writer.send(b"0"))
    memory_broker.silent = True
    began = asyncio.get_running_loop().time()
    await connection.leave(failed=True)
    assert asyncio.get_running_loop().time() - began < 0.4
    with pytest.raises(Closed):
        await wait

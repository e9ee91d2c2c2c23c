"""The consumer of an event loop. Against a real broker: tests/integration/test_client_aio.py."""

from __future__ import annotations

import asyncio

import pytest

from mtl.client.aio.consumer import Consumer
from mtl.errors import Closed, Refused
from mtl.wire import commands
from tests.support.aio import in_loop
from tests.unit.mtl.client.test_consumer import Consuming


def consumer_of(at: Consuming) -> Consumer:
    return Consumer(at.bench.loop, at.bench.settings, at.part, lambda: None)


@in_loop
async def test_next_returns_a_content_that_arrives_during_the_wait() -> None:
    at = Consuming()
    consumer = consumer_of(at)
    assert consumer.queue == "q"
    assert await consumer.next(timeout=0.0) is None
    assert await consumer.next(timeout=0.01) is None
    waiting = asyncio.create_task(consumer.next(timeout=60.0))
    await asyncio.sleep(0)
    at.deliver(at.data, 1, 2)
    first = await waiting
    assert first is not None
    assert first.sequence == 101
    first.confirm()
    async for second in consumer:
        second.reject()
        break
    assert at.sent(at.data) == [commands.Reject(2, False, False), commands.Confirm(1, True)]


@in_loop
async def test_some_returns_available_contents_within_its_bounds() -> None:
    at = Consuming()
    consumer = consumer_of(at)
    waiting = asyncio.create_task(consumer.some(2, 100))
    await asyncio.sleep(0)
    at.deliver(at.data, 1, 2, 3, 4)
    assert [content.sequence for content in await waiting] == [101, 102]
    assert [content.sequence for content in await consumer.some(2, 0)] == [103]
    assert [content.sequence for content in await consumer.some(2, 100)] == [104]


@in_loop
async def test_next_raises_the_error_that_ended_the_consumer() -> None:
    at = Consuming()
    consumer = consumer_of(at)
    waiting = asyncio.create_task(consumer.next())
    await asyncio.sleep(0)
    at.part.failed(Refused(404, "gone"))
    with pytest.raises(Refused, match="gone"):
        await waiting


@in_loop
async def test_a_closed_consumer_raises_closed() -> None:
    at = Consuming()
    consumer = consumer_of(at)
    consumer._open = False
    with pytest.raises(Closed):
        await consumer.next()

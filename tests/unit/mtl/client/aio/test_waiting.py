from __future__ import annotations

import asyncio

import pytest

from mtl.client.aio.waiting import Answer, Notifier
from mtl.errors import Closed, Refused
from mtl.wire import control
from tests.support.aio import in_loop
from tests.support.memory_network import Bench


@in_loop
async def test_a_notification_ends_every_wait() -> None:
    news = Notifier()
    waits = [asyncio.create_task(news.wait(None)) for _ in range(2)]
    await asyncio.sleep(0)
    news.notify()
    assert await asyncio.gather(*waits) == [True, True]


@in_loop
async def test_a_timeout_ends_the_wait_and_leaves_no_state() -> None:
    news = Notifier()
    news.notify()
    assert not await news.wait(0.01)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(news.wait(None), 0.01)
    assert not news._waiting


@in_loop
async def test_an_answer_is_awaited_until_the_outcome_or_the_end_of_the_loop() -> None:
    loop = Bench().loop
    answers = [Answer(loop) for _ in range(4)]
    answers[0].done(control.Ok())
    answers[1].done(Refused(404, "gone"))
    cancelled = asyncio.ensure_future(wait_for(answers[2]))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    answers[2].done(control.Ok())
    loop.end()
    assert await answers[0] == control.Ok()
    with pytest.raises(Refused):
        await answers[1]
    with pytest.raises(Closed):
        await answers[3]


async def wait_for(answer: Answer) -> control.Reply:
    return await answer

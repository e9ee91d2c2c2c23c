from __future__ import annotations

import asyncio
import threading

from mtl.client.aio.news import News
from tests.support.aio import in_loop


@in_loop
async def test_a_ring_of_another_thread_ends_the_wait() -> None:
    news = News()
    waiting = asyncio.create_task(news.come(None))
    await asyncio.sleep(0)
    threading.Thread(target=news.ring).start()
    assert await waiting


@in_loop
async def test_patience_ends_and_rings_without_anybody_are_harmless() -> None:
    news = News()
    news.ring()
    await asyncio.sleep(0)
    assert not await news.come(0.01)
    assert not await news.come(0.0)

"""Consuming from queues in an event loop: wraps `mtl.client.consumer`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from mtl.client import consumer as blocking
from mtl.client.aio.news import News
from mtl.client.aio.worker import Worker
from mtl.client.consumer import QueuedContent
from mtl.errors import Closed, MtlError


class Consumer:
    """A lease to consume from queues, with the errors of the blocking consumer.

    For one task at a time; any task may call `close` and answer contents.
    """

    def __init__(self, consumer: blocking.Consumer, worker: Worker) -> None:
        self._consumer = consumer
        self._worker = worker
        self._news = News()
        self.summon = consumer.summon
        self.dismiss = consumer.dismiss
        consumer.listen(self._news.ring)

    @property
    def queue(self) -> str:
        """The name of the queues from which this consumes."""
        return self._consumer.queue

    async def next(self, timeout: float | None = None) -> QueuedContent | None:  # noqa: ASYNC109 the blocking consumer's name
        """The next content; None after `timeout` seconds without one (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (content := self._consumer.next(0.0)) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not await self._news.come(left):
                return None
        return content

    async def some(self, contents: int, octets: int) -> list[QueuedContent]:
        """The next content, and more that are available: at most `contents`, ending at `octets` octets of bodies."""
        content = await self.next()
        together: list[QueuedContent] = []
        while content is not None:
            together.append(content)
            octets -= len(content.body)
            if octets <= 0 or len(together) >= contents:
                break
            try:
                content = self._consumer.next(0.0)
            except MtlError:
                break  # the next call raises it again
        return together

    async def __aiter__(self) -> AsyncIterator[QueuedContent]:
        """Every content, for ever."""
        while (content := await self.next()) is not None:
            yield content

    async def close(self) -> None:
        """Send the last answers and end the lease; unanswered contents go back to the queue. May be called again."""
        try:
            await self._worker.run(self._consumer.close)
        except Closed:
            pass  # closed with its connection

    async def leave(self, *, failed: bool) -> None:  # noqa: ARG002 a consumer has nothing to flush
        """Close, at the end of a block."""
        await self.close()

"""Consuming from queues in an event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from mtl.client.aio.waiting import AwaitingLease, Notifier
from mtl.client.consumer_part import ConsumerPart
from mtl.client.consuming import ConsumingLease, QueuedContent
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.errors import MtlError


class Consumer(ConsumingLease, AwaitingLease):
    """A lease to consume from queues, with the errors of the blocking consumer.

    For one task at a time; any task may call `close` and answer contents.
    """

    def __init__(
        self, loop: Loop, settings: Settings, part: ConsumerPart, closed: Callable[[], None]
    ) -> None:
        super().__init__(loop, settings, part, closed)
        self._notifier = Notifier()
        part.listener = self._notifier.notify

    async def next(self, timeout: float | None = None) -> QueuedContent | None:  # noqa: ASYNC109 the blocking consumer's name
        """The next content; None after `timeout` seconds without one (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (content := self._next()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if not await self._notifier.wait(left):
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
                content = self._next()
            except MtlError:
                break  # the next call raises it again
        return together

    async def __aiter__(self) -> AsyncIterator[QueuedContent]:
        """Every content; waits for more without a limit."""
        while (content := await self.next()) is not None:
            yield content

"""Reading in an event loop: wraps `mtl.client.reader`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from mtl.client import reader as blocking
from mtl.client.aio.news import News
from mtl.client.aio.worker import Worker
from mtl.client.contents import Content
from mtl.errors import Closed
from mtl.limits import CREDIT_DELAY_S


class Reader:
    """A lease to read one resource from a position on, in order, without gaps or duplicates.

    A request for the next item marks the last one as consumed, so a slow task takes at most one window of memory. For
    one task at a time; any task may call `confirm` and `close`. Errors are those of the blocking reader.
    """

    def __init__(self, reader: blocking.Reader, worker: Worker) -> None:
        self._reader = reader
        self._worker = worker
        self._news = News()
        reader.listen(self._news.ring)

    @property
    def resource(self) -> str:
        """The name of the resource."""
        return self._reader.resource

    @property
    def position(self) -> int | None:
        """The sequence of the next content."""
        return self._reader.position

    @property
    def incarnation(self) -> str | None:
        """The resource's incarnation."""
        return self._reader.incarnation

    @property
    def log_epoch(self) -> str | None:
        """The epoch of the content before `position`, for another reader that continues there."""
        return self._reader.log_epoch

    async def next(self, timeout: float | None = None) -> Content | None:  # noqa: ASYNC109 the blocking reader's name
        """The next content; None after `timeout` seconds without one (None: no limit), and at the end of the range."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            content = self._reader.next(0.0)
            if content is not None or self._reader.ended:
                return content
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not await self._waited(left):
                return None

    async def some(self, contents: int, octets: int) -> list[Content]:
        """The next content, and others that came with it: at most `contents`, ending at `octets` octets of bodies.

        An empty list at the end of the range. The next call marks all of them as consumed.
        """
        while True:
            together = self._reader.some(contents, octets, 0.0)
            if together or self._reader.ended:
                return together
            await self._waited(None)

    async def __aiter__(self) -> AsyncIterator[Content]:
        """Every content up to `until`; without `until` it never ends."""
        while (content := await self.next()) is not None:
            yield content

    async def confirm(self, sequence: int) -> None:
        """Confirm every content up to `sequence`, and wait until the broker has it; moves the cursor of a holder.

        Raises `Fenced` if another holder took over, `Unreachable`.
        """

        def confirm() -> None:
            self._reader.confirm(sequence)
            self._reader.ping_holder()

        await self._worker.run(confirm)

    async def close(self) -> None:
        """End the lease. May be called again."""
        try:
            await self._worker.run(self._reader.close)
        except Closed:
            pass  # closed with its connection

    async def leave(self, *, failed: bool) -> None:  # noqa: ARG002 a reader has nothing to flush
        """Close, at the end of a block."""
        await self.close()

    async def _waited(self, patience: float | None) -> bool:
        """Wait for news: whether some came. After a while without news, consumed contents are confirmed."""
        rest = asyncio.get_running_loop().call_later(CREDIT_DELAY_S, self._reader.rest)
        try:
            return await self._news.come(patience)
        finally:
            rest.cancel()

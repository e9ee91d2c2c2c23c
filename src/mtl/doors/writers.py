"""A door's writers: one lease per resource, shared by all its peers, opened when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mtl.client.aio import Writer
from mtl.errors import MtlError


class ResourceWriters:
    """At most `limit` writers are kept; above it the least recently used one is closed."""

    def __init__(self, opening: Callable[[str], Awaitable[Writer]], limit: int) -> None:
        self._opening = opening
        self._limit = limit
        self._open: dict[str, asyncio.Task[Writer]] = {}  # least recently used first
        self._closing: set[asyncio.Task[None]] = set()

    async def get(self, resource: str) -> Writer:
        """The writer of a resource. Raises the errors of opening it; the next call tries again."""
        task = self._open.pop(resource, None)
        if task is None or _is_unusable(task):
            task = asyncio.create_task(self._open_writer(resource))
        self._open[resource] = task
        writer = task.result() if task.done() else await asyncio.shield(task)
        while len(self._open) > self._limit:
            oldest = next(iter(self._open))
            self._end(self._open.pop(oldest))
        return writer

    async def close(self) -> None:
        """Flush and close them all."""
        for resource in list(self._open):
            self._end(self._open.pop(resource))
        while self._closing:
            await asyncio.wait(self._closing)

    async def _open_writer(self, resource: str) -> Writer:
        return await self._opening(resource)

    def _end(self, opened: asyncio.Task[Writer]) -> None:
        closing = asyncio.create_task(_close_writer(opened))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _is_unusable(task: asyncio.Task[Writer]) -> bool:
    """Whether the writer is closed or failed to open."""
    return task.done() and (
        task.cancelled() or task.exception() is not None or task.result().error is not None
    )


async def _close_writer(opened: asyncio.Task[Writer]) -> None:
    try:
        await (await opened).close()
    except MtlError:
        pass  # the senders of its contents got the error

"""A few threads that wait for replies, so that the event loop does not block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from mtl.client.limits import AIO_REQUESTS
from mtl.errors import Closed

T = TypeVar("T")


class Worker:
    """Runs blocking calls of the client, AIO_REQUESTS at a time; further calls wait."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AIO_REQUESTS, thread_name_prefix="mtl-aio")
        self._closed = False

    async def run(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """The result of `call`. If the task is cancelled meanwhile, `undo` is called with the later result.

        Raises `Closed` if the connection is closed before the call has started.
        """
        if self._closed:
            raise Closed("the connection is closed")
        future = self._threads.submit(call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if future.cancelled() and task is not None and not task.cancelling():
                raise Closed("the connection was closed") from None
            if undo is not None:
                future.add_done_callback(lambda done: _undone(done, undo))
            raise

    async def close(self) -> None:
        """Cancel calls that have not started, and wait for the others."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)


def _undone(done: Future[T], undo: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())

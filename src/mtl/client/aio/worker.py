"""A few threads that wait for the replies to requests, so that the event loop need not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from mtl.errors import Closed
from mtl.limits import AIO_REQUESTS

T = TypeVar("T")


class Worker:
    """Runs blocking calls of the client, AIO_REQUESTS at a time; more wait for their turn."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AIO_REQUESTS, thread_name_prefix="mtl-aio")
        self._closed = False

    async def run(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """The result of `call`. When the task is cancelled meanwhile, `undo` gets what comes of the call later.

        Raises `Closed` when the connection is closed before the call had its turn.
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
        """Give up what has not begun, and wait for what has."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)


def _undone(done: Future[T], undo: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())

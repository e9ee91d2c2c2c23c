"""Waiting in tasks: for the outcome of one operation in the loop, for a notification, for the end of a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from mtl.client.control import Outcome
from mtl.client.lease_handle import LeaseHandle
from mtl.client.limits import LEAVE_S
from mtl.client.loop import Loop
from mtl.errors import MtlError
from mtl.wire import control


class Answer:
    """The outcome of an operation in the loop, whose callback is `done`. Awaiting it returns the reply, or raises the
    error: `Closed` if the loop ends before.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._future: asyncio.Future[control.Reply] = asyncio.get_running_loop().create_future()
        loop.members.add(self)

    def done(self, outcome: Outcome) -> None:
        """Set the outcome."""
        self._loop.members.discard(self)
        if self._future.done():
            return  # the waiting task was cancelled
        if isinstance(outcome, MtlError):
            self._future.set_exception(outcome)
        else:
            self._future.set_result(outcome)

    def abandoned(self, error: MtlError) -> None:
        """The loop ends."""
        self.done(error)

    def __await__(self) -> Generator[object, None, control.Reply]:
        return self._future.__await__()


class Notifier:
    """A condition of one event loop: tasks that await `wait` continue after the next `notify`, and check the state."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[bool]] = set()

    def notify(self) -> None:
        """End all waits."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _end(future, True)

    async def wait(self, patience: float | None) -> bool:
        """Wait for `notify`: True; False after `patience` seconds without any (None: no limit)."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.add(future)
        timer = None if patience is None else loop.call_later(patience, _end, future, False)
        try:
            return await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()


def _end(future: asyncio.Future[bool], notified: bool) -> None:
    if not future.done():
        future.set_result(notified)


async def run_operation(loop: Loop, operation: Callable[[Callable[[Outcome], None]], None]) -> control.Reply:
    """Run an operation in the loop, and wait for its outcome."""
    answer = Answer(loop)
    loop.post(lambda: operation(answer.done))
    return await answer


class AwaitingLease(LeaseHandle):
    """A lease whose `close` is awaited."""

    async def close(self) -> None:
        """End the lease, within the connection's `request_timeout`. May be called again."""
        await self._close(self._settings.request_timeout)

    async def leave(self, *, failed: bool) -> None:
        """Close, at the end of a block; without a long wait if it `failed`."""
        await self._close(
            min(LEAVE_S, self._settings.request_timeout) if failed else self._settings.request_timeout
        )

    async def _close(self, within: float) -> None:
        if not self._shut():
            return
        try:
            await run_operation(self._loop, lambda done: self._end(done, within))
        except MtlError:
            pass  # the lease was closed already, or expires
        finally:
            if not self._loop.running:
                self._conclude()

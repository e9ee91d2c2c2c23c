"""Reading in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from mtl.client.aio.loop import EventLoop
from mtl.client.aio.waiting import AwaitingLease, Notifier
from mtl.client.contents import Content, Pack
from mtl.client.reader_part import ReaderPart
from mtl.client.reading import ReadingLease
from mtl.client.settings import Settings
from mtl.errors import Unreachable


class Reader(ReadingLease, AwaitingLease):
    """A lease to read one resource from a position on, in order, without gaps or duplicates.

    A request for the next item marks the last one as consumed, so a slow task takes at most one window of memory. For
    one task at a time; any task may call `confirm`, `ping_holder` and `close`. Errors are those of the blocking reader.
    """

    _loop: EventLoop

    def __init__(
        self, loop: EventLoop, settings: Settings, part: ReaderPart, closed: Callable[[], None]
    ) -> None:
        super().__init__(loop, settings, part, closed)
        self._notifier = Notifier()
        part.listener = self._notifier.notify

    async def next(self, timeout: float | None = None) -> Content | None:  # noqa: ASYNC109 the blocking reader's name
        """The next content; None after `timeout` seconds without one (None: no limit), and at the end of the range."""
        while (content := self._next()) is None and await self._wait(timeout):
            pass
        return content

    async def some(self, contents: int, octets: int) -> list[Content]:
        """The next content, and others that came with it: at most `contents`, ending at `octets` octets of bodies.

        An empty list at the end of the range. The next call marks all of them as consumed.
        """
        while not (together := self._available(contents, octets)) and await self._wait(None):
            pass
        return together

    async def __aiter__(self) -> AsyncIterator[Content]:
        """Every content up to `until`; without `until` it never ends."""
        while (content := await self.next()) is not None:
            yield content

    async def batches(self) -> AsyncIterator[Pack]:
        """Every pack up to `until`, cut to the range."""
        while True:
            while (pack := self._next_pack()) is None and await self._wait(None):
                pass
            if pack is None:
                return
            self._position = pack.first + pack.count
            yield pack

    async def confirm(self, sequence: int, *, log_epoch: str | None = None) -> None:
        """Confirm every content up to `sequence`, and wait until the broker has it; moves the cursor of a holder.

        `log_epoch` is as in the blocking reader. Raises `Fenced` if another holder took over, `Unreachable`.
        """
        self._confirm(sequence, log_epoch)
        await self.ping_holder()

    async def ping_holder(self) -> int | None:
        """The group's current position, from a broker that has processed every Confirm so far; see the blocking reader.

        Raises `Fenced` if another holder took over, `Unreachable`.
        """
        patience = self._settings.retry_deadline
        deadline = time.monotonic() + patience
        positions = self._ping()
        while not positions:
            if self._part.error is not None:
                raise self._part.error
            if not await self._notifier.wait(deadline - time.monotonic()):
                raise Unreachable(self._settings.endpoint, patience, "waiting for the Pong of a holder")
        return positions[0]

    async def _wait(self, timeout: float | None) -> bool:  # noqa: ASYNC109 it is passed on
        """Wait for a delivery or an error: False at the end of the range, and after `timeout`. Consumed contents are
        confirmed after a while.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        credit_due = self._credit_due_s
        credit = (
            asyncio.get_running_loop().call_later(credit_due, self._post_late_credit)
            if credit_due is not None
            else None
        )
        try:
            while not self._is_wait_over():
                left = None if deadline is None else deadline - time.monotonic()
                if not await self._notifier.wait(left):
                    return False
        finally:
            if credit is not None:
                credit.cancel()
        return not self._is_over

    def _post_late_credit(self) -> None:
        if self._loop.running:
            self._post_credit()

    def _in_loop(self, call: Callable[[], None]) -> None:
        self._loop.now(call)

"""Writing in an event loop: wraps `mtl.client.writer`."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from mtl.client import writer as blocking
from mtl.client.aio.bell import Bell
from mtl.client.aio.worker import Worker
from mtl.errors import Closed, ContentRefused, MtlError
from mtl.wire import control as w
from mtl.wire.fields import Buffer, Value


class Writer:
    """A lease to write to one resource, or to several; for any number of tasks of one event loop.

    `send` returns the publishing number once the content is in the window; `settled` waits until it is durable, and
    `flush` until all contents are. Tasks may wait for any number of contents at the same time.

    Errors are those of the blocking writer, except `ContentRefused`: `settled` of the content's number raises it, or
    `flush` for contents without a call of `settled`.
    """

    def __init__(self, writer: blocking.Writer, worker: Worker, retry_deadline: float) -> None:
        self._writer = writer
        self._worker = worker
        self._limit = retry_deadline
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._awaited: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._refused: dict[int, str] = {}
        self._patience: blocking.Patience | None = None
        self._watch: asyncio.TimerHandle | None = None
        writer.listen(Bell(self._heard).ring)

    @property
    def name(self) -> str | None:
        """The name under which the broker remembers the numbers."""
        return self._writer.name

    @property
    def max_content(self) -> int:
        """Octets of the largest content that the broker accepts."""
        return self._writer.max_content

    @property
    def error(self) -> MtlError | None:
        """The error that ended the writer, or None."""
        return self._writer.error

    async def send(
        self, body: Buffer, properties: Mapping[str, Value] | None = None, *, resource: str | None = None
    ) -> int:
        """Publish one content and return its number. Waits while the window of unconfirmed contents is full."""
        return await self._taken(lambda: self._writer.offer(body, properties, resource=resource))

    async def send_run(
        self, bodies: Sequence[bytes], tables: Sequence[bytes], *, resource: str | None = None
    ) -> int:
        """Publish contents as one unit and return the number of the last. They are confirmed or refused together, so
        `settled` of that number waits for all. `tables` are their properties (`encode_properties`). On a packed lease.

        Waits as `send` does. Raises `ContentTooLarge` for a content, or a run that has to be split.
        """
        return await self._taken(lambda: self._writer.offer_run(bodies, tables, resource=resource))

    async def _taken(self, offer: Callable[[], int | None]) -> int:
        async with self._turn:  # tasks are served in the order of their calls, also while some wait for room
            while True:
                number = offer()
                if number is not None:
                    return number
                self._room = self._loop.create_future()
                self._expect()
                try:
                    await self._room
                finally:
                    self._room = None

    def settled(self, number: int) -> asyncio.Future[None]:
        """A future: done when the content of this number is durable, `ContentRefused` if it was rejected for good."""
        future: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._awaited, (number, next(self._order), future))
        self._heard()
        self._expect()
        return future

    async def flush(self) -> None:
        """Wait until all contents are durable. Raises `ContentRefused` for a content without a call of `settled`."""
        await self.settled(self._writer.push())
        if self._refused:
            number, resource = self._refused.popitem()
            raise ContentRefused(resource, number)

    async def close(self) -> None:
        """Flush and end the lease. May be called again. Raises the error that ended the writer before the flush."""
        try:
            if self._writer.error is None:
                await self.flush()
        except BaseException:  # also when cancelled: the lease must not outlive its writer
            await self.abandon()
            raise
        await self._worker.run(self._writer.close)
        self._fail(Closed("the writer is closed"))

    async def seal(self) -> w.Sealed:
        """Flush, close, and seal the stage: its public id, the contents for each resource, its octets on disk. Raises
        `LocalError` for a writer without a stage.
        """
        await self.flush()
        sealed = await self._worker.run(self._writer.seal)
        self._fail(Closed("the writer is closed"))
        return sealed

    async def abandon(self) -> None:
        """End without a wait: unconfirmed contents may be lost."""
        try:
            await self._worker.run(self._writer.abandon)
        except Closed:
            pass  # closed with its connection
        self._fail(Closed("the writer is closed"))

    async def leave(self, *, failed: bool) -> None:
        """Close at the end of a block; abandon if the block `failed`."""
        await (self.abandon() if failed else self.close())

    # --- news -----------------------------------------------------------------------------------------------

    def _heard(self) -> None:
        """Settle the futures of confirmed and refused contents. Reads `confirmed` before `take_refused`: a content that
        is refused in between has a higher number.
        """
        confirmed = self._writer.confirmed
        for refused in self._writer.take_refused():
            self._refused |= dict.fromkeys(range(refused.first, refused.last + 1), refused.resource)
        while self._awaited and self._awaited[0][0] <= confirmed:
            number, _, future = heapq.heappop(self._awaited)
            resource = self._refused.pop(number, None)
            if future.done():
                continue  # the waiting task was cancelled
            if resource is None:
                future.set_result(None)
            else:
                future.set_exception(ContentRefused(resource, number))
        if self._writer.error is not None:
            self._fail(self._writer.error)
        elif self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _fail(self, error: MtlError) -> None:
        waiting, self._awaited = [future for _, _, future in self._awaited], []
        if self._room is not None:
            waiting.append(self._room)
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # --- patience -------------------------------------------------------------------------------------------

    def _expect(self) -> None:
        """Start the watch for progress if a task waits: without progress for the retry deadline it fails."""
        if self._watch is None and (self._awaited or self._room is not None):
            self._patience = blocking.Patience(self._limit)
            self._look()

    def _look(self) -> None:
        self._watch = None
        if self._patience is None or not (self._awaited or self._room is not None):
            return
        left = self._patience.left(self._writer.progress)
        if left <= 0:
            self._fail(self._writer.stalled(self._patience, "waiting for Confirms"))
        else:
            self._watch = self._loop.call_later(left, self._look)

"""Writing in an event loop. See `mtl.client.writer`, whose work it does."""

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

    `send` returns the publishing number as soon as the content is on its way; `settled` waits until it is durable, and
    `flush` until everything is. Any number of contents may be under way and waited for at once.

    Raises what the blocking writer does, save that a `ContentRefused` is told to whoever waits for that content:
    `settled` of its number, or `flush` for those that nobody asks about.
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
        """Octets of the largest content that the broker takes."""
        return self._writer.max_content

    @property
    def error(self) -> MtlError | None:
        """What ended the writer."""
        return self._writer.error

    async def send(
        self, body: Buffer, properties: Mapping[str, Value] | None = None, *, resource: str | None = None
    ) -> int:
        """Publish one content and return its number; waits while the window of unconfirmed contents is full."""
        return await self._taken(lambda: self._writer.offer(body, properties, resource=resource))

    async def send_run(
        self, bodies: Sequence[bytes], tables: Sequence[bytes], *, resource: str | None = None
    ) -> int:
        """Publish contents as one unit and return the number of the last, which stands for all in `settled`: they are
        confirmed or refused together. `tables` are their properties (`encode_properties`). On a packed lease.

        Waits as `send` does. Raises `ContentTooLarge` for a content, or a run that has to be split.
        """
        return await self._taken(lambda: self._writer.offer_run(bodies, tables, resource=resource))

    async def _taken(self, offer: Callable[[], int | None]) -> int:
        async with self._turn:  # whoever asks first is first, also when some have to wait
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
        """Await it: until the content of this number is durable. `ContentRefused` if it was rejected for good."""
        future: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._awaited, (number, next(self._order), future))
        self._heard()
        self._expect()
        return future

    async def flush(self) -> None:
        """Wait until everything is durable. Raises `ContentRefused` for a content that nobody asked about."""
        await self.settled(self._writer.push())
        if self._refused:
            number, resource = self._refused.popitem()
            raise ContentRefused(resource, number)

    async def close(self) -> None:
        """Flush and end the lease. Harmless when repeated. Raises what ended the writer before all was durable."""
        try:
            if self._writer.error is None:
                await self.flush()
        except BaseException:  # also when cancelled: the lease does not outlive its writer
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
        """End without waiting: what is not confirmed may be lost."""
        try:
            await self._worker.run(self._writer.abandon)
        except Closed:
            pass  # with its connection
        self._fail(Closed("the writer is closed"))

    async def leave(self, *, failed: bool) -> None:
        """Close, or after an error of the block abandon."""
        await (self.abandon() if failed else self.close())

    # --- news -----------------------------------------------------------------------------------------------

    def _heard(self) -> None:
        """Look what has become of everything that somebody waits for. The highest number first: what is refused in
        between lies above it.
        """
        confirmed = self._writer.confirmed
        for refused in self._writer.take_refused():
            self._refused |= dict.fromkeys(range(refused.first, refused.last + 1), refused.resource)
        while self._awaited and self._awaited[0][0] <= confirmed:
            number, _, future = heapq.heappop(self._awaited)
            resource = self._refused.pop(number, None)
            if future.done():
                continue  # whoever waited was cancelled
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
        """Somebody waits: without progress for the retry deadline the broker counts as gone."""
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

"""Writing in an event loop."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from operator import index

from mtl.client.aio.waiting import run_operation
from mtl.client.control import Outcome
from mtl.client.limits import LEAVE_S, MAX_UNSENT
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.client.writer_part import WriterPart
from mtl.client.writing import Patience, WritingLease
from mtl.errors import Closed, ContentRefused, ContentTooLarge, FieldError, Malformed, MtlError
from mtl.wire import control
from mtl.wire.commands import packed_properties
from mtl.wire.fields import Buffer, Value, decode_table
from mtl.wire.packs import encode_pack, pack_size


def _check_table(table: bytes) -> None:
    """`FieldError` for octets that are not a table: the broker would drop their content without an answer (MTL-111)."""
    try:
        decode_table(table)
    except Malformed as error:
        raise FieldError(f"properties are not an encoded table: {error}") from error


class Writer(WritingLease):
    """A lease to write to one resource, or to several; for any number of tasks of one event loop.

    `send` returns the publishing number once the content is in the window; `settled` waits until it is durable, and
    `flush` until all contents are. Tasks may wait for any number of contents at the same time.

    Errors are those of the blocking writer, except `ContentRefused`: `settled` of the content's number raises it, or
    `flush` for contents without a call of `settled`.
    """

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        part: WriterPart,
        closed: Callable[[], None],
    ) -> None:
        super().__init__(loop, settings, part, closed)
        self._events = asyncio.get_running_loop()
        self._send_order = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._awaited: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._refused: dict[int, str] = {}
        self._watch: asyncio.TimerHandle | None = None
        part.listener = self._settle_futures

    # --- sending --------------------------------------------------------------------------------------------

    async def send(
        self, body: Buffer, properties: Mapping[str, Value] | None = None, *, resource: str | None = None
    ) -> int:
        """Publish one content and return its number. Waits while the window of unconfirmed contents is full."""
        return await self._offer_until_accepted(lambda: self._offer(body, properties, resource))

    async def send_run(
        self, bodies: Sequence[bytes], tables: Sequence[bytes], *, resource: str | None = None
    ) -> int:
        """Publish contents as one unit and return the number of the last. They are confirmed or refused together, so
        `settled` of that number waits for all. `tables` are their properties (`encode_properties`). On a packed lease.

        Waits as `send` does. Raises `ContentTooLarge` for a content, or a run that has to be split.
        """
        return await self._offer_until_accepted(lambda: self._offer_run(bodies, tables, resource))

    async def _offer_until_accepted(self, offer: Callable[[], int | None]) -> int:
        # tasks are served in the order of their calls, even while some wait for room
        async with self._send_order:
            while True:
                number = offer()
                if number is not None:
                    return number
                self._room = self._events.create_future()
                self._expect()
                try:
                    await self._room
                finally:
                    self._room = None

    def settled(self, number: int) -> asyncio.Future[None]:
        """A future: done when the content of this number is durable, `ContentRefused` if it was rejected for good."""
        future: asyncio.Future[None] = self._events.create_future()
        heapq.heappush(self._awaited, (index(number), next(self._order), future))
        self._settle_futures()
        self._expect()
        return future

    async def flush(self) -> None:
        """Wait until all contents are durable. Raises `ContentRefused` for a content without a call of `settled`."""
        self._check()
        self._loop.post(self._part.push)
        await self.settled(self._part.handover.end.last)
        if self._refused:
            number, resource = self._refused.popitem()
            raise ContentRefused(resource, number)

    # --- offers, which are accepted if there is room --------------------------------------------------------

    def _offer(
        self, body: Buffer, properties: Mapping[str, Value] | None, resource: str | None
    ) -> int | None:
        name, table, octets = self._checked(body, properties, resource)
        self._check()
        if self._would_wait(1, self._size(len(octets) + len(table))):
            return None
        return self._accept(name, table, octets)

    def _offer_run(
        self, bodies: Sequence[bytes], tables: Sequence[bytes], resource: str | None
    ) -> int | None:
        self._check_packed()
        name = self._named(resource)
        if len(bodies) != len(tables) or not all(isinstance(octets, bytes) for octets in (*bodies, *tables)):
            raise TypeError("send_run needs the bodies and as many tables, all of them bytes")
        largest = max(map(len, bodies))
        if largest > self._part.max_content:
            raise ContentTooLarge(largest, self._part.max_content)
        self._check()
        count = len(bodies)
        size = pack_size(count, sum(map(len, bodies)) + sum(map(len, tables)))
        if self._would_wait(count, size):
            return None
        if count == 1:
            _check_table(tables[0])
            return self._publish(name, tables[0], bodies[0], 1, size)
        body = encode_pack(bodies, tables, self._part.max_pack)
        return self._publish(name, packed_properties(count), body, count, len(body))

    def _would_wait(self, contents: int, size: int) -> bool:
        """Whether there is no room for `contents` contents of `size` octets."""
        part = self._part
        if not self._has_room(contents, size):
            self._loop.post(part.push)  # a pack that is not full may hold the room
            return True
        return not self._packed and part.handover.end.last - part.sent >= MAX_UNSENT and part.sending

    def _await_room(self, count: int, size: int) -> None:
        """No effect: there is room, as `_would_wait` has found."""

    def _await_sent(self, number: int) -> None:
        """No effect: the loop sends between two calls, and `_would_wait` has limited the unsent contents."""

    # --- the end --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Flush and end the lease. May be called again. Raises the error that ended the writer before the flush."""
        if not self._open:
            return
        try:
            if self.error is None or self.unconfirmed:
                await self.flush()
        except BaseException:  # also when cancelled: the lease must not outlive its writer
            await self.abandon()
            raise
        await self._end_quietly(self._part.close, self._settings.request_timeout)

    async def seal(self) -> control.StageSealed:
        """Flush, close, and seal the stage: its public id, the contents for each resource, its octets on disk. Raises
        `LocalError` for a writer without a stage.
        """
        self._check_stage()
        await self.flush()
        return self._sealed(await self._end_lease(partial(self._part.seal, within=None)))

    async def abandon(self) -> None:
        """End without a wait: unconfirmed contents may be lost."""
        await self._abandon(self._settings.request_timeout)

    async def leave(self, *, failed: bool) -> None:
        """Close at the end of a block; abandon without a long wait if the block `failed`."""
        await (self._abandon(LEAVE_S) if failed else self.close())

    async def _abandon(self, within: float) -> None:
        if self._open:
            await self._end_quietly(self._part.abandon, within)

    async def _end_quietly(self, operation: Callable[..., None], within: float) -> None:
        try:
            await self._end_lease(partial(operation, within=within))
        except MtlError:
            pass  # the writer has ended either way; the lease expires

    async def _end_lease(self, operation: Callable[[Callable[[Outcome], None]], None]) -> control.Reply:
        self._open = False
        try:
            return await run_operation(self._loop, operation)
        finally:
            self._fail(Closed("the writer is closed"))
            self._closed()

    # --- settling -------------------------------------------------------------------------------------------

    def _settle_futures(self) -> None:
        """Settle the futures of confirmed and refused contents. Called in the loop."""
        part = self._part
        confirmed = part.confirmed
        while part.rejected:
            refused = part.rejected.popleft()
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
        if self.error is not None:
            self._fail(self.error)
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
        if self._watch is None:
            self._check_progress(Patience(self._settings.retry_deadline))

    def _check_progress(self, patience: Patience) -> None:
        self._watch = None
        if not self._awaited and self._room is None:
            return
        left = patience.seconds_left(self._part.writer.progressed)
        if left <= 0:
            self._fail(self._stalled(patience, "waiting for Confirms"))
        else:
            self._watch = self._events.call_later(left, self._check_progress, patience)

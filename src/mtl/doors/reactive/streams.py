"""The client's readers and writers: one stream of elements, and one of confirmations against one of elements."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from mtl.doors.clients import Inbox, Reading, settle
from mtl.doors.limits import RS_PART
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.names import SEQUENCE_OCTETS
from mtl.doors.received import Received
from mtl.errors import Closed, ContentTooLarge, MtlError
from mtl.limits import MAX_CONTENT
from mtl.wire.fields import Buffer


class Stream(ABC):
    """A subscription of ours; `id` is its Id. It begins with `subscribed`, and ends once."""

    id = -1

    def __init__(self, link: ReactiveLink, resource: str, forget: Callable[[Stream], None]) -> None:
        self.resource = resource
        self.error: MtlError | None = None
        """What ended it."""
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._link = link
        self._forget = forget

    def begun(self) -> None:  # noqa: B027 a writer waits for the door to subscribe to its elements, too
        """The door said `subscribed`."""

    @abstractmethod
    def arrived(self, elements: tuple[bytes, ...]) -> None:
        """Elements came."""

    def failed(self, error: MtlError) -> None:
        """It is over. Harmless when repeated."""
        if self.error is None:
            self.error = error
            settle(self.opened, error)
            self._over(error)

    def cancel(self) -> None:
        """End it from our side. Harmless when repeated."""
        self._forget(self)
        if self.error is None:
            self._link.session.subscribing.cancel(self.id)
            self._link.flush()
        self.failed(Closed(f"this end of {self.resource!r} is closed"))

    @abstractmethod
    def _over(self, error: MtlError) -> None:
        """Pass the error to the waiting tasks."""


class ReactiveReader(Reading, Stream):
    """The contents of one resource, in order. A content that was read is not requested again."""

    def __init__(
        self, link: ReactiveLink, resource: str, forget: Callable[[Stream], None], window: int
    ) -> None:
        super().__init__(link, resource, forget)
        self.position: int | None = None
        """Where another reader goes on: behind the last content that was taken."""
        self._inbox: Inbox[Received] = Inbox(window)  # never above `window`, which is the demand
        self._renewal = (window + 1) // 2
        self._taken = 0

    async def next(self) -> Received:
        """The next content; waits for ever. Raises `Refused` with the door's words, `Unreachable`, `Closed`."""
        one = await self._inbox.take()
        self._taken += 1
        if self._taken == self._renewal and self.error is None:
            self._link.session.subscribing.request(self.id, self._taken)
            self._link.flush()
            self._taken = 0
        assert one.sequence is not None
        self.position = one.sequence + 1
        return one

    async def close(self) -> None:
        """Cancel. Harmless when repeated."""
        self.cancel()

    def begun(self) -> None:
        """Whatever is published from now on is read. A refusal would follow at once, in the same octets."""
        self._loop.call_soon(settle, self.opened)

    def arrived(self, elements: tuple[bytes, ...]) -> None:
        """Contents, each behind its sequence."""
        self._inbox.put_all(
            [
                Received(
                    self.resource,
                    int.from_bytes(element[:SEQUENCE_OCTETS], "big"),
                    element[SEQUENCE_OCTETS:],
                )
                for element in elements
            ]
        )

    def _over(self, error: MtlError) -> None:
        self._inbox.fail(error)


class ReactiveWriter(Stream):
    """Contents to one resource. `flush` waits until all of them are durable."""

    def __init__(self, link: ReactiveLink, resource: str, forget: Callable[[Stream], None]) -> None:
        super().__init__(link, resource, forget)
        self._elements = -1
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._together: list[bytes] = []
        """Contents that leave together at the end of this turn of the event loop; of at most RS_PART octets."""
        self._octets = 0
        self._unconfirmed: deque[asyncio.Future[None]] = deque()
        self._confirmed = 0
        self._complete = False

    async def send(self, body: Buffer) -> asyncio.Future[None]:
        """Send one content; await the result until it is durable, or `flush` for all. Waits while there is no demand.

        Raises, here or from the result, `ContentTooLarge`, `Refused` with the door's words, `Unreachable` when it is
        unknown whether it was stored, `Closed`. A cancellation while the content is being sent ends the writer.
        """
        if len(body) > MAX_CONTENT:
            raise ContentTooLarge(len(body), MAX_CONTENT)
        async with self._turn:  # contents are confirmed in the order of their sending
            await self._wanted()
            settled: asyncio.Future[None] = self._loop.create_future()
            self._unconfirmed.append(settled)
            if len(body) <= RS_PART:
                self._join(body)
            try:
                if len(body) > RS_PART:
                    self._leave()
                    await self._link.publish(self._elements, body)
                elif self._octets > RS_PART:
                    self._leave()
                    await self._link.drained()
            except BaseException:  # also when cancelled
                self.cancel()  # it may be half sent, and confirmations are numbers
                raise
        return settled

    async def _wanted(self) -> None:
        """Wait for demand. Raises the error that ended the writer."""
        publishing = self._link.session.publishing
        while (
            self.error is None
            and not self._complete
            and publishing.demand(self._elements) <= len(self._together)
        ):
            self._wake.clear()
            await self._wake.wait()
        if self.error is not None:
            raise self.error
        if self._complete:
            raise Closed("the writer is closed")

    def _join(self, body: Buffer) -> None:
        if not self._together:
            self._loop.call_soon(self._leave)
        self._together.append(bytes(body))
        self._octets += len(body)

    def _leave(self) -> None:
        """Send the collected contents together."""
        together, self._together, self._octets = self._together, [], 0
        if together and self.error is None:
            self._link.session.publishing.publish_all(self._elements, together)
            self._link.flush()
            self._wake.set()  # demand may have come that they left over

    async def flush(self) -> None:
        """Wait until everything is durable. Raises what ended the writer before."""
        if self._unconfirmed:
            await asyncio.wait(set(self._unconfirmed))
        if self.error is not None:
            raise self.error

    async def leave(self, *, failed: bool) -> None:
        """Close, or after an error of the block cancel."""
        if failed:
            self.cancel()
        else:
            await self.close()

    async def close(self) -> None:
        """Flush, and end. Harmless when repeated. Raises what ended the writer before everything was durable."""
        if self._complete:
            return
        await self.flush()
        self._complete = True
        self._link.session.publishing.complete(self._elements)
        self._link.flush()
        await self._ended.wait()

    def ready(self, elements: int) -> None:
        """The door has subscribed to the elements, under this Id of its."""
        self._elements = elements
        settle(self.opened)

    def demanded(self) -> None:
        """The door wants more."""
        self._wake.set()

    def arrived(self, elements: tuple[bytes, ...]) -> None:
        """Confirmations arrived: each element is the number of a durable content, counted from 1."""
        told = max(int.from_bytes(element, "big") for element in elements)
        while self._confirmed < told and self._unconfirmed:
            self._confirmed += 1
            settle(self._unconfirmed.popleft())

    def _over(self, error: MtlError) -> None:
        for settled in self._unconfirmed:
            settle(settled, error)
        self._unconfirmed.clear()
        self._wake.set()
        self._ended.set()

"""The client's readers and writers. A reader is one stream, a writer two: confirmations and contents."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from mtl.doors.clients import ContentReader, Inbox, settle
from mtl.doors.limits import RS_PART
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.names import SEQUENCE_OCTETS
from mtl.doors.received import Received
from mtl.errors import Closed, ContentTooLarge, Malformed, MtlError
from mtl.limits import MAX_CONTENT
from mtl.wire.fields import Buffer


class Stream(ABC):
    """A subscription of the client; `id` is its Id. It begins with `subscribed`, and ends once."""

    id = -1

    def __init__(self, link: ReactiveLink, resource: str, forget: Callable[[Stream], None]) -> None:
        self.resource = resource
        self.error: MtlError | None = None
        """The error that ended it."""
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._link = link
        self._forget = forget

    def subscribed(self) -> None:  # noqa: B027 a writer waits for the door to subscribe to its elements, too
        """Handle `subscribed`."""

    @abstractmethod
    def handle_elements(self, elements: tuple[bytes, ...]) -> None:
        """Handle elements."""

    def failed(self, error: MtlError) -> None:
        """End with an error. Harmless when repeated."""
        if self.error is None:
            self.error = error
            settle(self.opened, error)
            self._handle_end(error)

    def cancel(self) -> None:
        """End it from this side. Harmless when repeated."""
        self._forget(self)
        if self.error is None:
            self._link.session.subscribing.cancel(self.id)
            self._link.flush()
        self.failed(Closed(f"this end of {self.resource!r} is closed"))

    @abstractmethod
    def _handle_end(self, error: MtlError) -> None:
        """Pass the error to the waiting tasks."""


class ReactiveReader(ContentReader, Stream):
    """The contents of one resource, in order. A content that was read is not requested again."""

    def __init__(
        self, link: ReactiveLink, resource: str, forget: Callable[[Stream], None], window: int
    ) -> None:
        super().__init__(link, resource, forget)
        self.position: int | None = None
        """The start of another reader that continues: after the last content that `next` returned."""
        self._inbox: Inbox[Received] = Inbox(window)  # the demand is `window`, so it is never exceeded
        self._renewal = (window + 1) // 2
        self._consumed = 0

    async def next(self) -> Received:
        """The next content; waits for it. Raises `Refused` with the door's message, `Unreachable`, `Closed`."""
        received = await self._inbox.get()
        self._consumed += 1
        if self._consumed == self._renewal and self.error is None:
            self._link.session.subscribing.request(self.id, self._consumed)
            self._link.flush()
            self._consumed = 0
        assert received.sequence is not None
        self.position = received.sequence + 1
        return received

    async def close(self) -> None:
        """Cancel. Harmless when repeated."""
        self.cancel()

    def subscribed(self) -> None:
        """From now on every published content is read. A refusal would follow at once, in the same octets."""
        self._loop.call_soon(settle, self.opened)

    def handle_elements(self, elements: tuple[bytes, ...]) -> None:
        """Contents, each behind its sequence. Raises `Malformed` for an element without one."""
        if any(len(element) < SEQUENCE_OCTETS for element in elements):
            raise Malformed(
                f"an element of less than {SEQUENCE_OCTETS} octets, those of a content's sequence"
            )
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

    def _handle_end(self, error: MtlError) -> None:
        self._inbox.fail(error)


class ReactiveWriter(Stream):
    """Contents to one resource. `flush` waits until all of them are durable."""

    def __init__(self, link: ReactiveLink, resource: str, forget: Callable[[Stream], None]) -> None:
        super().__init__(link, resource, forget)
        self._elements = -1
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._collected: list[bytes] = []
        """Contents that are sent together at the end of this turn of the event loop; of at most RS_PART octets."""
        self._octets = 0
        self._unconfirmed: deque[asyncio.Future[None]] = deque()
        self._confirmed = 0
        self._complete = False

    async def send(self, body: Buffer) -> asyncio.Future[None]:
        """Send one content; await the result until it is durable, or `flush` for all. Waits while there is no demand.

        Raises, here or from the result, `ContentTooLarge`, `Refused` with the door's message, `Unreachable` when it is
        unknown whether it was stored, `Closed`. A cancellation while the content is being sent ends the writer.
        """
        if len(body) > MAX_CONTENT:
            raise ContentTooLarge(len(body), MAX_CONTENT)
        async with self._turn:  # contents are confirmed in the order of their sending
            await self._wait_for_demand()
            settled: asyncio.Future[None] = self._loop.create_future()
            self._unconfirmed.append(settled)
            if len(body) <= RS_PART:
                self._collect(body)
            try:
                if len(body) > RS_PART:
                    self._send_collected()
                    await self._link.publish(self._elements, body)
                elif self._octets > RS_PART:
                    self._send_collected()
                    await self._link.wait_drained()
            except BaseException:  # also when cancelled
                self.cancel()  # a part of it may be sent, and confirmations are counted
                raise
        return settled

    async def _wait_for_demand(self) -> None:
        """Wait for demand. Raises the error that ended the writer."""
        publishing = self._link.session.publishing
        while (
            self.error is None
            and not self._complete
            and publishing.demand(self._elements) <= len(self._collected)
        ):
            self._wake.clear()
            await self._wake.wait()
        if self.error is not None:
            raise self.error
        if self._complete:
            raise Closed("the writer is closed")

    def _collect(self, body: Buffer) -> None:
        if not self._collected:
            self._loop.call_soon(self._send_collected)
        self._collected.append(bytes(body))
        self._octets += len(body)

    def _send_collected(self) -> None:
        """Send the collected contents together."""
        together, self._collected, self._octets = self._collected, [], 0
        if together and self.error is None:
            self._link.session.publishing.publish_all(self._elements, together)
            self._link.flush()
            self._wake.set()  # there may be demand left

    async def flush(self) -> None:
        """Wait until everything is durable. Raises the error that ended the writer."""
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
        """Flush, and end. Harmless when repeated. Raises the error that ended the writer before that."""
        if self._complete:
            return
        await self.flush()
        self._complete = True
        self._link.session.publishing.complete(self._elements)
        self._link.flush()
        await self._ended.wait()

    def accepted(self, elements: int) -> None:
        """The door has subscribed to the elements; `elements` is the Id that it chose."""
        self._elements = elements
        settle(self.opened)

    def handle_demand(self) -> None:
        """The door has requested more contents."""
        self._wake.set()

    def handle_elements(self, elements: tuple[bytes, ...]) -> None:
        """Confirmations arrived: each element is the number of a durable content, counted from 1."""
        confirmed = max(int.from_bytes(element, "big") for element in elements)
        while self._confirmed < confirmed and self._unconfirmed:
            self._confirmed += 1
            settle(self._unconfirmed.popleft())

    def _handle_end(self, error: MtlError) -> None:
        for settled in self._unconfirmed:
            settle(settled, error)
        self._unconfirmed.clear()
        self._wake.set()
        self._ended.set()

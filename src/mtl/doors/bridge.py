"""The inner side of a door: its peers' contents to the broker, and the broker's to its peers.

Publishing has two steps. `publish` returns when the content is on its way, so a peer's contents stay in order and many
are under way at once. The future that it returns is done when the broker's Confirm arrives, i.e. when the content is
synced. A door acknowledges a content only then.

Memory: unconfirmed contents from peers are bounded by one budget for all peers, contents that were read and not sent
by a small window per subscription. A slow peer waits; the contents that it has not read stay in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Protocol, TypeVar

from mtl.client.aio import Connection, Reader, Writer
from mtl.client.contents import Content
from mtl.client.incoming import Start
from mtl.doors.budget import Budget
from mtl.doors.failure_log import FailureLog, PeerAddress
from mtl.doors.limits import (
    DOOR_INBOUND,
    DOOR_READER_CONTENTS,
    DOOR_READER_OCTETS,
    DOOR_RUN_CONTENTS,
    DOOR_RUN_OCTETS,
    DOOR_SUBSCRIPTIONS,
    DOOR_WRITER_OCTETS,
    DOOR_WRITERS,
)
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.runs import ContentRun
from mtl.doors.writers import ResourceWriters
from mtl.errors import Closed, MtlError, Refused
from mtl.limits import ARRIVAL_OVERHEAD
from mtl.wire.control import OVERLOADED, UNKNOWN_RESOURCE
from mtl.wire.fields import Buffer, Value, encode_properties

T = TypeVar("T")

_TRIES = 2
"""A writer may be closed between lookup and use, to make room for another resource's writer."""


class Shares:
    """State shared by all bridges of a door: the budget, the number of subscriptions, the log of their failures."""

    def __init__(self) -> None:
        self.inbound = Budget(DOOR_INBOUND)
        self.subscriptions = 0
        self.failures = FailureLog(time.monotonic)


class Bridge:
    """A door's connection to the broker as one user. `opening` opens it at the first use, and again after `leave`.
    `create` are patterns (* ? [...]) of resource names; a missing resource with such a name is created on request.
    """

    def __init__(
        self, opening: Callable[[], Awaitable[Connection]], create: Sequence[str], shares: Shares
    ) -> None:
        self._opening = opening
        self._opened: asyncio.Task[Connection] | None = None
        self._create = create
        self._shares = shares
        self._inbound = shares.inbound
        self._writers = ResourceWriters(self._open_writer, DOOR_WRITERS)
        self._held = 0
        """Unconfirmed octets, and the number of subscriptions."""

    @property
    def idle(self) -> bool:
        """Whether no content is under way and there are no subscriptions."""
        return not self._held

    async def connection(self) -> Connection:
        """The connection. Raises the errors of opening it; the next call tries again."""
        if self._opened is None or (self._opened.done() and self._opened.exception() is not None):
            self._opened = asyncio.ensure_future(self._open())
        return await asyncio.shield(self._opened)

    async def _open(self) -> Connection:
        return await self._opening()

    async def publish(
        self, resource: str, body: Buffer, properties: Mapping[str, Value] | None = None
    ) -> asyncio.Future[None]:
        """Send a content to the broker; await the result for its Confirm.

        Raises, here or from the result, `Refused` (404 no such resource), `ContentTooLarge`, `FieldError` for
        invalid properties, `ContentRefused`, and `Unreachable` when it is unknown whether the content was stored.
        """
        run = ContentRun(resource)
        run.add(bytes(body), encode_properties(properties))
        return await self.publish_run(run)

    async def publish_run(self, run: ContentRun) -> asyncio.Future[None]:
        """As `publish`, for several contents of one resource: they are confirmed, or refused, together."""
        size = run.octets + len(run.bodies) * ARRIVAL_OVERHEAD
        await self._inbound.acquire(size)
        self._held += size
        try:
            settled = await self._send_run(run)
        except BaseException:  # also when cancelled: the contents were not sent
            self._release(size)
            raise
        settled.add_done_callback(lambda _: self._release(size))
        return settled

    def _release(self, size: int) -> None:
        self._held -= size
        self._inbound.release(size)

    async def _send_run(self, run: ContentRun) -> asyncio.Future[None]:
        for left in reversed(range(_TRIES)):
            writer = await self._writers.get(run.resource)
            try:
                return writer.settled(await writer.send_run(run.bodies, run.tables))
            except Closed:
                if not left:
                    raise
        raise AssertionError

    async def subscribe(
        self, peer: PeerAddress, resource: str, start: Start, incarnation: str | None = None
    ) -> Subscription:
        """Read contents from `start` on, for a peer; the reader has begun when this returns. Contents that retention
        removes meanwhile are skipped. A failure is logged, also a later one.

        Raises `Refused`: 404 no such resource, 409 another `incarnation`, 503 when the door has too many subscriptions
        already.
        """
        return await self._open_subscription(
            peer,
            resource,
            lambda connection: connection.reader(
                resource,
                start=start,
                incarnation=incarnation,
                skip_lost=True,
                window_contents=DOOR_READER_CONTENTS,
                window_bytes=DOOR_READER_OCTETS,
            ),
        )

    async def consume(
        self, peer: PeerAddress, resource: str, window: int = DOOR_READER_CONTENTS
    ) -> Subscription:
        """Consume `QueuedContent`s of the resource's default queue. Each must be answered, and no other consumer gets
        it until then. At most `window` of them are unanswered.

        Raises the errors of `subscribe`.
        """
        return await self._open_subscription(
            peer,
            resource,
            lambda connection: connection.consumer(
                resource, window_contents=window, window_bytes=DOOR_READER_OCTETS
            ),
        )

    async def _open_subscription(
        self, peer: PeerAddress, resource: str, opening: Callable[[Connection], Awaitable[Source]]
    ) -> Subscription:
        failed = partial(self._shares.failures.record, peer, resource)
        if self._shares.subscriptions >= DOOR_SUBSCRIPTIONS:
            full = DoorRefusal(503, OVERLOADED, f"{DOOR_SUBSCRIPTIONS} subscriptions are this door's limit")
            failed(full)
            raise full
        self._shares.subscriptions += 1
        self._held += 1
        try:
            source = await self._open_lease(resource, opening)
        except BaseException as error:  # also when cancelled: there is no subscription
            self._ended()
            if isinstance(error, MtlError):
                failed(error)
            raise
        return Subscription(source, self._ended, failed)

    def _ended(self) -> None:
        self._shares.subscriptions -= 1
        self._held -= 1

    async def close(self) -> None:
        """Flush all contents and close the writers. Subscriptions are closed by their owners."""
        await self._writers.close()

    async def leave(self) -> None:
        """Flush, and close the connection."""
        await self.close()
        await self._end(lambda connection: connection.close())

    async def drop(self) -> None:
        """Close the connection at once; unconfirmed contents may be lost."""
        await self._end(lambda connection: connection.drop())

    async def _end(self, end: Callable[[Connection], Awaitable[None]]) -> None:
        opened, self._opened = self._opened, None
        if opened is None:
            return
        try:
            await end(await opened)
        except MtlError:
            pass  # it never opened; the caller of `connection` got the error

    async def _open_writer(self, resource: str) -> Writer:
        return await self._open_lease(
            resource,
            lambda connection: connection.writer(resource, packed=True, window_bytes=DOOR_WRITER_OCTETS),
        )

    async def _open_lease(self, resource: str, opening: Callable[[Connection], Awaitable[T]]) -> T:
        """Open a lease; if the resource is missing and may be created, create it and try again."""
        connection = await self.connection()
        try:
            return await opening(connection)
        except Refused as refused:
            if refused.reason != UNKNOWN_RESOURCE or not self.creates(resource):
                raise
        await connection.create_resource(resource, exist_ok=True)
        return await opening(connection)

    def creates(self, resource: str) -> bool:
        """Whether a missing resource of this name is created on request."""
        return any(fnmatchcase(resource, pattern) for pattern in self._create)


class Source(Protocol):
    """A reader or a consumer."""

    async def next(self) -> Content | None:
        """The next content."""

    async def some(self, contents: int, octets: int) -> Sequence[Content]:
        """The next content, and those that are available with it."""

    async def close(self) -> None:
        """End the lease."""


class Subscription:
    """A reader or consumer that counts against the door's limit until it is closed."""

    def __init__(self, source: Source, ended: Callable[[], None], failed: Callable[[MtlError], None]) -> None:
        self._source = source
        self._ended: Callable[[], None] | None = ended
        self._failed = failed

    async def some(self) -> Sequence[Content]:
        """The next content and those that are available with it, up to a door's limit per read. Never ends."""
        try:
            return await self._source.some(DOOR_RUN_CONTENTS, DOOR_RUN_OCTETS)
        except MtlError as error:
            if self._ended is not None:
                self._failed(error)
            raise

    @property
    def place(self) -> tuple[int | None, str | None]:
        """For a reader: the sequence of the next content, and the incarnation of the resource."""
        source = self._source
        return (source.position, source.incarnation) if isinstance(source, Reader) else (None, None)

    async def close(self) -> None:
        """End the lease. Harmless when repeated."""
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()
        await self._source.close()

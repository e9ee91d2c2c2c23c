"""One peer at a door, from its log-in to its end: its contents and subscriptions, counted for its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from mtl.client.aio import Connection, Reader
from mtl.client.contents import Content
from mtl.client.reader_part import Start
from mtl.doors.arriving import Arriving
from mtl.doors.bridge import Bridge
from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import DOOR_READER_CONTENTS, DOOR_RUN_CONTENTS, DOOR_RUN_OCTETS
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.pools import Shares
from mtl.doors.runs import ContentRun
from mtl.doors.unsent import SlowSubscription
from mtl.errors import MtlError
from mtl.limits import ARRIVAL_OVERHEAD
from mtl.wire.control import OVERLOADED
from mtl.wire.fields import Buffer, Value, encode_properties


class PeerSession:
    """A session that counts for the owner of `peer` until `end`. Raises `DoorRefusal` when the owner, or the door, has
    too many.
    """

    def __init__(self, bridge: Bridge, shares: Shares, peer: PeerAddress) -> None:
        self.peer = peer
        self.owner = shares.owner(peer)
        shares.sessions.take(self.owner)
        self._bridge = bridge
        self._shares = shares
        self._ended = False

    def arriving(self) -> Arriving:
        """The reservation of a connection of this peer for its incomplete messages."""
        return Arriving(self._shares.arriving, self.owner)

    def end(self) -> None:
        """The peer has gone: the session counts no more. Its contents under way and its subscriptions do until they
        end. Harmless when repeated.
        """
        if not self._ended:
            self._ended = True
            self._shares.sessions.free(self.owner)

    async def publish(
        self, resource: str, body: Buffer, properties: Mapping[str, Value] | None = None
    ) -> asyncio.Future[None]:
        """Send a content to the broker, as `Bridge.publish`; waits while the owner has too much under way."""
        run = ContentRun(resource)
        run.add(bytes(body), encode_properties(properties))
        return await self.publish_run(run)

    async def publish_run(self, run: ContentRun) -> asyncio.Future[None]:
        """As `publish`, for several contents of one resource: they are confirmed, or refused, together."""
        size = run.octets + len(run.bodies) * ARRIVAL_OVERHEAD
        inbound = self._shares.inbound
        await inbound.acquire(size, self.owner)
        try:
            settled = await self._bridge.publish_run(run)
        except BaseException:  # also when cancelled: the contents were not sent
            inbound.release(size, self.owner)
            raise
        settled.add_done_callback(lambda _: inbound.release(size, self.owner))
        return settled

    async def subscribe(
        self, resource: str, start: Start, incarnation: str | None = None, *, end: Callable[[], None]
    ) -> Subscription:
        """Read contents from `start` on; the reader has begun when this returns. Contents that retention removes
        meanwhile are skipped. A failure is logged, also a later one. `end` is called if the peer receives too slowly:
        it ends the subscription, or the connection.

        Raises `Refused`: 404 no such resource, 409 another `incarnation`, 403 when the owner and 503 when the door has
        too many subscriptions already.
        """
        return await self._open_subscription(
            resource,
            lambda connection, window: connection.reader(
                resource,
                start=start,
                incarnation=incarnation,
                skip_lost=True,
                window_contents=DOOR_READER_CONTENTS,
                window_bytes=window,
            ),
            end,
        )

    async def consume(
        self, resource: str, contents: int = DOOR_READER_CONTENTS, *, end: Callable[[], None]
    ) -> Subscription:
        """Consume `QueuedContent`s of the resource's default queue. Each must be answered, and no other consumer gets
        it until then. At most `contents` of them are unanswered. `end` as in `subscribe`.

        Raises the errors of `subscribe`.
        """
        return await self._open_subscription(
            resource,
            lambda connection, window: connection.consumer(
                resource, window_contents=contents, window_bytes=window
            ),
            end,
        )

    async def _open_subscription(
        self,
        resource: str,
        opening: Callable[[Connection, int], Awaitable[Source]],
        end: Callable[[], None],
    ) -> Subscription:
        failed = partial(self._shares.failures.record, self.peer, resource)
        try:
            self._shares.subscriptions.take(self.owner)
        except DoorRefusal as full:
            failed(full)
            raise
        self._bridge.uses += 1
        window = self._shares.windows.take(self.owner)
        ended = partial(self._handle_subscription_end, window)
        try:
            source = await self._bridge.open_lease(resource, lambda connection: opening(connection, window))
        except BaseException as error:  # also when cancelled: there is no subscription
            ended()
            if isinstance(error, MtlError):
                failed(error)
            raise
        return Subscription(
            source, ended, failed, partial(self._shares.unsent.replace, owner=self.owner), end
        )

    def _handle_subscription_end(self, window: int) -> None:
        self._shares.windows.free(self.owner, window)
        self._shares.subscriptions.free(self.owner)
        self._bridge.uses -= 1


class Source(Protocol):
    """A reader or a consumer."""

    async def next(self) -> Content | None:
        """The next content."""

    async def some(self, contents: int, octets: int) -> Sequence[Content]:
        """The next content, and those that are available with it."""

    async def close(self) -> None:
        """End the lease."""


class CountUnsent(Protocol):
    """Counts the octets that a subscription has taken."""

    def __call__(self, subscription: SlowSubscription, *, octets: int) -> None:
        """See `Unsent.replace`."""


class Subscription:
    """A reader or consumer that counts against the door's limit until it is closed."""

    def __init__(
        self,
        source: Source,
        ended: Callable[[], None],
        failed: Callable[[MtlError], None],
        count: CountUnsent,
        end_peer: Callable[[], None],
    ) -> None:
        self._source = source
        self._ended: Callable[[], None] | None = ended
        self._failed = failed
        self._count = count
        self._end_peer = end_peer

    async def some(self) -> Sequence[Content]:
        """The next content and those that are available with it, up to a door's limit per read. Never ends. Those of
        the call before count as sent.
        """
        try:
            self._count(self, octets=0)
            contents = await self._source.some(DOOR_RUN_CONTENTS, DOOR_RUN_OCTETS)
            self._count(self, octets=sum(len(content.body) for content in contents))
            return contents
        except MtlError as error:
            if self._ended is not None:
                self._failed(error)
            raise

    @property
    def place(self) -> tuple[int | None, str | None]:
        """For a reader: the sequence of the next content, and the incarnation of the resource."""
        source = self._source
        return (source.position, source.incarnation) if isinstance(source, Reader) else (None, None)

    def end_slow(self) -> None:
        """The peer receives too slowly."""
        self._failed(DoorRefusal(503, OVERLOADED, "the peers of its user have too many contents to receive"))
        asyncio.get_running_loop().call_soon(self._end_peer)  # it may end the task that calls this

    async def close(self) -> None:
        """End the lease. Harmless when repeated."""
        self._count(self, octets=0)
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()
        await self._source.close()

"""The inner side of a door: its peers' contents to the broker, and the broker's to its peers. `peer_session` has the
part of each peer.

Publishing has two steps. `publish` returns when the content is on its way, so a peer's contents stay in order and many
are under way at once. The future that it returns is done when the broker's Confirm arrives, i.e. when the content is
synced. A door acknowledges a content only then.

Memory: unconfirmed contents from peers are bounded by one budget with a share for each owner (`pools`), contents that
were read and not sent by a small window per subscription. A slow peer waits; the contents that it has not read stay in
the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from mtl.client.aio import Connection, Writer
from mtl.doors.limits import DOOR_WRITER_OCTETS, DOOR_WRITERS
from mtl.doors.runs import ContentRun
from mtl.doors.writers import ResourceWriters
from mtl.errors import Closed, MtlError, Refused
from mtl.wire.control import UNKNOWN_RESOURCE
from mtl.wire.fields import Buffer, Value, encode_properties

T = TypeVar("T")

_TRIES = 2
"""A writer may be closed between lookup and use, to make room for another resource's writer."""


class Bridge:
    """A door's connection to the broker as one user. `opening` opens it at the first use, and again after `leave`.
    `create` are patterns (* ? [...]) of resource names; a missing resource with such a name is created on request.
    """

    def __init__(self, opening: Callable[[], Awaitable[Connection]], create: Sequence[str]) -> None:
        self._opening = opening
        self._opened: asyncio.Task[Connection] | None = None
        self._create = create
        self._writers = ResourceWriters(self._open_writer, DOOR_WRITERS)
        self.uses = 0
        """The number of runs under way and of subscriptions."""

    @property
    def idle(self) -> bool:
        """Whether no content is under way and there are no subscriptions."""
        return not self.uses

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
        self.uses += 1
        try:
            settled = await self._send_run(run)
        except BaseException:  # also when cancelled: the contents were not sent
            self.uses -= 1
            raise
        settled.add_done_callback(self._handle_settled)
        return settled

    def _handle_settled(self, _: asyncio.Future[None]) -> None:
        self.uses -= 1

    async def _send_run(self, run: ContentRun) -> asyncio.Future[None]:
        for left in reversed(range(_TRIES)):
            writer = await self._writers.get(run.resource)
            try:
                return writer.settled(await writer.send_run(run.bodies, run.tables))
            except Closed:
                if not left:
                    raise
        raise AssertionError

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
        return await self.open_lease(
            resource,
            lambda connection: connection.writer(resource, packed=True, window_bytes=DOOR_WRITER_OCTETS),
        )

    async def open_lease(self, resource: str, opening: Callable[[Connection], Awaitable[T]]) -> T:
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

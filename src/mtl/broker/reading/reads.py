"""Queries of logs: answered from memory at once, or by a read of the storage engine.

The core never waits for a disk: a read is an action, and its result comes later. A slow read delays only the request or
the reader that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar, cast

from mtl.broker.outbox import Outbox
from mtl.broker.reading.stored import stored_pack
from mtl.broker.steps import gather
from mtl.broker.writing.resource import Resource
from mtl.errors import Refused, StorageError
from mtl.storage.api import Asks, ByTime, ChunkRef, Contents, LogQuery, NotInMemory, Read
from mtl.wire import control

A = TypeVar("A")


class Reads:
    """Asks the logs of resources. Every method raises `Refused` 503 for a log that is not open, and the `StorageError`
    of contents that cannot be read. Users (`share`) take turns with reads.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def ask(self, resource: Resource, query: Asks[A], share: str = "") -> A:
        """Ask the log of a resource. A query whose answer is in memory is no step."""
        try:
            return cast("A", resource.readable().answer_from_memory(cast("LogQuery", query)))
        except NotInMemory:
            return await self.read(resource, query, share)

    async def at_time(self, resource: Resource, us: int, share: str) -> ChunkRef | None:
        """The first chunk appended at or after `us` (µs since 1970)."""
        return await self.ask(resource, ByTime(us, self._outbox.now.wall_us), share)

    async def read(self, resource: Resource, query: Asks[A], share: str = "") -> A:
        """Read the answer to a query from the disk, because it is not in memory."""
        key, asked = resource.intake.key, cast("LogQuery", query)
        while True:
            log = resource.readable()
            snapshot = log.snapshot()
            make = partial(Read, log=key, snapshot=snapshot, query=asked, share=share)
            try:
                return cast("A", await self._outbox.read(make))
            except StorageError:
                if resource.log is not log or log.earliest <= snapshot.earliest:
                    raise
                # Retention was faster than the read: ask again.

    async def ask_all(self, queries: Sequence[tuple[Resource, Asks[A]]], share: str = "") -> list[A | None]:
        """Ask several queries; the answers in the order of the queries, None for contents that cannot be read."""
        return await gather(self._ask_if_readable(*query, share) for query in queries)

    async def _ask_if_readable(self, resource: Resource, query: Asks[A], share: str) -> A | None:
        try:
            return await self.ask(resource, query, share)
        except StorageError:
            return None

    async def check(self, resource: Resource, start: int, share: str = "") -> None:
        """Check whether the log can be read from `start` on. Contents that could not be read before are read again;
        if this fails, `Refused` (503) is raised.
        """
        if not resource.unread.covers(start):
            return
        try:
            for chunk in await self.ask(resource, Contents(start, start + 1, octets=0, most=1), share):
                stored_pack(chunk.ref, chunk.body)
        except StorageError as error:
            resource.add_unread(start, start + 1, error)
            message = f"resource {resource.name!r} cannot be read from {start}: {error}"
            raise Refused(503, control.STORAGE, message) from error
        resource.unread.forget(start)

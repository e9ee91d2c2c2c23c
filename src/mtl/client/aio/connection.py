"""A connection for an event loop: wraps `mtl.client.connection`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from mtl.client import Reader as BlockingReader
from mtl.client import Writer as BlockingWriter
from mtl.client import connection as blocking
from mtl.client.aio.consumer import Consumer
from mtl.client.aio.opening import Opening
from mtl.client.aio.reader import Reader
from mtl.client.aio.worker import Worker
from mtl.client.aio.writer import Writer
from mtl.client.consumer import Consumer as BlockingConsumer
from mtl.client.settings import Settings
from mtl.errors import MtlError

P = ParamSpec("P")
R = TypeVar("R")


def _awaited(
    method: Callable[Concatenate[blocking.Connection, P], R],
) -> Callable[Concatenate[Connection, P], Awaitable[R]]:
    """The awaitable form of a blocking method that sends one request; a worker thread waits for the reply."""

    @wraps(method)
    def call(self: Connection, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        return self.worker.run(partial(method, self.blocking, *args, **kwargs))

    return call


def _reader(
    method: Callable[Concatenate[blocking.Connection, P], BlockingReader],
) -> Callable[Concatenate[Connection, P], Opening[Reader]]:
    @wraps(method)
    def call(self: Connection, /, *args: P.args, **kwargs: P.kwargs) -> Opening[Reader]:
        async def opened() -> Reader:
            opening = partial(method, self.blocking, *args, **kwargs)
            return Reader(await self.worker.run(opening, BlockingReader.close), self.worker)

        return Opening(opened)

    return call


def _consumer(
    method: Callable[Concatenate[blocking.Connection, P], BlockingConsumer],
) -> Callable[Concatenate[Connection, P], Opening[Consumer]]:
    @wraps(method)
    def call(self: Connection, /, *args: P.args, **kwargs: P.kwargs) -> Opening[Consumer]:
        async def opened() -> Consumer:
            opening = partial(method, self.blocking, *args, **kwargs)
            return Consumer(await self.worker.run(opening, BlockingConsumer.close), self.worker)

        return Opening(opened)

    return call


def _writer(
    method: Callable[Concatenate[blocking.Connection, P], BlockingWriter],
) -> Callable[Concatenate[Connection, P], Opening[Writer]]:
    @wraps(method)
    def call(self: Connection, /, *args: P.args, **kwargs: P.kwargs) -> Opening[Writer]:
        async def opened() -> Writer:
            opening = partial(method, self.blocking, *args, **kwargs)
            writer = await self.worker.run(opening, BlockingWriter.abandon)
            return Writer(writer, self.worker, self.blocking.settings.retry_deadline)

        return Opening(opened)

    return call


class Connection:
    """One client of one broker, for the tasks of one event loop. `blocking` is the connection that it wraps.

    Methods have the arguments and errors of the methods of the same name of `mtl.client.Connection`.
    """

    def __init__(self, connection: blocking.Connection, worker: Worker) -> None:
        self.blocking = connection
        self.worker = worker

    @property
    def endpoint(self) -> str:
        """The broker's control endpoint."""
        return self.blocking.endpoint

    @property
    def settings(self) -> Settings:
        """The connection's settings."""
        return self.blocking.settings

    reader = _reader(blocking.Connection.reader)
    writer = _writer(blocking.Connection.writer)
    consumer = _consumer(blocking.Connection.consumer)

    request = _awaited(blocking.Connection.request)
    create_resource = _awaited(blocking.Connection.create_resource)
    delete_resource = _awaited(blocking.Connection.delete_resource)
    describe = _awaited(blocking.Connection.describe)
    list_resources = _awaited(blocking.Connection.list_resources)
    locate_time = _awaited(blocking.Connection.locate_time)
    locate_end = _awaited(blocking.Connection.locate_end)
    cursor_open = _awaited(blocking.Connection.cursor_open)
    cursors = _awaited(blocking.Connection.cursors)
    cursor_reset = _awaited(blocking.Connection.cursor_reset)
    cursor_delete = _awaited(blocking.Connection.cursor_delete)
    queues = _awaited(blocking.Connection.queues)
    queue_delete = _awaited(blocking.Connection.queue_delete)
    stage_commit = _awaited(blocking.Connection.stage_commit)
    stage_abort = _awaited(blocking.Connection.stage_abort)
    stages = _awaited(blocking.Connection.stages)
    stage_forget = _awaited(blocking.Connection.stage_forget)

    async def close(self) -> None:
        """Close the readers, flush and close the writers, then close the sessions. May be called again."""
        await asyncio.to_thread(self.blocking.close)
        await self.worker.close()

    async def drop(self) -> None:
        """Close at once, without the broker: unconfirmed contents may be lost, and leases expire."""
        await asyncio.to_thread(self.blocking.drop)
        await self.worker.close()

    async def leave(self, *, failed: bool) -> None:
        """Close at the end of a block; drop if the block `failed`."""
        await (self.drop() if failed else self.close())


def _connected(how: Callable[P, blocking.Connection]) -> Callable[P, Opening[Connection]]:
    @wraps(how)
    def call(*args: P.args, **kwargs: P.kwargs) -> Opening[Connection]:
        async def opened() -> Connection:
            worker = Worker()
            try:
                connection = await worker.run(partial(how, *args, **kwargs), blocking.Connection.close)
            except (MtlError, asyncio.CancelledError):
                await worker.close()
                raise
            return Connection(connection, worker)

        return Opening(opened)

    return call


connect = _connected(blocking.connect)
"""Connect, with the arguments of `mtl.connect`. Use it with `async with`, or await it and close the result."""

open_connection = _connected(blocking.open_connection)
"""As `connect`, with settings."""

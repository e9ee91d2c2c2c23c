"""Common parts of the doors' clients, for every protocol: reconnecting, contents under way, an inbox."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Generic, NoReturn, Protocol, TypeVar

from mtl.doors.received import Received
from mtl.errors import ClientFailed, MtlError, Refused, Unreachable
from mtl.limits import RECONNECT_DELAY_S, RECONNECT_DELAY_TOP_S
from mtl.protocol.backoff import Backoff

log = logging.getLogger("mtl.client")

T = TypeVar("T")


class ClosableConnection(Protocol):
    """A connection."""

    async def close(self) -> None:
        """Close. Harmless when repeated."""


C = TypeVar("C", bound=ClosableConnection)


async def wait_opened(connection: C, ready: Awaitable[object]) -> C:
    """The connection as soon as it is `ready`; it is closed when that fails or the caller is cancelled."""
    try:
        await ready
    except BaseException:  # also when cancelled: the caller does not have it yet
        await connection.close()
        raise
    return connection


def untrusted_error(endpoint: str, wrong: ssl.SSLCertVerificationError) -> Refused:
    """The error for a door's certificate that the client does not trust. It is permanent: a retry would not help."""
    return Refused(400, "untrusted", f"{endpoint}: {wrong.verify_message}")


async def reconnect_forever(
    life: Callable[[], Awaitable[bool]],
    endpoint: str,
    deadline: float,
    doing: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> NoReturn:
    """Reconnect until cancelled: `life` runs one connection and returns whether the other end sent anything.

    Raises the errors of `life`, `Unreachable` (while `doing`) after more than `deadline` seconds of silence, and
    `ClientFailed` for an unexpected exception: no task may wait without end for a connection that has ended.
    """
    backoff, since = Backoff(RECONNECT_DELAY_S, RECONNECT_DELAY_TOP_S), clock()
    while True:
        try:
            answered = await life()
        except MtlError:
            raise
        except Exception as error:
            log.exception("an exception has ended the connection to %s", endpoint)
            raise ClientFailed(endpoint, error) from error
        now = clock()
        if answered:
            backoff.succeeded()
            since = now
        elif now - since > deadline:
            raise Unreachable(endpoint, now - since, doing)
        await sleep(backoff.failed())


def settle(future: asyncio.Future[None], error: MtlError | None = None) -> None:
    """Set the result or the error; without a waiting task asyncio logs no "exception was never retrieved"."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()


class SendWindow:
    """Limits the contents that one connection has under way to `limit`; first come, first served."""

    def __init__(self, limit: int) -> None:
        self._room = asyncio.Semaphore(limit)

    async def place(self, begin: Callable[[], asyncio.Future[None]]) -> asyncio.Future[None]:
        """Call `begin` as soon as there is room. The place is free again when the future of `begin` is done."""
        await self._room.acquire()
        try:
            sent = begin()
        except BaseException:  # any failure: nothing is under way
            self._room.release()
            raise
        sent.add_done_callback(lambda _: self._room.release())
        return sent


class UnansweredContents:
    """The unanswered contents of one writer."""

    def __init__(self) -> None:
        self._unanswered: set[asyncio.Future[None]] = set()
        self._failed: BaseException | None = None

    def add(self, answered: asyncio.Future[None]) -> None:
        """Add one content; its future is done when it is answered."""
        self._unanswered.add(answered)
        answered.add_done_callback(self._answered)

    def _answered(self, answered: asyncio.Future[None]) -> None:
        self._unanswered.discard(answered)
        error = None if answered.cancelled() else answered.exception()
        self._failed = self._failed or error

    async def flush(self) -> None:
        """Wait until everything is answered. Raises the first failure since the last `flush`."""
        if self._unanswered:
            await asyncio.wait(set(self._unanswered))
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


class AnsweredWriter:
    """Base of writers whose contents are answered one by one: each content is passed to `_sent`."""

    def __init__(self) -> None:
        self._under_way = UnansweredContents()

    def _sent(self, answered: asyncio.Future[None]) -> asyncio.Future[None]:
        self._under_way.add(answered)
        return answered

    async def flush(self) -> None:
        """Wait until everything is answered. Raises the first failure since the last `flush`."""
        await self._under_way.flush()

    async def leave(self, *, failed: bool) -> None:
        """Flush, at the end of a block that did not fail."""
        if not failed:
            await self.flush()


class Inbox(Generic[T]):
    """The contents that arrived for one reader and are not taken. With `limit` of them `room` waits: back-pressure."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[T] = deque()
        self._error: MtlError | None = None
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._update_events()

    def put(self, item: T) -> None:
        """Add one. After `fail` it is dropped."""
        self.put_all((item,))

    def put_all(self, some: Iterable[T]) -> None:
        """Add several that arrived together."""
        if self._error is None:
            self._waiting.extend(some)
            self._update_events()

    def fail(self, error: MtlError) -> None:
        """End the inbox with an error, after everything that it holds. Only the first call counts."""
        if self._error is None:
            self._error = error
            self._update_events()

    async def get(self) -> T:
        """The next one, as soon as there is one. After the last one every call raises the error of `fail`."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            await self._changed.wait()
        item = self._waiting.popleft()
        left = len(self._waiting)
        if not left or left == self._limit - 1:  # else both events are as they were
            self._update_events()
        return item

    def drain(self) -> list[T]:
        """Take all that is left."""
        left, self._waiting = list(self._waiting), deque()
        self._update_events()
        return left

    async def room(self) -> None:
        """Wait while the inbox is full."""
        await self._room.wait()

    def _update_events(self) -> None:
        for event, true in (
            (self._changed, bool(self._waiting) or self._error is not None),
            (self._room, len(self._waiting) < self._limit or self._error is not None),
        ):
            (event.set if true else event.clear)()


class ContentReader(ABC):
    """Base of the readers of every protocol; a subclass has `next` and `close`."""

    @abstractmethod
    async def next(self) -> Received:
        """The next content; waits without a limit."""

    @abstractmethod
    async def close(self) -> None:
        """End it. Harmless when repeated."""

    async def __aiter__(self) -> AsyncIterator[Received]:
        """Every content; waits for more without a limit."""
        while True:
            yield await self.next()

    async def leave(self, *, failed: bool) -> None:  # noqa: ARG002 a reader has nothing under way
        """Close, at the end of a block."""
        await self.close()

"""A connection to a broker in an event loop: sends requests, and opens readers, consumers and writers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from mtl.client.aio.consumer import Consumer
from mtl.client.aio.loop import EventLoop
from mtl.client.aio.opening import Opening
from mtl.client.aio.reader import Reader
from mtl.client.aio.waiting import Answer
from mtl.client.aio.writer import Writer
from mtl.client.client_requests import Awaiting, ClientRequest
from mtl.client.connecting import opens
from mtl.client.consumer_part import ConsumerPart
from mtl.client.control import Call, Channel
from mtl.client.leases import LeasingConnection
from mtl.client.loop import Loop
from mtl.client.opening import LeaseUser
from mtl.client.reader_part import ReaderPart
from mtl.client.sessions import ClientSessions
from mtl.client.settings import Settings
from mtl.client.writer_part import WriterPart
from mtl.errors import MtlError, Refused
from mtl.wire import control

T = TypeVar("T")
U = TypeVar("U", bound=LeaseUser)
A = TypeVar("A", Reader, Consumer, Writer)


class Connection(Awaiting, LeasingConnection[Opening[Reader], Opening[Consumer], Opening[Writer]]):
    """One client of one broker, for the tasks of one event loop, which runs its sessions and flows.

    Methods have the arguments and errors of the methods of the same name of `mtl.Connection`; what these return is
    awaited here.
    """

    def __init__(self, settings: Settings) -> None:
        """In the event loop. Await `ready` before other methods are called."""
        super().__init__(settings)
        self._loop = EventLoop(endpoint=settings.endpoint)
        self._sessions = ClientSessions(self._loop, settings, self._curve)
        self._users: set[Reader | Writer | Consumer] = set()

    # --- requests -------------------------------------------------------------------------------------------

    async def _answer(self, request: ClientRequest[T]) -> T:
        answer: T | ClientRequest[T] = request
        while isinstance(answer, ClientRequest):
            pending = Answer(self._loop)
            call = Call(answer.request, pending.done, patience=answer.patience)
            outcome: control.Reply | Refused
            try:
                self._loop.post(self._sessions.ask(call))
                outcome = await pending
            except Refused as refused:
                outcome = refused
            except asyncio.CancelledError:
                if self._loop.running:
                    self._sessions.cancel(call)
                raise
            answer = answer.conclude(outcome, call.attempts)
        return answer

    def _greeting(self) -> control.Ready:
        ready = self._sessions.main.ready_reply
        assert ready is not None, "the connection is not ready"
        return ready

    # --- readers and writers --------------------------------------------------------------------------------

    def _open_reader(self, make: Callable[[Loop, Channel], ReaderPart]) -> Opening[Reader]:
        async def opened() -> Reader:
            reader = await self._opened(make, Reader)
            reader.begin()
            self._sees_files = self._sees_files and reader.sees_files
            return reader

        return Opening(opened)

    def _open_consumer(
        self, make: Callable[[Loop, Channel], ConsumerPart], profile: str
    ) -> Opening[Consumer]:
        return Opening(lambda: self._opened(make, Consumer, profile))

    def _open_writer(self, make: Callable[[Loop, Channel], WriterPart]) -> Opening[Writer]:
        return Opening(lambda: self._opened(make, Writer))

    async def _opened(
        self,
        make: Callable[[Loop, Channel], U],
        kind: Callable[[EventLoop, Settings, U, Callable[[], None]], A],
        profile: str | None = None,
    ) -> A:
        """Request the first lease for a part in the loop, wait until it is granted, and make the application's part."""
        answer = Answer(self._loop)
        opening = self._sessions.open(make, profile, answer.done)

        def closed() -> None:
            self._users.discard(user)
            opening.give_back()

        try:
            self._loop.post(opening.begin)
            await answer
        except BaseException:  # refused or cancelled
            if self._loop.running:
                opening.cancel()
            raise
        user: A = kind(self._loop, self.settings, opening.part, closed)
        self._users.add(user)
        return user

    # --- closing --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the readers, flush and close the writers, then close the sessions. May be called again.

        An error of a writer (unconfirmed contents) is raised after everything is closed.
        """
        failed: MtlError | None = None
        try:
            for user in list(self._users):
                try:
                    await user.close()
                except MtlError as error:
                    failed = failed or error
        finally:
            self._end()
        if failed is not None:
            raise failed

    async def drop(self) -> None:
        """Close at once, without the broker: unconfirmed contents may be lost, and leases expire."""
        self._end()

    async def leave(self, *, failed: bool) -> None:
        """Close at the end of a block; drop if the block `failed`."""
        await (self.drop() if failed else self.close())

    def _end(self) -> None:
        if self._loop.running:
            self._loop.end()


def open_connection(settings: Settings) -> Opening[Connection]:
    """As `connect`, with settings."""

    async def opened() -> Connection:
        connection = Connection(settings)
        try:
            await connection.ready()
        except BaseException:  # also when cancelled
            await connection.drop()
            raise
        return connection

    return Opening(opened)


connect = opens(Settings, open_connection)
"""Connect, with the arguments of `mtl.connect`. Use it with `async with`, or await it and close the result."""

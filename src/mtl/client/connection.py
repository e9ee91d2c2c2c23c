"""A connection to a broker: sends requests, and opens readers, consumers and writers. The blocking client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from mtl.client import connecting
from mtl.client.arguments import checked
from mtl.client.connecting import opens
from mtl.client.connection_loop import ConnectionLoop
from mtl.client.consumer import Consumer
from mtl.client.control import Call, Channel, Waiter
from mtl.client.deliveries import Deliveries
from mtl.client.incoming import Incoming
from mtl.client.io import io_thread
from mtl.client.leases import LeasingConnection
from mtl.client.loop import Loop
from mtl.client.pump import Pump
from mtl.client.questions import Blocking, Question, expected
from mtl.client.reader import Reader
from mtl.client.resources import Described, described, describing, listed
from mtl.client.sessions import ClientSessions, LeaseUser
from mtl.client.settings import Settings
from mtl.client.writer import Writer
from mtl.errors import Closed, MtlError, Refused
from mtl.wire import control as w

T = TypeVar("T")
U = TypeVar("U", bound=LeaseUser)
A = TypeVar("A", Reader, Consumer, Writer)


class Watch:
    """A pending request for changes of resources: the broker answers when there is a change, or after its
    `wait`.
    """

    def __init__(self, call: Call, waiter: Waiter, names: Sequence[str] | None) -> None:
        self._call = call
        self._waiter = waiter
        self._names = names

    @property
    def stands(self) -> bool:
        """Whether the request was sent and its connection is still up. Only then the absence of an answer means
        that there is no change.
        """
        return self._call.in_flight

    def is_silent(self, seconds: float) -> bool:
        """Whether no answer comes within `seconds` although the request `stands`: then there is no change."""
        return self._waiter.is_waiting(seconds) and self.stands

    def news(self, seconds: float) -> Described | None:
        """The changes (as of `describe`) if they come within `seconds`; None if the request is still pending. Without
        `removed` the broker did not know the state: the answer has only the first page of all resources.
        """
        reply = self._waiter.within(seconds)
        return None if reply is None else described([expected(reply, w.DescriptionList)], self._names)


class Connection(Blocking, LeasingConnection[Reader, Consumer, Writer]):
    """One client of one broker. Thread-safe, and usable in the child after a fork.

    A child opens its own session with its first request; open readers and writers work only in the parent.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._open = True
        self._open_sessions()

    def _open_sessions(self) -> None:
        self._pid = os.getpid()
        self._loop = ConnectionLoop(io_thread(), self.endpoint)
        self._sessions = ClientSessions(self._loop, self.settings, self._curve)
        self._users: set[Reader | Writer | Consumer] = set()

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            self._open_sessions()
        if not self._open:
            raise Closed("the connection is closed")
        if self._loop.failure is not None:
            raise self._loop.failure
        if not self._loop.running:
            self._open_sessions()

    # --- requests -------------------------------------------------------------------------------------------

    def _answer(self, question: Question[T]) -> T:
        answer: T | Question[T] = question
        while isinstance(answer, Question):
            call, waiter = self.ask(answer.request, patience=answer.patience)
            outcome: w.Reply | Refused
            try:
                outcome = waiter.wait()
            except Refused as refused:
                outcome = refused
            answer = answer.conclude(outcome, call.attempts)
        return answer

    def ask(self, request: w.Request | None, *, patience: float) -> tuple[Call, Waiter]:
        """Send a request that the broker may hold for `patience` seconds; the caller waits for the reply."""
        self._check_open()
        waiter = Waiter(self._loop)
        return self._sessions.ask(request, waiter.done, patience=patience), waiter

    @checked
    def watch(
        self,
        names: str | Iterable[str] | None = None,
        pattern: str | None = None,
        *,
        since: str,
        wait: float,
    ) -> Watch:
        """Send the request of `describe` (with `missing_ok`) without waiting; `Watch.news` gets the answer."""
        chosen = None if names is None else listed(names)
        request = describing(chosen, pattern, missing_ok=True, since=since, wait=wait)
        return Watch(*self.ask(request, patience=wait), chosen)

    def _greeting(self) -> w.Ready:
        self._check_open()
        return self._sessions.main.ready_reply or self.ready()

    # --- readers and writers --------------------------------------------------------------------------------

    def _open_reader(self, make: Callable[[Loop, Channel], Incoming]) -> Reader:
        reader = self._opened(make, Reader)
        reader.begin()
        self._sees_files = self._sees_files and reader.sees_files
        return reader

    def _open_consumer(self, make: Callable[[Loop, Channel], Deliveries], profile: str) -> Consumer:
        return self._opened(make, Consumer, profile)

    def _open_writer(self, make: Callable[[Loop, Channel], Pump]) -> Writer:
        return self._opened(make, Writer)

    def _opened(
        self,
        make: Callable[[Loop, Channel], U],
        kind: Callable[[Loop, Settings, U, Callable[[], None]], A],
        profile: str | None = None,
    ) -> A:
        """Request the first lease for a part in the loop, wait until it is granted, and make the application's part."""
        self._check_open()
        users, waiter = self._users, Waiter(self._loop)
        part, give_back = self._sessions.open(make, profile, waiter.done)
        try:
            waiter.wait()
        except MtlError:
            give_back()
            raise

        def closed() -> None:
            users.discard(user)
            give_back()

        user: A = kind(self._loop, self.settings, part, closed)
        users.add(user)
        return user

    # --- closing --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the readers, flush and close the writers, then close the sessions. May be called again.

        An error of a writer (unconfirmed contents) is raised after everything is closed.
        """
        if not self._open or self._pid != os.getpid():
            self._open = False
            return
        failed: MtlError | None = None
        for user in list(self._users):
            try:
                user.close()
            except MtlError as error:
                failed = failed or error
        self._open = False
        self._sessions.close()
        with suppress(MtlError):  # the loop has ended already
            self._loop.post(self._loop.end)
        if failed is not None:
            raise failed

    def drop(self) -> None:
        """Close at once, and end the waits of other threads. Unconfirmed contents may be lost, and leases expire."""
        self._sessions.drop()
        self._abandon_writers()
        self.close()

    def _abandon_writers(self) -> None:
        for user in list(self._users):
            if isinstance(user, Writer):
                user.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error of the block, writers are abandoned instead of flushed."""
        if kind is not None:
            self._abandon_writers()
        self.close()


def open_connection(settings: Settings) -> Connection:
    """A connection with these settings. Raises the errors of `connect`."""
    connection = Connection(settings)
    try:
        connection.ready()
    except MtlError:
        connection.close()
        raise
    return connection


connect = opens(connecting.connect, open_connection)

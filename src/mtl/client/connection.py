"""A connection to a broker: sends requests, and opens readers, consumers and writers. The blocking client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from mtl.client.arguments import checked
from mtl.client.client_requests import Blocking, ClientRequest, expected
from mtl.client.connecting import opens
from mtl.client.connection_loop import ConnectionLoop
from mtl.client.consumer import Consumer
from mtl.client.consumer_part import ConsumerPart
from mtl.client.control import Call, Channel
from mtl.client.holder import Holder
from mtl.client.holder_part import HeldPosition, HolderPart
from mtl.client.io import io_thread, process
from mtl.client.leases import LeasingConnection
from mtl.client.limits import LEAVE_S
from mtl.client.loop import Loop
from mtl.client.opening import LeaseUser
from mtl.client.reader import Reader
from mtl.client.reader_part import ReaderPart
from mtl.client.resources import Described, described, describing, listed
from mtl.client.sessions import ClientSessions
from mtl.client.settings import Settings
from mtl.client.waiter import Waiter
from mtl.client.writer import Writer
from mtl.client.writer_part import WriterPart
from mtl.errors import Closed, MtlError, Refused
from mtl.wire import control

T = TypeVar("T")
U = TypeVar("U", bound=LeaseUser)
A = TypeVar("A", Reader, Consumer, Writer, Holder)


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
        return None if reply is None else described([expected(reply, control.DescriptionList)], self._names)


class Connection(Blocking, LeasingConnection[Reader, Consumer, Writer]):
    """One client of one broker. Thread-safe, and usable in the child after a fork.

    A child opens its own session with its first request; open readers and writers work only in the parent.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._open = True
        self._open_sessions()

    def _open_sessions(self) -> None:
        self._users: set[Reader | Writer | Consumer | Holder] = set()
        loop = ConnectionLoop(io_thread(), self.endpoint)
        self._sessions = ClientSessions(loop, self.settings, self._curve)
        self._pid = process()

    @property
    def _loop(self) -> Loop:
        return self._sessions.loop

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("the connection is closed")
        if self._pid == process() and self._loop.failure is not None:
            raise self._loop.failure
        if self._pid != process() or not self._loop.running:
            self._open_sessions()

    # --- requests -------------------------------------------------------------------------------------------

    def _answer(self, request: ClientRequest[T]) -> T:
        answer: T | ClientRequest[T] = request
        while isinstance(answer, ClientRequest):
            call, waiter = self._call(answer.request, patience=answer.patience)
            outcome: control.Reply | Refused
            try:
                waiter.start(self._sessions.ask(call))
                outcome = waiter.wait()
            except Refused as refused:
                outcome = refused
            except MtlError:
                raise
            except BaseException:  # interrupted
                sessions = self._sessions
                self._post(lambda: sessions.cancel(call))  # noqa: B023 it ends this call of the method
                raise
            answer = answer.conclude(outcome, call.attempts)
        return answer

    def _call(self, request: control.Request | None, *, patience: float) -> tuple[Call, Waiter]:
        self._check_open()
        waiter = Waiter(self._loop)
        return Call(request, waiter.done, patience=patience), waiter

    def _post(self, call: Callable[[], None]) -> None:
        try:
            self._loop.post(call)
        except MtlError:
            pass  # the loop has ended, and everything with it

    def ask(self, request: control.Request | None, *, patience: float) -> tuple[Call, Waiter]:
        """Send a request that the broker may hold for `patience` seconds; the caller waits for the reply."""
        call, waiter = self._call(request, patience=patience)
        waiter.start(self._sessions.ask(call))
        return call, waiter

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

    def _greeting(self) -> control.Ready:
        self._check_open()
        return self._sessions.main.ready_reply or self.ready()

    # --- holders, readers and writers --------------------------------------------------------------------------------

    @checked
    def hold(self, positions: Mapping[str, HeldPosition], *, holder: str, group: str | None = None) -> Holder:
        """Hold resources, each from its position on, with one lease: up to MAX_RESOURCES_PER_LEASE of them.

        Confirms of the holder move the cursors of `group`; an older holder is fenced, unless it has the same `holder`
        id. Without a group retention keeps the contents as long as the holder is open. `Holder.unheld` has the
        resources that cannot be held. Raises `Fenced`, `Refused`.
        """
        return self._opened(lambda loop, channel: HolderPart(loop, channel, positions, group, holder), Holder)

    def _open_reader(self, make: Callable[[Loop, Channel], ReaderPart]) -> Reader:
        reader = self._opened(make, Reader, Reader.begin)
        self._sees_files = self._sees_files and reader.sees_files
        return reader

    def _open_consumer(self, make: Callable[[Loop, Channel], ConsumerPart], profile: str) -> Consumer:
        return self._opened(make, Consumer, profile=profile)

    def _open_writer(self, make: Callable[[Loop, Channel], WriterPart]) -> Writer:
        return self._opened(make, Writer)

    def _opened(
        self,
        make: Callable[[Loop, Channel], U],
        kind: Callable[[Loop, Settings, U, Callable[[], None]], A],
        begin: Callable[[A], None] | None = None,
        profile: str | None = None,
    ) -> A:
        """Request the first lease for a part in the loop, wait until it is granted, and make the application's part."""
        self._check_open()
        loop, users, waiter = self._loop, self._users, Waiter(self._loop)
        opening = self._sessions.open(make, profile, waiter.done)
        made: list[A] = []

        def closed() -> None:
            users.difference_update(made)
            opening.give_back()

        try:
            waiter.start(opening.begin)
            waiter.wait()
            user = kind(loop, self.settings, opening.part, closed)
            made.append(user)
            if begin is not None:
                begin(user)
            users.add(user)
        except BaseException:  # refused or interrupted
            self._post(opening.cancel)
            raise
        return user

    # --- closing --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the readers, flush and close the writers, then close the sessions. May be called again.

        An error of a writer (unconfirmed contents) is raised after everything is closed.
        """
        if not self._open or self._pid != process():
            self._open = False
            return
        failed: MtlError | None = None
        for user in list(self._users):
            try:
                user.close()
            except MtlError as error:
                failed = failed or error
        self._end()
        if failed is not None:
            raise failed

    def _end(self) -> None:
        self._sessions.close()
        self._post(self._loop.end)
        self._open = False

    def drop(self) -> None:
        """Close at once, and end the waits of other threads. Unconfirmed contents may be lost, and leases expire."""
        self._sessions.drop()
        self.leave(0.0)

    def leave(self, patience: float) -> None:
        """Close after an error, waiting `patience` seconds at most: unconfirmed contents may be lost."""
        if self._open and self._pid == process():
            deadline = time.monotonic() + patience
            for user in list(self._users):
                user.leave(max(0.0, deadline - time.monotonic()))
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error of the block without a long wait, and writers are abandoned instead of flushed."""
        if kind is None:
            self.close()
        else:
            self.leave(LEAVE_S)


def open_connection(settings: Settings) -> Connection:
    """A connection with these settings. Raises the errors of `connect`."""
    connection = Connection(settings)
    try:
        connection.ready()
    except BaseException:  # also when interrupted
        connection.drop()
        raise
    return connection


connect = opens(Settings, open_connection)

"""Opening a reader, consumer or writer: the session and the first lease, in the loop.

The application waits for the outcome. If it is interrupted, `cancel` ends what has been opened until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from mtl.client.control import Channel, Done, Outcome
from mtl.client.flow import ClientFlow
from mtl.client.loop import Loop, do_nothing
from mtl.client.writer_part import WriterPart
from mtl.errors import MtlError
from mtl.wire import control


class LeaseUser(Protocol):
    """The part of a reader, consumer or writer that runs in the loop."""

    flow: ClientFlow
    lease: control.DataLease | None
    error: MtlError | None
    listener: Callable[[], None]
    """Called in the loop whenever the application may have to look: the lease, contents, Confirms, an error."""

    def lease_request(self) -> control.ConnectionReader | control.ConnectionWriter:
        """The request for its lease."""

    def close(self, then: Done, *, within: float) -> None:
        """End the lease, in `within` seconds at most; `then` gets the reply or the error."""


U = TypeVar("U", bound=LeaseUser)


class Lending(Protocol):
    """Where the session comes from."""

    def lend(self, profile: str | None) -> Channel:
        """A session for one reader, consumer or writer."""

    def release(self, channel: Channel) -> None:
        """It is free again."""

    def in_order(self, operation: Callable[[], None]) -> None:
        """Run an operation after the interrupted ones have ended."""

    def interrupted(self, operation: object) -> None:
        """Let later operations wait for the end of this one."""

    def concluded(self, operation: object) -> None:
        """An interrupted operation has ended."""


class Opening(Generic[U]):
    """See the module. `make` makes the part in the loop; `done` gets its lease or the error."""

    def __init__(
        self,
        loop: Loop,
        sessions: Lending,
        make: Callable[[Loop, Channel], U],
        profile: str | None,
        done: Done,
        within: float,
    ) -> None:
        self._loop = loop
        self._sessions = sessions
        self._make = make
        self._profile = profile
        self._done = done
        self._within = within
        self._part: U | None = None
        self._channel: Channel | None = None
        self._cancelled = False

    @property
    def part(self) -> U:
        """The part in the loop, once `done` has got a lease."""
        assert self._part is not None, "the lease is granted"
        return self._part

    def begin(self) -> None:
        """Request the lease."""
        self._sessions.in_order(self._begin)

    def _begin(self) -> None:
        if self._cancelled:
            return
        self._channel = self._sessions.lend(self._profile)
        self._part = self._make(self._loop, self._channel)
        self._part.listener = self._conclude
        self._part.flow.start()

    def _conclude(self) -> None:
        part = self.part
        outcome: Outcome | None = part.lease or part.error
        if outcome is None:
            return
        part.listener = do_nothing
        if isinstance(outcome, MtlError):
            self.give_back()
        self._done(outcome)

    def give_back(self) -> None:
        """The reader, consumer or writer has ended. May be called again."""
        channel, self._channel = self._channel, None
        if channel is not None:
            self._sessions.release(channel)

    def cancel(self) -> None:
        """Nobody waits any more: end the lease once it is granted. Harmless after the end."""
        self._cancelled = True
        part = self._part
        if part is not None and self._channel is not None:
            self._sessions.interrupted(self)
            part.listener = self._leave_if_concluded
            self._leave_if_concluded()

    def _leave_if_concluded(self) -> None:
        part = self.part
        if part.lease is None and part.error is None:
            return
        part.listener = do_nothing
        self._sessions.concluded(self)
        try:
            self._loop.post(self._leave)  # not now: the flow has not used the lease yet
        except MtlError:
            pass  # the loop ends, and everything with it

    def _leave(self) -> None:
        part = self.part
        if part.lease is None:
            self.give_back()
        else:
            end = part.abandon if isinstance(part, WriterPart) else part.close
            end(lambda _: self.give_back(), within=self._within)

"""The control sessions of one connection: one for requests without a lease, and one for each reader or writer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from mtl.client.control import Call, Channel, Done
from mtl.client.flow import ClientFlow
from mtl.client.loop import Loop, do_nothing
from mtl.client.settings import Settings
from mtl.errors import MtlError
from mtl.net.endpoint import Curve
from mtl.wire import control as w

_IDLE_CHANNELS = 8
"""Control sessions kept for the next reader or writer."""


class LeaseUser(Protocol):
    """The part of a reader, consumer or writer that runs in the loop."""

    flow: ClientFlow
    lease: w.DataLease | None
    error: MtlError | None
    listener: Callable[[], None]
    """Called in the loop whenever the application may have to look: the lease, contents, Confirms, an error."""

    def lease_request(self) -> w.ConnectionReader | w.ConnectionWriter:
        """The request for its lease."""

    def close(self, then: Done, *, within: float) -> None:
        """End the lease, in `within` seconds at most; `then` gets the reply or the error."""


U = TypeVar("U", bound=LeaseUser)


class ClientSessions:
    """See the module. Any thread may call the methods: single operations on deques and sets are atomic."""

    def __init__(self, loop: Loop, settings: Settings, curve: Curve | None) -> None:
        self.main = Channel(loop, settings, curve)
        """The session for requests that the broker answers at once."""
        self._loop = loop
        self._settings = settings
        self._curve = curve
        self._idle: dict[str, deque[Channel]] = {}
        self._lent: set[Channel] = set()
        self._open = True

    def ask(self, request: w.Request | None, done: Done, *, patience: float) -> Call:
        """Send a request; with None only the session is made ready. `done` is called once, in the loop. A request that
        the broker may hold for `patience` seconds has its own session, so that others do not wait. Raises the errors of
        `check_request`.
        """
        if request is not None:
            w.check_request(request)
        channel = self.lend() if patience else self.main

        def answered(outcome: w.Reply | MtlError) -> None:
            if channel is not self.main:
                self.release(channel)
            done(outcome)

        call = Call(request, answered, patience=patience)
        self._loop.post(lambda: channel.submit(call))
        return call

    def open(
        self, make: Callable[[Loop, Channel], U], profile: str | None, done: Done
    ) -> tuple[U, Callable[[], None]]:
        """Make the loop's part of a reader, consumer or writer, and request its lease; `done` gets the lease or the
        error. Also returns what to call after its end. Raises the errors of `check_request`.
        """
        channel = self.lend(profile)
        part = make(self._loop, channel)
        try:
            w.check_request(part.lease_request())
        except BaseException:
            self.release(channel)
            raise

        def conclude() -> None:
            outcome = part.lease or part.error
            if outcome is not None:
                part.listener = do_nothing
                done(outcome)

        part.listener = conclude
        self._loop.post(part.flow.start)
        return part, lambda: self.release(channel)

    def lend(self, profile: str | None = None) -> Channel:
        """A session for one reader, consumer or writer: RFC 11 allows one of each per connection."""
        profile = profile or self._settings.profile
        try:
            channel = self._idle[profile].pop()
        except LookupError:
            channel = Channel(self._loop, replace(self._settings, profile=profile), self._curve)
        self._lent.add(channel)
        return channel

    def release(self, channel: Channel) -> None:
        """Keep a session for the next user, or close it."""
        self._lent.discard(channel)
        idle = self._idle.setdefault(channel.settings.profile, deque())
        if self._open and len(idle) < _IDLE_CHANNELS:
            idle.append(channel)
        else:
            self._close(channel)

    def close(self) -> None:
        """Close all sessions except those in use, which are closed when they are given back."""
        self._open = False
        self._close(self.main)
        for idle in self._idle.values():
            while idle:
                self._close(idle.pop())

    def drop(self) -> None:
        """Close the sessions in use."""
        for channel in list(self._lent):
            self._close(channel)

    def _close(self, channel: Channel) -> None:
        try:
            self._loop.post(channel.close)
        except MtlError:
            pass  # the loop has ended, and has closed it

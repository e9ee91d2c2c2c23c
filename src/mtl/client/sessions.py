"""The control sessions of one connection: one for requests without a lease, and one for each reader or writer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from mtl.client.control import Call, Channel, Done
from mtl.client.loop import Loop
from mtl.client.opening import Opening, U
from mtl.client.settings import Settings
from mtl.errors import MtlError
from mtl.net.endpoint import Curve
from mtl.wire import control as w

_IDLE_CHANNELS = 8
"""Control sessions kept for the next reader or writer."""


class ClientSessions:
    """See the module. Any thread may call `ask`, `open`, `close` and `drop`; the others are for the loop."""

    def __init__(self, loop: Loop, settings: Settings, curve: Curve | None) -> None:
        self.loop = loop
        self.main = Channel(loop, settings, curve)
        """The session for requests that the broker answers at once."""
        self._settings = settings
        self._curve = curve
        self._idle: dict[str, deque[Channel]] = {}
        self._lent: set[Channel] = set()
        self._open = True

    def ask(self, call: Call) -> Callable[[], None]:
        """The operation that sends a request; with None only the session is made ready. The call's `done` is called
        once. A request that the broker may hold for a `patience` has its own session, so that others do not wait.
        Raises the errors of `check_request`.
        """
        if call.request is not None:
            w.check_request(call.request)
        if not call.patience:
            return lambda: self.main.submit(call)

        def lent() -> None:
            channel, done = self.lend(), call.done

            def answered(outcome: w.Reply | MtlError) -> None:
                self.release(channel)
                done(outcome)

            call.done = answered
            channel.submit(call)

        return lent

    def cancel(self, call: Call) -> None:
        """Drop a call whose application was interrupted. In the loop."""
        self.main.cancel(call)

    def open(self, make: Callable[[Loop, Channel], U], profile: str | None, done: Done) -> Opening[U]:
        """The operation (`Opening.begin`) that makes the loop's part of a reader, consumer or writer, and requests its
        lease; `done` gets the lease or the error. Raises the errors of `check_request`.
        """
        w.check_request(make(self.loop, self.main).lease_request())
        return Opening(self.loop, self, make, profile, done, self._settings.request_timeout)

    def lend(self, profile: str | None = None) -> Channel:
        """A session for one reader, consumer or writer: RFC 11 allows one of each per connection."""
        profile = profile or self._settings.profile
        try:
            channel = self._idle[profile].pop()
        except LookupError:
            channel = Channel(self.loop, replace(self._settings, profile=profile), self._curve)
        self._lent.add(channel)
        return channel

    def release(self, channel: Channel) -> None:
        """Keep a session for the next user, or close it."""
        self._lent.discard(channel)
        idle = self._idle.setdefault(channel.settings.profile, deque())
        if self._open and len(idle) < _IDLE_CHANNELS:
            idle.append(channel)
        else:
            channel.close()

    def close(self) -> None:
        """Close all sessions except those in use, which are closed when they are given back."""
        self._post(self._close_idle)

    def _close_idle(self) -> None:
        self._open = False
        self.main.close()
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def drop(self) -> None:
        """Close the sessions in use."""
        self._post(self._close_lent)

    def _close_lent(self) -> None:
        for channel in list(self._lent):
            channel.close()

    def _post(self, call: Callable[[], None]) -> None:
        try:
            self.loop.post(call)
        except MtlError:
            pass  # the loop has ended, and has closed them

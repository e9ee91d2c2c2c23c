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
from mtl.wire import control

_IDLE_CHANNELS = 8
"""Control sessions kept for the next reader, writer or request: as many as _PARALLEL, so that requests in parallel do
not log in again each time. Each one kept is a connection and a session of the broker, which are bounded for a user."""

_PARALLEL = 8
"""Requests with the broker at a time, each on a session of its own; those above it wait for the main session. More of
them would not be answered sooner: the broker's loop and this process then have work all the time."""


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
        self._asking = 0
        """Requests without a patience on sessions of their own."""
        self._under_way: set[Call] = set()
        self._interrupted: set[object] = set()
        """Operations that their application does not wait for any more, and that are still with the broker."""
        self._waiting: deque[Callable[[], None]] = deque()
        """Later operations, which wait for the end of those: on another session the broker could receive them first."""
        self._open = True

    def ask(self, call: Call) -> Callable[[], None]:
        """The operation that sends a request; with None only the session is made ready. The call's `done` is called
        once. A request has a session of its own if the broker may hold it for a `patience`, so that others do not wait,
        and if the main session is busy, up to _PARALLEL of them. Raises the errors of `check_request`.
        """
        if call.request is not None:
            control.check_request(call.request)

        def begin() -> None:
            if call.cancelled:
                return
            self._under_way.add(call)
            is_own = bool(call.patience) or (
                call.request is not None and self.main.is_busy and self._asking < _PARALLEL - 1
            )
            channel, done = self.lend() if is_own else self.main, call.done
            self._asking += is_own and not call.patience

            def answered(outcome: control.Reply | MtlError) -> None:
                self._under_way.discard(call)
                if is_own:
                    self._asking -= not call.patience
                    self.release(channel)
                self.concluded(call)
                done(outcome)

            call.done = answered
            channel.submit(call)

        return lambda: self.in_order(begin)

    def cancel(self, call: Call) -> None:
        """Drop a call whose application was interrupted. In the loop. Later operations do not wait for a long poll: it
        changes nothing, and the broker may hold it for long.
        """
        call.cancelled = True
        if call in self._under_way and not call.patience:
            self.interrupted(call)
            self.main.cancel(call)

    def in_order(self, operation: Callable[[], None]) -> None:
        """Run an operation after the interrupted ones have ended: Ctrl-C in `delete_resource`, and then
        `create_resource`, leaves a resource; a writer that is opened after another opening of its name was interrupted
        is the newer one. In the loop.
        """
        if self._interrupted:
            self._waiting.append(operation)
        else:
            operation()

    def interrupted(self, operation: object) -> None:
        """Let later operations wait until this one is `concluded`, for `request_timeout` at most. In the loop."""
        self._interrupted.add(operation)
        self.loop.after(self._settings.request_timeout, lambda: self.concluded(operation))

    def concluded(self, operation: object) -> None:
        """An interrupted operation has ended. Harmless when repeated. In the loop."""
        self._interrupted.discard(operation)
        while self._waiting and not self._interrupted:
            self._waiting.popleft()()

    def open(self, make: Callable[[Loop, Channel], U], profile: str | None, done: Done) -> Opening[U]:
        """The operation (`Opening.begin`) that makes the loop's part of a reader, consumer or writer, and requests its
        lease; `done` gets the lease or the error. Raises the errors of `check_request`.
        """
        control.check_request(make(self.loop, self.main).lease_request())
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

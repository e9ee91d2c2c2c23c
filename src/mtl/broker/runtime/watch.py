"""The wait of the loop for messages: asleep, or by polling for a moment.

A writer that waits for each Confirm sends its next content as soon as it has one. Waking a sleeping loop costs more
than handling one content (cold caches). So after a Confirm the loop polls for up to AWAKE_S instead of sleeping.
Polling costs processor time. The loop polls only while this pays off: each time that no message comes, the loop
sleeps through twice as many short waits, up to _MAX_BACKOFF, before it polls again.

Between two polls the loop yields its processor: one of the writer's threads may be queued behind it there while
other processors are idle. Otherwise a fast writer could not send before the loop sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mtl.net.ports import Port

AWAKE_S = 0.0005
"""Seconds for which the loop polls: several times a local writer's delay from a Confirm to its next send."""

_MAX_BACKOFF = 64
"""Maximum back-off, in short waits. If polling never pays off, one short wait in _MAX_BACKOFF is spent on it."""


class PolledSockets(Protocol):
    """The sockets to wait on. `woken`: the last poll ended for another reason than a message."""

    woken: bool

    def poll(self, patience_ms: int) -> set[Port]: ...


class LoopWatch:
    """Waits on `sockets`; `clock` is in monotonic seconds, `give_way` yields the processor to queued threads."""

    def __init__(
        self, sockets: PolledSockets, clock: Callable[[], float], give_way: Callable[[], object]
    ) -> None:
        self._sockets = sockets
        self._clock = clock
        self._yield_processor = give_way
        self._backoff = 1
        """The back-off, in short waits (below AWAKE_S); doubled each time that no message came during polling."""
        self._waits_left = 1
        """Short waits that are still to come before the loop polls again."""

    def wait(self, patience_ms: int, *, awaited: bool) -> set[Port]:
        """Wait up to the given time, and return the readable sockets. `awaited`: a client has just got the answer
        that it waited for, and no other work is waiting.
        """
        if not awaited or not patience_ms:
            return self._sockets.poll(patience_ms)
        if not self._waits_left:
            if (readable := self._awake()) is not None:
                self._backoff = 1
                return readable
            self._backoff = self._waits_left = min(2 * self._backoff, _MAX_BACKOFF)
            return self._sockets.poll(patience_ms)
        began = self._clock()
        readable = self._sockets.poll(patience_ms)
        if self._clock() - began < AWAKE_S:
            self._waits_left -= 1
        return readable

    def _awake(self) -> set[Port] | None:
        """Poll for AWAKE_S: the readable sockets; None if nothing came."""
        until = self._clock() + AWAKE_S
        while self._clock() < until:
            self._yield_processor()
            readable = self._sockets.poll(0)
            if readable or self._sockets.woken:
                return readable
        return None

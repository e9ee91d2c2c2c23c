"""How the loop waits for what comes next: asleep, or for a moment awake.

Who waits for each Confirm sends again as soon as it has one. To wake the loop for that takes longer than all that it
does for one content, for whoever sleeps wakes with cold caches: so it stays awake as long as such a writer may take.
That costs processor time, and is done only while it is not in vain: after writers that took no longer, and ever more
rarely when they did.

Between two looks it gives way: one of the writer's threads may be queued behind the loop, on its processor, while all
the others are idle. A quick writer would not get to send before the loop sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mtl.net.ports import Port

AWAKE_S = 0.0005
"""How long the loop stays awake: some times what a writer on the same machine takes to send again after a Confirm."""

_RAREST = 64
"""It tries again after so many short waits at the latest: where it always is in vain, one wait in so many is."""


class Sockets(Protocol):
    """What is waited for. `woken`: the last poll ended for something else than a message."""

    woken: bool

    def poll(self, patience_ms: int) -> set[Port]: ...


class Watch:
    """Waits on `sockets`; `clock` is in monotonic seconds, `give_way` lets who is queued for this processor have it."""

    def __init__(self, sockets: Sockets, clock: Callable[[], float], give_way: Callable[[], object]) -> None:
        self._sockets = sockets
        self._clock = clock
        self._give_way = give_way
        self._price = 1
        """Short waits that it takes after the next one in vain before the loop stays awake again."""
        self._owed = 1
        """Of those, how many are still to come."""

    def wait(self, patience_ms: int, *, awaited: bool) -> set[Port]:
        """Which sockets have something to read, after at most so long; `awaited` when somebody was just told what he
        waited for, and nobody else wants anything.
        """
        if not awaited or not patience_ms:
            return self._sockets.poll(patience_ms)
        if not self._owed:
            if (readable := self._awake()) is not None:
                self._price = 1
                return readable
            self._price = self._owed = min(2 * self._price, _RAREST)
            return self._sockets.poll(patience_ms)
        began = self._clock()
        readable = self._sockets.poll(patience_ms)
        if self._clock() - began < AWAKE_S:
            self._owed -= 1
        return readable

    def _awake(self) -> set[Port] | None:
        """What came while the loop stayed awake; None if nothing did."""
        until = self._clock() + AWAKE_S
        while self._clock() < until:
            self._give_way()
            readable = self._sockets.poll(0)
            if readable or self._sockets.woken:
                return readable
        return None

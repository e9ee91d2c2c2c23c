"""Pauses of readers whose peer's queue was full: until when nothing is sent to each."""

from __future__ import annotations

import heapq
from typing import Final, Generic, Protocol, TypeVar

from mtl.broker import limits as broker_limits
from mtl.broker.outbox import Outbox


class _Leased(Protocol):
    @property
    def token(self) -> str: ...


class Paused(Protocol):
    """A lease with its terms."""

    @property
    def terms(self) -> _Leased: ...


L = TypeVar("L", bound=Paused)

_NONE: Final = (None, None)


class Pauses(Generic[L]):
    """Leases to which nothing is sent until their peer sends a frame, or for a while: `BLOCKED_RETRY_S` for a peer
    that reads, and twice as long, up to `BLOCKED_RETRY_TOP_S`, each time that no content was sent since. With many
    paused leases it is longer (`BLOCKED_RETRY_SHARE_S`).
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._until: dict[str, tuple[float, L]] = {}
        self._before: dict[str, tuple[int, float]] = {}
        """The place of the last pause of a lease, and its duration in seconds."""
        self._due: list[tuple[float, str]] = []
        """A heap of the ends of pauses, with some that have ended otherwise."""

    def pause(self, lease: L, at: int = 0) -> None:
        """Pause a lease: its peer's queue was full at this sequence or number, or (0) nothing at all could be sent."""
        token = lease.terms.token
        place, delay = self._before.get(token, (-1, 0.0))
        top = max(broker_limits.BLOCKED_RETRY_TOP_S, len(self._until) * broker_limits.BLOCKED_RETRY_SHARE_S)
        delay = broker_limits.BLOCKED_RETRY_S if at > place else min(2 * delay, top)
        self._before[token] = at, delay
        until = self._outbox.now.mono + delay
        self._until[token] = until, lease
        heapq.heappush(self._due, (until, token))

    def end(self, lease: L) -> bool:
        """End a pause: a frame came from the peer, or the lease has ended. Returns whether the lease was paused."""
        token = lease.terms.token
        self._before.pop(token, None)
        return self._until.pop(token, None) is not None

    def over(self) -> list[L]:
        """End the pauses whose time is up, and return their leases."""
        now, due = self._outbox.now.mono, []
        while (until := self.next) is not None and until <= now:
            _, token = heapq.heappop(self._due)
            due.append(self._until.pop(token)[1])
        return due

    def __contains__(self, lease: L) -> bool:
        return lease.terms.token in self._until

    @property
    def next(self) -> float | None:
        """When the first pause ends, in monotonic seconds."""
        due = self._due
        while due and self._until.get(due[0][1], _NONE)[0] != due[0][0]:
            heapq.heappop(due)
        return due[0][0] if due else None

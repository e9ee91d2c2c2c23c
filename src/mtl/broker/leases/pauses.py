"""Readers whose queue was full: who is to be tried again, and when."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from mtl import limits
from mtl.broker.outbox import Outbox


class _Leased(Protocol):
    @property
    def token(self) -> str: ...


class Paused(Protocol):
    """A lease with its terms."""

    @property
    def terms(self) -> _Leased: ...


L = TypeVar("L", bound=Paused)


class Pauses(Generic[L]):
    """Leases that are sent nothing until their peer is heard from, or for a while: short for one that reads, and twice
    as long each time that nothing has left since (`limits.BLOCKED_RETRY_S`, `limits.BLOCKED_RETRY_TOP_S`).
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._until: dict[str, tuple[float, L]] = {}
        self._before: dict[str, tuple[int, float]] = {}
        """Where the last pause of a lease was, and how long."""

    def pause(self, lease: L, at: int = 0) -> None:
        """Its peer's queue was full at this sequence or number, or (0) it could not be sent anything."""
        token = lease.terms.token
        place, delay = self._before.get(token, (-1, 0.0))
        delay = limits.BLOCKED_RETRY_S if at > place else min(2 * delay, limits.BLOCKED_RETRY_TOP_S)
        self._before[token] = at, delay
        self._until[token] = self._outbox.now.mono + delay, lease

    def end(self, lease: L) -> bool:
        """A frame came from the peer, or the lease is gone; whether it was paused."""
        token = lease.terms.token
        self._before.pop(token, None)
        return self._until.pop(token, None) is not None

    def over(self) -> list[L]:
        """Those whose pause is over by now, which ends it."""
        now = self._outbox.now.mono
        due = [lease for until, lease in self._until.values() if until <= now]
        for lease in due:
            del self._until[lease.terms.token]
        return due

    def __contains__(self, lease: L) -> bool:
        return lease.terms.token in self._until

    @property
    def next(self) -> float | None:
        """When the first pause ends, in monotonic seconds."""
        return min((until for until, _ in self._until.values()), default=None)

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
    """Leases that are sent nothing until their peer is heard from, or for a while (`limits.BLOCKED_RETRY_S`)."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._until: dict[str, tuple[float, L]] = {}

    def pause(self, lease: L) -> None:
        """Its peer's queue was full."""
        self._until[lease.terms.token] = self._outbox.now.mono + limits.BLOCKED_RETRY_S, lease

    def end(self, lease: L) -> bool:
        """A frame came from the peer, or the lease is gone; whether it was paused."""
        return self._until.pop(lease.terms.token, None) is not None

    def over(self) -> list[L]:
        """Those whose pause is over by now, which ends it."""
        now = self._outbox.now.mono
        due = [lease for until, lease in self._until.values() if until <= now]
        for lease in due:
            self.end(lease)
        return due

    def __contains__(self, lease: L) -> bool:
        return lease.terms.token in self._until

    @property
    def next(self) -> float | None:
        """When the first pause ends, in monotonic seconds."""
        return min((until for until, _ in self._until.values()), default=None)

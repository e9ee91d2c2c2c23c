"""Subscriptions that failed, in the door's log: whose, of what, and why. `telling` says what the peer is told.

A peer can ask for what it may not have as often as it likes, so the lines of one address are bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from mtl.doors.limits import DOOR_FAILURES, DOOR_FAILURES_PER_S
from mtl.net.pace import Pace

log = logging.getLogger("mtl.doors")


class Whom(NamedTuple):
    """A peer: its `address`, empty where the transport has none, and its port, 0 where that is not known; `user` is the
    broker's, None where nobody has to prove anything.
    """

    address: str = ""
    port: int = 0
    user: str | None = None

    @classmethod
    def at(cls, name: object, user: str | None) -> Whom:
        """The peer of a socket whose `getpeername` is `name`."""
        match name:
            case (str(address), int(port), *_):
                return cls(address, port, user)
        return cls(user=user)

    def __str__(self) -> str:
        """ADDRESS:PORT, and the user where there is one."""
        host = f"[{self.address}]" if ":" in self.address else self.address or "a peer without an address"
        place = f"{host}:{self.port}" if self.port else host
        return place if self.user is None else f"{place} (user {self.user!r})"


class Failures:
    """Of one door. `clock` is in monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._pace = Pace(clock, DOOR_FAILURES, DOOR_FAILURES_PER_S)
        self._unsaid = 0

    def tell(self, peer: Whom, resource: str, error: BaseException) -> None:
        """Log it, unless there were too many of this address; the next line says how many were left out."""
        if not self._pace.admits(peer.address):
            self._unsaid += 1
            return
        left_out = f" ({self._unsaid} failures before it were not logged)" if self._unsaid else ""
        self._unsaid = 0
        log.warning("the subscription of %s to %r failed: %s%s", peer, resource, error, left_out)

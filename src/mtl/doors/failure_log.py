"""Log lines for failed subscriptions: the peer, the resource and the reason. `peer_messages` has the peer's message.

A peer can repeat a forbidden request without end, so the number of lines per address is limited.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from mtl.doors.limits import DOOR_FAILURES, DOOR_FAILURES_PER_S
from mtl.net.pace import Pace

log = logging.getLogger("mtl.doors")


class PeerAddress(NamedTuple):
    """A peer: its `address` (empty if the transport has none), its port (0 if unknown), and its `user` at the broker
    (None without authentication). `number` distinguishes its connection where the port is unknown.
    """

    address: str = ""
    port: int = 0
    user: str | None = None
    number: int = 0

    @classmethod
    def at(cls, name: object, user: str | None) -> PeerAddress:
        """The peer of a socket whose `getpeername` is `name`."""
        match name:
            case (str(address), int(port), *_):
                return cls(address, port, user)
        return cls(user=user)

    def __str__(self) -> str:
        """ADDRESS:PORT, and the user if there is one."""
        host = f"[{self.address}]" if ":" in self.address else self.address or "a peer without an address"
        place = f"{host}:{self.port}" if self.port else host
        return place if self.user is None else f"{place} (user {self.user!r})"


class FailureLog:
    """The failures of one door. `clock` is in monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._pace = Pace(clock, DOOR_FAILURES, DOOR_FAILURES_PER_S)
        self._suppressed = 0

    def record(self, peer: PeerAddress, resource: str, error: BaseException) -> None:
        """Log the failure, unless its user had too many at this address; the next line says how many were left out."""
        if not self._pace.admits((peer.address, peer.user)):
            self._suppressed += 1
            return
        left_out = f" ({self._suppressed} failures before it were not logged)" if self._suppressed else ""
        self._suppressed = 0
        log.warning("the subscription of %s to %r failed: %s%s", peer, resource, error, left_out)

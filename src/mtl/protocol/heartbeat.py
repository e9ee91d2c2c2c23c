"""When to send a Ping and when to give a silent peer up. Time is an argument, in monotonic seconds.

RFC 11 "Heartbeating" (MTL-99 to 104). Any command counts as a sign of life, not only a Pong (PROTOCOL.md 3).
"""

from __future__ import annotations

import math
from enum import Enum


class Verdict(Enum):
    """What a heartbeat asks of its owner."""

    QUIET = "quiet"
    PING = "ping"
    DEAD = "dead"


class Heartbeat:
    """One peer's pulse: Ping when we were silent for `interval`, dead when it was silent for `dead_after` intervals.

    `interval` is in seconds; 0 turns heartbeats off. A peer is only given up after a Ping of ours went unanswered.
    """

    __slots__ = ("_heard", "_interval", "_patience", "_pinged", "_sent")

    def __init__(self, now: float, interval: float, dead_after: int = 3) -> None:
        self._interval = interval
        self._patience = interval * dead_after
        self._heard = now
        self._sent = now
        self._pinged = False

    def heard(self, now: float) -> None:
        """Something arrived from the peer."""
        self._heard = now
        self._pinged = False

    def sent(self, now: float) -> None:
        """Something was sent to the peer."""
        self._sent = now

    @property
    def due(self) -> float:
        """When `check` has something to say, unless something is sent or heard before; never without an interval."""
        if not self._interval:
            return math.inf
        ping = self._sent + self._interval
        return min(ping, self._heard + (self._patience if self._pinged else self._interval))

    def check(self, now: float) -> Verdict:
        """What is due. A PING counts as sent: the caller sends it."""
        if not self._interval:
            return Verdict.QUIET
        if self._pinged and now - self._heard >= self._patience:
            return Verdict.DEAD
        unheard = not self._pinged and now - self._heard >= self._interval
        if unheard or now - self._sent >= self._interval:
            self._sent = now
            self._pinged = True
            return Verdict.PING
        return Verdict.QUIET

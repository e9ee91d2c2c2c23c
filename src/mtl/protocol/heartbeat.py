"""Decides when to send a Ping and when a silent peer is dead. Time is an argument, in monotonic seconds.

RFC 11 "Heartbeating" (MTL-99 to 104). Any command counts as a sign of life, not only a Pong (PROTOCOL.md 3).
"""

from __future__ import annotations

import math
from enum import Enum


class HeartbeatVerdict(Enum):
    """The action that a heartbeat asks of its owner."""

    QUIET = "quiet"
    PING = "ping"
    DEAD = "dead"


class Heartbeat:
    """One peer's heartbeat: PING when this side or the peer was silent for `interval`, DEAD when the peer was silent
    for `dead_after` intervals.

    `interval` is in seconds; 0 turns heartbeats off. A peer is dead only after it did not answer a Ping.
    """

    __slots__ = ("_interval", "_patience", "_pinged", "_received", "_sent")

    def __init__(self, now: float, interval: float, dead_after: int = 3) -> None:
        self._interval = interval
        self._patience = interval * dead_after
        self._received = now
        self._sent = now
        self._pinged = False

    def received(self, now: float) -> None:
        """A command was received from the peer."""
        self._received = now
        self._pinged = False

    def sent(self, now: float) -> None:
        """A command was sent to the peer."""
        self._sent = now

    @property
    def due(self) -> float:
        """The time of the next PING or DEAD if no command is sent or received before; infinite without an interval."""
        if not self._interval:
            return math.inf
        ping = self._sent + self._interval
        return min(ping, self._received + (self._patience if self._pinged else self._interval))

    def check(self, now: float) -> HeartbeatVerdict:
        """The action that is due. A PING counts as sent: the caller sends it."""
        if not self._interval:
            return HeartbeatVerdict.QUIET
        if self._pinged and now - self._received >= self._patience:
            return HeartbeatVerdict.DEAD
        silent = not self._pinged and now - self._received >= self._interval
        if silent or now - self._sent >= self._interval:
            self._sent = now
            self._pinged = True
            return HeartbeatVerdict.PING
        return HeartbeatVerdict.QUIET

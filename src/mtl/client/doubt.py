"""Tells whether the broker may have given up a flow because it got nothing from this side for too long.

It gives up after three heartbeat intervals. A client that stood still (its event loop was blocked, its process was
stopped) may find messages afterwards that were sent before, such as contents that other consumers have got meanwhile. A
Response to a Lease that is sent after the silence shows whether the flow has survived (PROTOCOL.md 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mtl.wire import control

_SAFE_INTERVALS = 2
"""Heartbeat intervals of the broker without a message from this side that leave no doubt."""


class Doubt:
    """The doubt about one flow. Any thread may ask whether it `exists`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent_at = 0.0
        self._longest = math.inf
        self._decisive: int | None = None

    def bound(self, lease: control.DataLease) -> None:
        """The lease is bound now. Without `binding` no Response would tell, without `heartbeat` nothing is given up."""
        self._sent_at, self._decisive = self._clock(), None
        self._longest = _SAFE_INTERVALS * lease.heartbeat if lease.binding and lease.heartbeat else math.inf

    @property
    def exists(self) -> bool:
        """Whether the flow may have been given up."""
        return self._decisive is not None or self._is_late(self._clock())

    def sent(self, now: float) -> bool:
        """A message was sent. Returns whether a Lease has to follow: the first message after a long silence."""
        late, self._sent_at = self._is_late(now), now
        return late and self._decisive is None

    def asked(self, sequence: int) -> None:
        """The Response to the Lease with this sequence decides."""
        self._decisive = sequence

    def ends_with(self, sequence: int) -> bool:
        """The broker has kept the flow until the Lease `sequence`. Returns whether this ends a doubt."""
        if self._decisive is None or sequence < self._decisive:
            return False
        self._decisive = None
        return True

    def _is_late(self, now: float) -> bool:
        return now - self._sent_at > self._longest

"""A limit on how fast one address may open connections. Pure: the clock is a parameter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

CONNECTION_BURST = 5_000
"""Connections that one address may open at once: after a restart of the broker all executors of a cluster behind one
address reconnect at the same moment, with three connections each."""

CONNECTIONS_PER_S = 100.0
"""Connections that one address may open per second in the long run. libzmq aborts the process when a peer announces the
identity that libzmq generates next: a search through 2**32 identities takes long at this pace."""

PACED_ADDRESSES = 10_000
"""Addresses with a token bucket, about 150 octets each."""


class Pace:
    """A token bucket per address: `burst` connections (or other events) at once, `per_s` a second in the long run.
    `clock` is in monotonic seconds.

    At most `PACED_ADDRESSES` buckets are kept; the longest unused one is dropped first. A transport without addresses
    (ipc) has one bucket for all of its peers.
    """

    def __init__(
        self, clock: Callable[[], float], burst: float = CONNECTION_BURST, per_s: float = CONNECTIONS_PER_S
    ) -> None:
        self._clock = clock
        self._burst = burst
        self._per_s = per_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def limit(self) -> str:
        """The rate as a text for people."""
        return f"{self._burst:g} at once and {self._per_s:g} a second"

    def admits(self, address: str) -> bool:
        """Whether this address may open one more connection now; if so, the connection is counted."""
        now = self._clock()
        level, since = self._buckets.pop(address, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._per_s)
        admitted = level >= 1
        self._buckets[address] = (level - admitted, now)
        if len(self._buckets) > PACED_ADDRESSES:
            self._buckets.popitem(last=False)
        return admitted

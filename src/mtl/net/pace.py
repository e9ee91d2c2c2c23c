"""A limit on how fast one source may open connections, or cause other events. Pure: the clock is a parameter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

CONNECTION_BURST = 5_000
"""Connections that one address may open at once: after a restart of the broker all executors of a cluster behind one
address reconnect at the same moment, with three connections each."""

CONNECTIONS_PER_S = 100.0
"""Connections that one address may open per second in the long run. libzmq aborts the process when a peer announces the
identity that libzmq generates next: a search through 2**32 identities takes long at this pace."""

PACED_SOURCES = 10_000
"""Sources with a token bucket, about 150 octets each."""


class Pace:
    """A token bucket per source, such as an address: `burst` events at once, `per_s` a second in the long run.
    `clock` is in monotonic seconds.

    At most `PACED_SOURCES` buckets are kept; the longest unused one is dropped first. A transport without addresses
    (ipc) has one bucket for all of its peers.
    """

    def __init__(
        self, clock: Callable[[], float], burst: float = CONNECTION_BURST, per_s: float = CONNECTIONS_PER_S
    ) -> None:
        self._clock = clock
        self._burst = burst
        self._per_s = per_s
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    @property
    def limit(self) -> str:
        """The rate as a text for people."""
        return f"{self._burst:g} at once and {self._per_s:g} a second"

    def admits(self, source: Hashable) -> bool:
        """Whether this source may cause one more event now; if so, the event is counted."""
        now = self._clock()
        level, since = self._buckets.pop(source, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._per_s)
        admitted = level >= 1
        self._buckets[source] = (level - admitted, now)
        if len(self._buckets) > PACED_SOURCES:
            self._buckets.popitem(last=False)
        return admitted

"""Time, random numbers, and the order of events: the only source of each in a simulation.

An event is a call at a virtual time; `step` runs the next one. One `random.Random(seed)` makes all random choices, so
the same seed runs the same events, and `digest` is the same at the end.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from zlib import crc32

from mtl.broker import actions

EPOCH_US = 1_700_000_000_000_000
"""The start of the wall clock."""


class Event:
    """A call that is due at `at`; `cancel` is harmless at any time."""

    __slots__ = ("at", "call", "label")

    def __init__(self, at: float, label: str, call: Callable[[], None]) -> None:
        self.at = at
        self.label = label
        self.call: Callable[[], None] | None = call

    @property
    def pending(self) -> bool:
        """Whether the call is still pending."""
        return self.call is not None

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None


class World:
    """See the module. `trace` gets a line for every note; times are in seconds."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.mono = 1_000.0
        self.steps = 0
        self.digest = 0
        self.counts: Counter[str] = Counter()
        self._wall_us = EPOCH_US
        self._booted = 0.0
        self.machine = ""
        """The mark of the broker's machine."""
        self.boot()
        self._trace = trace
        self._events: list[tuple[float, int, Event]] = []
        self._count = count()

    # --- time -----------------------------------------------------------------------------------------------

    def clock(self) -> float:
        """Monotonic time in seconds."""
        return self.mono

    @property
    def wall_us(self) -> int:
        """The wall clock in microseconds; it may step back."""
        return self._wall_us + int(self.mono * 1e6)

    def now(self) -> actions.Now:
        """Both clocks, in the form of the broker's core."""
        return actions.Now(self.mono, self.wall_us, self.mono - self._booted)

    def boot(self) -> None:
        """Boot the broker's machine: its uptime starts at 0."""
        self._booted = self.mono
        self.machine = f"booted at step {self.steps}"

    def set_clock_by(self, seconds: float) -> None:
        """Change the wall clock."""
        self._wall_us += int(seconds * 1e6)

    # --- events ---------------------------------------------------------------------------------------------

    def after(self, delay: float, label: str, call: Callable[[], None]) -> Event:
        """Call in `delay` seconds."""
        event = Event(self.mono + delay, label, call)
        heapq.heappush(self._events, (event.at, next(self._count), event))
        return event

    def step(self) -> bool:
        """Run the next event; False if there is none."""
        while self._events:
            at, _, event = heapq.heappop(self._events)
            call, event.call = event.call, None
            if call is None:
                continue
            self.mono = max(self.mono, at)
            self.steps += 1
            self.digest = crc32(b"%a %.6f" % (event.label, self.mono), self.digest)
            call()
            return True
        return False

    # --- chance ---------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        """A number of this range, small ones as likely as large ones of the same order."""
        return low * math.pow(high / low, self.random.random())

    def upto(self, most: int) -> int:
        """A whole number from 0 to `most`."""
        return self.random.randrange(most + 1)

    # --- notes ----------------------------------------------------------------------------------------------

    def note(self, kind: str, text: Callable[[], str] = str) -> None:
        """Count the event, and write it to the trace."""
        self.counts[kind] += 1
        if self._trace is not None:
            self._trace(f"{self.steps:7d} {self.mono:12.6f} {kind:14s} {text()}")

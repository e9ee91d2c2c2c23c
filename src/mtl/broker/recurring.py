"""Periodic work, each with its own period. Timers run only while there is work to do: an idle broker sleeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mtl.broker.outbox import Outbox


class _Work(NamedTuple):
    period_s: float
    run: Callable[[], object]
    is_wanted: Callable[[], bool]


class Recurring:
    """Periodic work. `set_timers`, called after every round, sets timers for the work that is wanted and has none."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._idle: list[_Work] = []

    def add(
        self, period_s: float, run: Callable[[], object], is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Call `run` every `period_s` seconds while it is wanted; the period begins when it becomes wanted."""
        self._idle.append(_Work(period_s, run, is_wanted))

    def set_timers(self) -> None:
        """Set the timers of wanted work."""
        wanted = [work for work in self._idle if work.is_wanted()]
        for work in wanted:
            self._idle.remove(work)
            self._outbox.later(work.period_s, partial(self._run, work))

    def _run(self, work: _Work) -> None:
        self._idle.append(work)
        work.run()

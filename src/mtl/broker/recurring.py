"""What is done over and over, each by its own period, and only while there is any of it: an idle broker sleeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mtl.broker.outbox import Outbox


class _Work(NamedTuple):
    period_s: float
    do: Callable[[], None]
    is_wanted: Callable[[], bool]


class Recurring:
    """`look` after every round sets the timers of what is wanted; what is done rests until then."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._resting: list[_Work] = []

    def add(
        self, period_s: float, do: Callable[[], None], is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Call `do` once in `period_s` seconds, or when so long has passed since it was wanted again."""
        self._resting.append(_Work(period_s, do, is_wanted))

    def look(self) -> None:
        """Wake what is wanted."""
        wanted = [work for work in self._resting if work.is_wanted()]
        for work in wanted:
            self._resting.remove(work)
            self._outbox.later(work.period_s, partial(self._do, work))

    def _do(self, work: _Work) -> None:
        self._resting.append(work)
        work.do()

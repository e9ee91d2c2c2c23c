"""Ours and its peer in turn, several rounds after a warm-up of each: every round's ratio, their median and spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One workload: rows per second of both sides (medians), and the rounds' ratios ours / peer."""

    workload: str
    peer: str
    target: float
    ours_per_s: float
    peer_per_s: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest ratio of a round."""
        return min(self.ratios), max(self.ratios)


def interleave(
    workload: str,
    peer_name: str,
    target: float,
    count: int,
    ours: Callable[[], None],
    peer: Callable[[], None],
    rounds: int,
) -> Row:
    """Time both in turn; `count` rows are moved by each call."""
    ours()
    peer()
    times = [(seconds(ours), seconds(peer)) for _ in range(rounds)]
    return Row(
        workload,
        peer_name,
        target,
        count / statistics.median(o for o, _ in times),
        count / statistics.median(p for _, p in times),
        tuple(p / o for o, p in times),
    )


def seconds(work: Callable[[], None]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began

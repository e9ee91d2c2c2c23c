"""Runs MTL and its peers in turn, several rounds after a warm-up of each: the ratio of each round, their median and
spread.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

OURS = "ours"

START_SHARE = "start share"
"""The fact that has the share of the fixed cost in a job's time."""
START_HIDES = 0.25
"""From this share on, the fixed cost hides the difference in the cost of the rows."""


class NotMeasured(Exception):
    """Why a row has no figure: a peer that is not available on this machine."""


@dataclass(frozen=True)
class Sample:
    """One side of one round: `value` in the row's unit. `inner` is the same quantity by the time of Spark's
    micro-batches alone, without the start and the end of the query. `facts` are for notes.
    """

    value: float
    inner: float | None = None
    facts: Mapping[str, float] = field(default_factory=dict)


Side = Callable[[], Sample]
Better = Literal["more", "less"]


@dataclass(frozen=True)
class Row:
    """A row of the table: medians of both sides, and the rounds' ratios ours / peer.

    `target` is the ratio to reach or, with better "less", not to exceed; None for a row without a target. `missing`
    says why there are no figures.
    """

    workload: str
    title: str
    peer: str
    unit: str
    better: Better = "more"
    target: float | None = None
    ours: tuple[float, ...] = ()
    theirs: tuple[float, ...] = ()
    inner: tuple[float, ...] = ()
    note: str = ""
    missing: str = ""
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The row's key in a baseline."""
        return f"{self.title} | {self.peer}"

    @property
    def ratios(self) -> tuple[float, ...]:
        """The ratio of every round; none if the peer is missing."""
        if self.missing:
            return ()
        return tuple(o / p if p else math.inf for o, p in zip(self.ours, self.theirs, strict=True))

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(self.ratios)

    @property
    def inner_ratio(self) -> float | None:
        """The median by the micro-batches' own time."""
        return statistics.median(self.inner) if self.inner else None

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest ratio of a round."""
        return min(self.ratios), max(self.ratios)

    @property
    def hidden(self) -> bool:
        """Whether the fixed cost of start and end takes such a share of a side's time that `ratio` hides the
        difference.
        """
        shares = (self.facts.get(name, 0.0) for name in (START_SHARE, f"peer: {START_SHARE}"))
        return self.inner_ratio is not None and max(shares) > START_HIDES

    @property
    def judged(self) -> float:
        """The ratio that counts: the worse of the two if the start hides the difference."""
        if not self.hidden or self.inner_ratio is None:
            return self.ratio
        return (
            min(self.ratio, self.inner_ratio) if self.better == "more" else max(self.ratio, self.inner_ratio)
        )

    @property
    def reached(self) -> bool | None:
        """Whether the ratio that counts reaches the target; None without a target or figures."""
        if self.target is None or self.missing:
            return None
        return self.judged >= self.target if self.better == "more" else self.judged <= self.target


@dataclass(frozen=True)
class Peer:
    """The other side of a comparison: how it is run or why it is not available, and the ratio to reach."""

    name: str
    side: Side | None
    target: float | None = None
    missing: str = ""


@dataclass(frozen=True)
class Subject:
    """A comparison: its workload, its title in the table, and whether more or less is better."""

    workload: str
    title: str
    unit: str
    better: Better = "more"


def interleave(sides: Mapping[str, Side], rounds: int, *, warm_up: bool = True) -> dict[str, list[Sample]]:
    """Run all sides in turn. Each round begins with another side, so that drift of the machine affects all sides
    equally.
    """
    names = list(sides)
    if warm_up:
        for name in names:
            sides[name]()
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            samples[name].append(sides[name]())
    return samples


def compare(
    subject: Subject, ours: Side, peers: Sequence[Peer], rounds: int, *, warm_up: bool = True, note: str = ""
) -> list[Row]:
    """A row for each peer, from the rounds in which all of them take part."""
    sides = {OURS: ours, **{peer.name: peer.side for peer in peers if peer.side is not None}}
    samples = interleave(sides, rounds, warm_up=warm_up)
    return [row(subject, peer, samples[OURS], samples.get(peer.name), note) for peer in peers]


def row(
    subject: Subject, peer: Peer, ours: Sequence[Sample], theirs: Sequence[Sample] | None, note: str = ""
) -> Row:
    """The row of one peer. Facts of both sides are kept as medians, the peer's under "peer: ..."."""
    workload, title, unit, better = subject.workload, subject.title, subject.unit, subject.better
    if theirs is None:
        mine = tuple(sample.value for sample in ours)
        return Row(workload, title, peer.name, unit, better, peer.target, ours=mine, missing=peer.missing)
    pairs = list(zip(ours, theirs, strict=True))
    inner = [(o.inner, p.inner) for o, p in pairs]
    return Row(
        workload,
        title,
        peer.name,
        unit,
        better,
        peer.target,
        tuple(o.value for o, _ in pairs),
        tuple(p.value for _, p in pairs),
        tuple(o / p for o, p in inner if o is not None and p),
        note,
        facts={**medians(ours), **{f"peer: {name}": fact for name, fact in medians(theirs).items()}},
    )


def pooled(first: Row, other: Row) -> Row:
    """The same row measured twice, as one measurement with the rounds of both."""
    return replace(
        first,
        ours=first.ours + other.ours,
        theirs=first.theirs + other.theirs,
        inner=first.inner + other.inner,
    )


def medians(samples: Sequence[Sample]) -> dict[str, float]:
    """The median of every fact that all samples have."""
    names = set.intersection(*(set(sample.facts) for sample in samples)) if samples else set()
    return {name: statistics.median(s.facts[name] for s in samples) for name in sorted(names)}


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def percentile(values: Sequence[float], share: float) -> float:
    """The percentile: `share` of `values` are not above it."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

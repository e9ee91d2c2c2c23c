"""Append times of contents (stamps), for a wall clock that may be wrong. Pure functions.

The stamps of a log ascend, so that they can be searched. If the clock was ahead and was set right, the next stamp would
have to wait for the clock. So the order has exceptions: where the clock is more than CLOCK_SKEW_US behind the newest
stamp, a segment begins with the time of the clock. Such a place is a setback; the log's manifest lists them. Within a
run of contents between two setbacks stamps ascend.

A setback shows that one of the two clocks was wrong, but not which:

- for ages the contents before it count as appended at its time at the latest. That is the same clock as that of the
  contents after it, so a later correction forward concerns both (`mtl.broker.writing.clock`);
- for a search by time a stamp counts as it is, so that no content with a later stamp is skipped. Only a stamp that is
  ahead of the present clock is certainly wrong, and counts as one just before the setback after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from mtl.log.limits import CLOCK_SKEW_US, LOG_SETBACKS


class Setback(NamedTuple):
    """Contents from `first` on have stamps from `time` (µs) on, and the ones before it later stamps."""

    first: int
    time: int


Setbacks = tuple[Setback, ...]
"""A log's setbacks, by `first`."""


class Stamped(Protocol):
    """A chunk with its first sequence and its stamp."""

    @property
    def base(self) -> int: ...
    @property
    def time_us(self) -> int: ...


R = TypeVar("R", bound=Stamped)


def is_ahead(stamp_us: int, now_us: int) -> bool:
    """Whether a stamp is so far ahead of the clock that one of the two is wrong."""
    return stamp_us - now_us > CLOCK_SKEW_US


def next_stamp(now_us: int, newest_us: int) -> int:
    """The stamp of contents that are appended now, after the stamp `newest_us`; below that one it is a setback."""
    if now_us >= newest_us:
        return now_us
    return now_us if is_ahead(newest_us, now_us) else newest_us


def with_setback(setbacks: Setbacks, first: int, time: int) -> Setbacks:
    """`setbacks` and another one at the end of the log. Of more than LOG_SETBACKS the oldest is left out."""
    return (*before(setbacks, first), Setback(first, time))[-LOG_SETBACKS:]


def before(setbacks: Setbacks, sequence: int) -> Setbacks:
    """The setbacks below a sequence: the log ends there."""
    return tuple(setback for setback in setbacks if setback.first < sequence)


def above(setbacks: Setbacks, sequence: int) -> Setbacks:
    """The setbacks above a sequence: the log begins there."""
    return tuple(setback for setback in setbacks if setback.first > sequence)


def appended_by(stamp_us: int | None, setbacks: Setbacks, sequence: int) -> int | None:
    """The time at which a content with this stamp was appended at the latest. None for an unknown stamp."""
    if stamp_us is None or not setbacks:
        return stamp_us
    return min([stamp_us, *(setback.time for setback in setbacks if setback.first > sequence)])


def first_since(
    us: int,
    now_us: int,
    setbacks: Setbacks,
    bases: Sequence[int],
    end: int,
    search: Callable[[int, int], R | None],
) -> R | None:
    """The first chunk appended at or after `us`, as far as the stamps tell; None when all are older.

    `search(low, high)` finds the first one with such a stamp in a part of the log that has ascending stamps: between
    the places `low` and `high` of `bases`, of which the first `end` have contents.
    """
    edges = [0, *(min(bisect_left(bases, setback.first), end) for setback in setbacks), end]
    for low, high in pairwise(edges):
        chunk = search(low, high) if low < high else None
        if chunk is None:
            continue
        if is_ahead(chunk.time_us, now_us) and not is_ahead(us, now_us):
            appended = appended_by(chunk.time_us, setbacks, chunk.base)
            if appended is not None and appended <= us:
                continue
        return chunk
    return None

"""Selects the old segments of a log that are to be removed. Pure: the removal itself is `LogWriter.trim`.

Whole segments are removed, oldest first and never the newest one, as the policy says:

- `bytes`, `contents`: while the log without the segment has at least this amount; - `age_s`: when the newest
content of the segment is older; - `groups`: not before all these groups have confirmed the segment. A group without
a cursor holds nothing. Without
  another bound a segment is removed as soon as all these groups with a cursor have confirmed it;
- read pins hold like groups;
- `hard_bytes`: above it the oldest segments are removed even if they are held; the plan lists the losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """None: no such bound. `bytes` and `hard_bytes` are octets of the segments' files, `age_s` seconds."""

    bytes: int | None = None
    age_s: float | None = None
    contents: int | None = None
    groups: tuple[str, ...] = ()
    hard_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Contents [base, end) in `bytes` octets. `newest_time`: append time of the newest one in µs, None if not known."""

    base: int
    end: int
    bytes: int
    newest_time: int | None


@dataclass(frozen=True, slots=True)
class Hold:
    """Contents from `position` on are still needed: by a group's durable cursor, or by a read lease (`group` False)."""

    name: str
    position: int
    group: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """Contents [first, end) are removed although `name` holds them: to be logged."""

    name: str
    group: bool
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The log's new earliest sequence, and the losses by the hard limit. `unknown`: the base of a segment whose newest
    time decides and is not known; find it out, and plan again.
    """

    earliest: int
    losses: tuple[Loss, ...] = ()
    unknown: int | None = None


def plan(
    segments: Iterable[SegmentInfo],
    *,
    total_bytes: int,
    next_sequence: int,
    policy: RetentionPolicy,
    holds: Sequence[Hold],
    too_old: Callable[[float], int],
) -> RetentionPlan:
    """The new earliest sequence of a log, given its segments oldest first.

    `holds` are the cursors of all groups that ever opened and all read pins; groups that the policy does not name
    hold nothing. `too_old` converts an age (s) to the append time (µs) below which contents are older. Stops at the
    first segment that stays.
    """
    binding = [hold for hold in holds if not hold.group or hold.name in policy.groups]
    held_from = min((hold.position for hold in binding), default=None)
    bounds = (policy.bytes, policy.contents, policy.age_s)
    confirmed = bounds == (None, None, None) and any(hold.group for hold in binding)
    left = total_bytes
    first = earliest = forced = 0
    unknown = None
    for segment, is_newest in _with_newest(segments):
        first = first or segment.base
        earliest = max(earliest, first)
        if is_newest:
            break
        over = policy.hard_bytes is not None and left > policy.hard_bytes
        free = held_from is None or segment.end <= held_from
        wanted = confirmed or _is_above_bounds(segment, left, next_sequence - segment.end, policy)
        if not over and free and not wanted and policy.age_s is not None:
            if segment.newest_time is None:
                unknown = segment.base
                break
            wanted = segment.newest_time < too_old(policy.age_s)
        if not over and not (free and wanted):
            break
        earliest, left = segment.end, left - segment.bytes
        forced = segment.end if over else forced
    losses = tuple(
        Loss(hold.name, hold.group, max(hold.position, first), forced)
        for hold in binding
        if hold.position < forced
    )
    return RetentionPlan(earliest, losses, unknown)


def _with_newest(segments: Iterable[SegmentInfo]) -> Iterator[tuple[SegmentInfo, bool]]:
    """Every segment, and whether it is the last one."""
    iterator = iter(segments)
    segment = next(iterator, None)
    while segment is not None:
        following = next(iterator, None)
        yield segment, following is None
        segment = following


def _is_above_bounds(segment: SegmentInfo, left: int, contents_after: int, policy: RetentionPolicy) -> bool:
    """Whether the bounds of octets or contents ask for the removal of the segment."""
    if policy.bytes is not None and left - segment.bytes >= policy.bytes:
        return True
    return policy.contents is not None and contents_after >= policy.contents

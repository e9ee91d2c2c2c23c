"""Admission: the contents of one batch, and whether it waits for more. Pure; time is an argument, in seconds.

All limits of a query apply together. They are split over the resources in proportion to their waiting contents. Every
resource with waiting contents gets at least one, so a large resource never starves a small one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Waiting:
    """Waiting contents [first, end) of one resource, with an estimate and an upper bound of their stored octets."""

    resource: str
    first: int
    end: int
    octets: int
    most_octets: int

    @property
    def count(self) -> int:
        """The number of waiting contents."""
        return self.end - self.first


@dataclass(frozen=True)
class Allowance:
    """A batch's share of one resource: contents up to `end`, and at most `max_bytes` octets from `first` on.

    `max_bytes` None means that only `end` applies. Otherwise the broker, which knows where its chunks end, computes the
    sequence within `max_bytes` (Resource.Locate).
    """

    resource: str
    first: int
    end: int
    max_bytes: int | None


def share(sizes: Sequence[int], total: int) -> list[int]:
    """`total` split in proportion to `sizes`: each part is at most its size, and at least 1 unless its size is 0.

    The parts add up to min(total, sum of sizes). If more than `total` sizes are not 0, each of these gets 1 instead.
    The remainder from rounding goes to the largest fractions, and among equal ones to the first.
    """
    if total >= sum(sizes):
        return list(sizes)
    parts = [min(size, 1) for size in sizes]
    rest = [index for index, size in enumerate(sizes) if size]
    while True:  # sizes with a share below 1 keep their 1; the rest of `total` is split over the other sizes
        left = total - sum(parts) + len(rest)
        wanted = sum(sizes[index] for index in rest)
        larger = [index for index in rest if sizes[index] * left >= wanted]
        if larger == rest:
            break
        rest = larger
    for index in rest:
        parts[index] = sizes[index] * left // wanted
    by_remainder = sorted(rest, key=lambda index: -(sizes[index] * left % wanted))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return parts


def share_bytes(octets: Sequence[int], total: int) -> list[int]:
    """`total` split in proportion to `octets`, at least 1 each. They are estimates, so parts may exceed them."""
    weights = [max(1, size) for size in octets]
    return [max(1, total * weight // sum(weights)) for weight in weights]


def allow(waiting: Sequence[Waiting], max_contents: int | None, max_bytes: int | None) -> list[Allowance]:
    """A batch's share of each resource with waiting contents, in the order given."""
    present = [entry for entry in waiting if entry.count > 0]
    counts = [entry.count for entry in present]
    if max_contents is not None:
        counts = share(counts, max_contents)
    octets = _octets(present, max_bytes)
    return [
        Allowance(entry.resource, entry.first, entry.first + count, most)
        for entry, count, most in zip(present, counts, octets, strict=True)
    ]


def _octets(present: Sequence[Waiting], max_bytes: int | None) -> list[int | None]:
    if max_bytes is None or sum(entry.most_octets for entry in present) <= max_bytes:
        return [None] * len(present)
    return [*share_bytes([entry.octets for entry in present], max_bytes)]


def is_held_back(count: int, minimum: int | None, max_delay: float, since_last: float) -> bool:
    """Whether a batch of `count` contents waits for more, `since_last` seconds after the last admitted batch."""
    return minimum is not None and count < minimum and since_last < max_delay


def capped(waiting: Waiting, end: int) -> Waiting:
    """The part of `waiting` before `end`, the end of the stream or of its run."""
    if end >= waiting.end:
        return waiting
    kept = max(0, end - waiting.first)
    octets = waiting.octets * kept // max(1, waiting.count)
    return replace(waiting, end=waiting.first + kept, octets=octets)

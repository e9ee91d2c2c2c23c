"""How much one batch takes, and whether it waits for more. Pure; time is an argument, in seconds.

All limits of a query hold together. They are split over the resources in proportion to what waits in each, and every
resource that has anything gets at least one content, so a small one is never starved by a large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Waiting:
    """What waits in one resource: contents [first, end), and how many stored octets: about, and surely no more than."""

    resource: str
    first: int
    end: int
    octets: int
    most_octets: int

    @property
    def count(self) -> int:
        """How many contents wait."""
        return self.end - self.first


@dataclass(frozen=True)
class Allowance:
    """What a batch may take of one resource: up to `end`, and no more octets than `max_bytes` from `first` on.

    `max_bytes` None means that `end` is all there is to keep. The broker knows where its chunks end, so the last
    step, the sequence within so many octets, is asked of it (Resource.Locate).
    """

    resource: str
    first: int
    end: int
    max_bytes: int | None


def share(sizes: Sequence[int], total: int) -> list[int]:
    """`total` split over `sizes` in proportion: at most each size, at least 1 of whatever is not empty.

    The parts add up to min(total, sum of sizes), unless more sizes are not empty than `total`: then each gets its 1.
    What rounding leaves over goes to the largest remainders, the earlier of equal ones.
    """
    if total >= sum(sizes):
        return list(sizes)
    parts = [min(size, 1) for size in sizes]
    rest = [index for index, size in enumerate(sizes) if size]
    while True:  # whoever's proportion is less than 1 has its 1 already; the others share what that leaves
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
    """`total` split in proportion to `octets`, which are estimates and bound nothing; at least 1 each."""
    weights = [max(1, one) for one in octets]
    return [max(1, total * weight // sum(weights)) for weight in weights]


def allow(waiting: Sequence[Waiting], max_contents: int | None, max_bytes: int | None) -> list[Allowance]:
    """What a batch may take of each resource that has anything waiting, in the order given."""
    present = [one for one in waiting if one.count > 0]
    counts = [one.count for one in present]
    if max_contents is not None:
        counts = share(counts, max_contents)
    octets = _octets(present, max_bytes)
    return [
        Allowance(one.resource, one.first, one.first + count, most)
        for one, count, most in zip(present, counts, octets, strict=True)
    ]


def _octets(present: Sequence[Waiting], max_bytes: int | None) -> list[int | None]:
    if max_bytes is None or sum(one.most_octets for one in present) <= max_bytes:
        return [None] * len(present)
    return [*share_bytes([one.octets for one in present], max_bytes)]


def is_held_back(count: int, minimum: int | None, max_delay: float, since_last: float) -> bool:
    """Whether a batch of `count` contents waits for more, `since_last` seconds after the last one was let through."""
    return minimum is not None and count < minimum and since_last < max_delay


def capped(waiting: Waiting, end: int) -> Waiting:
    """What of `waiting` lies before `end`, where the stream or its run is to end."""
    if end >= waiting.end:
        return waiting
    kept = max(0, end - waiting.first)
    octets = waiting.octets * kept // max(1, waiting.count)
    return replace(waiting, end=waiting.first + kept, octets=octets)

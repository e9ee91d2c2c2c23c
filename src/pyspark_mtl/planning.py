"""From what a batch reads to its tasks. Pure.

A range of contents is cut at sequences: a reader that begins inside a stored chunk is sent all of it and trims, which
costs less than asking the broker where its chunks lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mtl.errors import DataLoss, OptionError
from pyspark_mtl.admission import share
from pyspark_mtl.limits import MAX_PARTITIONS
from pyspark_mtl.offsets import Range


@dataclass(frozen=True)
class Split:
    """How ranges are cut: at least so many pieces, and none with more contents than."""

    min_partitions: int | None = None
    max_records: int | None = None


def plan(ranges: Sequence[Range], split: Split) -> list[Range]:
    """The tasks of a batch: every content of `ranges` in exactly one, in order.

    `max_records` is always kept. `min_partitions` is reached unless there are fewer contents; pieces are then about
    equal, so a large resource is cut into more than a small one. OptionError above MAX_PARTITIONS.
    """
    pieces = [_least_pieces(one, split.max_records) for one in ranges]
    wanted = min(split.min_partitions or 0, sum(one.count for one in ranges))
    if sum(pieces) < wanted:
        pieces = _more_pieces(ranges, pieces, wanted)
    if sum(pieces) > MAX_PARTITIONS:
        raise OptionError(
            f"a batch of {sum(pieces)} partitions is planned, more than {MAX_PARTITIONS}; "
            "raise maxRecordsPerPartition or lower minPartitions"
        )
    return [part for one, count in zip(ranges, pieces, strict=True) for part in _cut(one, count)]


def _least_pieces(whole: Range, max_records: int | None) -> int:
    return 1 if max_records is None else -(-whole.count // max_records)


def _more_pieces(ranges: Sequence[Range], pieces: Sequence[int], wanted: int) -> list[int]:
    """Pieces in proportion to the contents, but no fewer than are needed already and no empty ones."""
    proportional = share([one.count for one in ranges], wanted)
    return [max(one) for one in zip(pieces, proportional, strict=True)]


def _cut(whole: Range, pieces: int) -> Iterator[Range]:
    """`pieces` parts of `whole` whose counts differ by at most one."""
    for index in range(pieces):
        first = whole.first + whole.count * index // pieces
        until = whole.first + whole.count * (index + 1) // pieces
        yield replace(whole, first=first, until=until)


class Extent(NamedTuple):
    """What there is of a resource now: contents [earliest, next) of an incarnation."""

    incarnation: str
    earliest: int
    next: int


def lost(ranges: Sequence[Range], extents: Mapping[str, Extent]) -> list[DataLoss]:
    """What of `ranges` is gone, exactly, by the extents of the resources that exist.

    The DataLoss values are returned, not raised: what happens then is failOnDataLoss's to say.
    """
    return [loss for one in ranges for loss in _lost(one, extents.get(one.resource))]


def _lost(one: Range, extent: Extent | None) -> Iterator[DataLoss]:
    if extent is None or extent.incarnation != one.incarnation:
        trouble = "does not exist any more" if extent is None else "was deleted and made again"
        message = (
            f"resource {one.resource!r} {trouble}: contents {one.first} to {one.until - 1} "
            f"({one.count} in all) of its incarnation {one.incarnation} are gone"
        )
        yield DataLoss(one.resource, one.first, one.until, message)
        return
    if extent.earliest > one.first:
        yield DataLoss(one.resource, one.first, min(extent.earliest, one.until))
    if extent.next < one.until:
        first = max(one.first, extent.next)
        message = (
            f"resource {one.resource!r} ends at {extent.next}: contents {first} to {one.until - 1} "
            f"({one.until - first} in all) are gone; is the broker's data an older copy?"
        )
        yield DataLoss(one.resource, first, one.until, message)


def without(ranges: Sequence[Range], losses: Sequence[DataLoss]) -> list[Range]:
    """`ranges` without what is lost, which is at an end of a range, or all of it."""
    kept = list(ranges)
    for loss in losses:
        kept = [_cut_off(one, loss) if one.resource == loss.resource else one for one in kept]
    return [one for one in kept if one.count > 0]


def _cut_off(one: Range, loss: DataLoss) -> Range:
    if loss.first <= one.first:
        return replace(one, first=loss.end)
    return replace(one, until=loss.first)

"""Plans the tasks of a batch from its ranges. Pure.

A range is cut at any sequence, not at chunks: a reader that begins inside a stored chunk gets all of it and trims it,
which costs less than a request for the positions of chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mtl.errors import DataLoss, OptionError
from mtl.wire.history import History
from pyspark_mtl.limits import BUNDLED_FROM, MAX_PARTITIONS
from pyspark_mtl.source.admission import share
from pyspark_mtl.source.offsets import OffsetRange


@dataclass(frozen=True)
class Split:
    """The bounds for cutting ranges: the fewest pieces, and the most contents of a piece."""

    min_partitions: int | None = None
    max_records: int | None = None


def plan(ranges: Sequence[OffsetRange], split: Split) -> list[OffsetRange]:
    """The tasks of a batch: every content of `ranges` in exactly one, in order.

    `max_records` is always kept. `min_partitions` is reached unless there are fewer contents; pieces are then about
    equal, so a large resource is cut into more than a small one. OptionError above MAX_PARTITIONS.
    """
    pieces = [_least_pieces(offset_range, split.max_records) for offset_range in ranges]
    wanted = min(split.min_partitions or 0, sum(offset_range.count for offset_range in ranges))
    if sum(pieces) < wanted:
        pieces = _more_pieces(ranges, pieces, wanted)
    if sum(pieces) > MAX_PARTITIONS:
        raise OptionError(
            f"a batch of {sum(pieces)} partitions is planned, more than {MAX_PARTITIONS}; "
            "raise maxRecordsPerPartition or lower minPartitions"
        )
    return [
        part for offset_range, count in zip(ranges, pieces, strict=True) for part in _cut(offset_range, count)
    ]


def bundled(parts: Sequence[OffsetRange], split: Split) -> list[list[OffsetRange]]:
    """`parts` in order, divided over Spark's partitions. Each has one of its own, up to BUNDLED_FROM of them: a
    partition costs Spark some 10 ms. Of more parts small ones share a partition, as long as it has no more than its
    share of all contents, and no more than `max_records`; there are never fewer than `min_partitions`.
    """
    wanted = max(BUNDLED_FROM, split.min_partitions or 0)
    if len(parts) <= wanted:
        return [[part] for part in parts]
    most = -(-sum(part.count for part in parts) // wanted)
    most = most if split.max_records is None else min(most, split.max_records)
    bundles: list[list[OffsetRange]] = []
    count = 0
    for at, part in enumerate(parts):
        needed = len(parts) - at <= wanted - len(bundles)  # one partition for each of the parts that are left
        if not bundles or needed or count + part.count > most:
            bundles.append([])
            count = 0
        bundles[-1].append(part)
        count += part.count
    return bundles


def _least_pieces(whole: OffsetRange, max_records: int | None) -> int:
    return 1 if max_records is None else -(-whole.count // max_records)


def _more_pieces(ranges: Sequence[OffsetRange], pieces: Sequence[int], wanted: int) -> list[int]:
    """`wanted` pieces, split in proportion to the contents, but no fewer than `pieces`, and none of them empty."""
    proportional = share([offset_range.count for offset_range in ranges], wanted)
    return [max(counts) for counts in zip(pieces, proportional, strict=True)]


def _cut(whole: OffsetRange, pieces: int) -> Iterator[OffsetRange]:
    """`pieces` parts of `whole` whose counts differ by at most one."""
    for index in range(pieces):
        first = whole.first + whole.count * index // pieces
        until = whole.first + whole.count * (index + 1) // pieces
        yield replace(whole, first=first, until=until)


class ResourceExtent(NamedTuple):
    """The contents of a resource now: its incarnation, from `earliest` up to the end of its `history`."""

    incarnation: str
    earliest: int
    history: History


def lost(ranges: Sequence[OffsetRange], extents: Mapping[str, ResourceExtent]) -> list[DataLoss]:
    """The exact losses in `ranges`, computed from the extents of the existing resources.

    The DataLoss values are returned, not raised: the caller raises or logs them, by failOnDataLoss.
    """
    return [
        loss for offset_range in ranges for loss in _lost(offset_range, extents.get(offset_range.resource))
    ]


OR_ANOTHER_BROKER = "; or the options name another broker or virtual host than before"
"""The other reason why a resource does not exist, or has another incarnation, in the text of an error."""


def _lost(offset_range: OffsetRange, extent: ResourceExtent | None) -> Iterator[DataLoss]:
    if extent is None or extent.incarnation != offset_range.incarnation:
        trouble = "does not exist any more" if extent is None else "was deleted and created again"
        message = (
            f"resource {offset_range.resource!r} {trouble}: contents {offset_range.first} to {offset_range.until - 1} "
            f"({offset_range.count} in all) of its incarnation {offset_range.incarnation} are gone{OR_ANOTHER_BROKER}"
        )
        yield DataLoss(offset_range.resource, offset_range.first, offset_range.until, message)
        return
    diverges_at = extent.history.diverges_at(offset_range.first, offset_range.before)
    if diverges_at is not None:
        yield _diverged(offset_range, diverges_at, offset_range.first, offset_range.before)
        return
    kept = max(offset_range.first, min(extent.earliest, offset_range.until))
    if kept > offset_range.first:
        yield DataLoss(offset_range.resource, offset_range.first, kept)
    diverges_at = extent.history.diverges_at(offset_range.until, offset_range.last)
    if diverges_at is not None and kept < offset_range.until:
        yield _diverged(offset_range, diverges_at, max(kept, diverges_at), offset_range.last)


def _diverged(offset_range: OffsetRange, diverges_at: int, first: int, epoch: str | None) -> DataLoss:
    return DataLoss(
        offset_range.resource,
        first,
        offset_range.until,
        diverged(offset_range.resource, diverges_at, first, offset_range.until, epoch),
    )


def diverged(resource: str, diverges_at: int, first: int, until: int, epoch: str | None) -> str:
    """The error text for contents [first, until), of `epoch`, that are not in a log. From `diverges_at` on this log
    differs from the one that the query read.
    """
    lost = f"contents {first} to {until - 1} ({max(0, until - first)} in all) are gone"
    if epoch is None:
        return f"resource {resource!r} ends at {diverges_at}: {lost}; is the broker's data an older copy?"
    return (
        f"resource {resource!r}: {lost}. From {diverges_at} on it does not have the contents of epoch {epoch} and "
        "before: the broker's data is another copy, or a crash lost contents that were not synced"
    )


def dated(ranges: Sequence[OffsetRange], extents: Mapping[str, ResourceExtent]) -> list[OffsetRange]:
    """`ranges` with the epochs of their contents, which readers check. The logs have to contain the ranges."""
    return [
        replace(offset_range, epochs=_epochs(offset_range, extents[offset_range.resource].history))
        for offset_range in ranges
    ]


def _epochs(offset_range: OffsetRange, history: History) -> tuple[tuple[int, str], ...]:
    """The epochs of the contents from the one before `first` up to the last."""
    before = [first for first, _ in history.entries if first < offset_range.first][-1:]
    begin = (before or [offset_range.first])[0]
    return tuple(entry for entry in history.entries if begin <= entry[0] < offset_range.until)


def without(ranges: Sequence[OffsetRange], losses: Sequence[DataLoss]) -> list[OffsetRange]:
    """`ranges` without the losses; each loss is the start, the end or all of a range."""
    kept = list(ranges)
    for loss in losses:
        kept = [
            _cut_off(offset_range, loss) if offset_range.resource == loss.resource else offset_range
            for offset_range in kept
        ]
    return [offset_range for offset_range in kept if offset_range.count > 0]


def _cut_off(offset_range: OffsetRange, loss: DataLoss) -> OffsetRange:
    if loss.first <= offset_range.first:
        return replace(offset_range, first=loss.end)
    return replace(offset_range, until=loss.first)

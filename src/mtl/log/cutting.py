"""The plan for removing the end of a log, made before anything is changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from mtl.errors import Damaged
from mtl.log.recovery import foreign_segment
from mtl.log.scanned import scan_segment
from mtl.log.segment import Index, segment_name
from mtl.log.store import Store


@dataclass(frozen=True, slots=True)
class CutPlan:
    """`victims`: bases of the segments to be removed, oldest first. `index`: that of the last kept segment, cut where
    the log will end; None when that segment ends there anyway.
    """

    victims: list[int]
    index: Index | None


def plan_cut(store: Store, bases: list[int], active: Index | None, sequence: int) -> CutPlan:
    """The plan to end a log at `sequence`, given its segments and the newest one's index if that is not sealed.

    Damaged when no chunk begins there, or when contents of writers would be removed: only an unapplied commit may be,
    and its contents have no writers (the numbers in an adopted segment are the stage's own and do not count here).
    """

    def index_of(base: int) -> Index:
        return active if active is not None and active.base == base else _read_index(store, base)

    at = bisect_left(bases, sequence)
    kept, victims = bases[:at], bases[at:]
    index = None if victims and victims[0] == sequence else _cut_last(store, kept, sequence, index_of)
    for base in victims:
        _refuse_writers(store, index_of(base), 0, sequence)
    return CutPlan(victims, index)


def _cut_last(store: Store, kept: list[int], sequence: int, index_of: Callable[[int], Index]) -> Index:
    if kept:
        index, contents = index_of(kept[-1]), sequence - kept[-1]
        if contents <= index.contents and index.is_boundary(contents):
            _refuse_writers(store, index, contents, sequence)
            return index.cut(contents)
    message = f"{store.directory}: no chunk begins at {sequence}, so no commit did; nothing was changed"
    raise Damaged(message, file=store.directory, first=sequence)


def _refuse_writers(store: Store, index: Index, contents: int, sequence: int) -> None:
    after = range(bisect_left(index.sequences, contents), len(index))
    if not index.adopted and any(index.runs(place) for place in after):
        message = (
            f"{store.directory}: contents of named writers lie after {sequence}, so an unapplied commit cannot have "
            "begun there; nothing was changed"
        )
        raise Damaged(message, file=store.directory, first=sequence)


def _read_index(store: Store, base: int) -> Index:
    """The index of a segment that is sealed, or that was begun when a commit failed. In the second case the segment is
    empty, and the index file may be that of the former segment with the same base.
    """
    header, index = store.header(base), store.index(base)
    if index is not None and index.salt == header.salt:
        return index
    size = store.disk.sizes(store.directory)[segment_name(base)]
    scanned = scan_segment(store, base, header, size).index
    if index is not None and scanned.contents:
        raise foreign_segment(store, base)
    return scanned

"""Reading every byte of a log without changing one: `mtl verify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mtl.errors import Damaged
from mtl.log.files import Disk, failure
from mtl.log.recovery import damaged, scan_segment
from mtl.log.segment import Index, index_base, index_name, segment_base, segment_name
from mtl.log.store import Store


class Problem(NamedTuple):
    """What is wrong at an octet of a file, and which sequences it affects (`end` None: up to the log's end)."""

    path: str
    offset: int
    first: int | None
    end: int | None
    message: str


class SegmentReport(NamedTuple):
    """One segment: contents [base, end) as far as they are whole, in `chunks` chunks and `bytes` octets."""

    path: str
    base: int
    end: int
    bytes: int
    chunks: int
    contents: int
    sealed: bool
    problems: tuple[Problem, ...] = ()


def verify_log(disk: Disk, directory: str) -> Iterator[SegmentReport]:
    """Read and verify every segment, oldest first; one report for each. StorageFailed when the disk does not read."""
    store = Store(disk, directory)
    try:
        sizes = disk.sizes(directory)
        bases = [base for name in sizes if (base := segment_base(name)) is not None]
        indexed = {base for name in sizes if (base := index_base(name)) is not None}
        if not bases:
            message = f"{directory}: a log without a segment"
            problem = Problem(directory, 0, None, None, message)
            yield SegmentReport(directory, 0, 0, 0, 0, 0, sealed=False, problems=(problem,))
            return
        for base, end in zip(bases, [*bases[1:], None], strict=True):
            yield _segment(store, base, end, sizes[segment_name(base)], base in indexed)
    except OSError as error:
        raise failure(error, f"verifying {directory}") from error


def _segment(store: Store, base: int, end: int | None, size: int, indexed: bool) -> SegmentReport:
    path = store.segment_path(base)
    try:
        header = store.header(base)
        index = store.index(base)
        scanned = scan_segment(store, base, header, size, _contents(index, base, end))
    except Damaged as error:
        problem = Problem(path, error.offset or 0, base, end, str(error))
        return SegmentReport(path, base, base, size, 0, 0, sealed=indexed, problems=(problem,))
    problems = []
    wanted = _contents(index, base, end)
    if wanted is not None and scanned.index.contents != wanted:
        problems.append(_problem(damaged(path, scanned, base + wanted)))
    elif scanned.bad is not None and wanted is None and scanned.bad.offset < scanned.durable:
        problems.append(_problem(damaged(path, scanned)))
    problems += _index_problems(store, base, index, scanned.index, indexed=indexed or end is not None)
    if end is not None and wanted is not None and base + wanted != end:
        message = f"{path}: ends at {base + wanted}, but the next segment begins at {end}"
        problems.append(Problem(path, size, base + wanted, end, message))
    found = scanned.index
    return SegmentReport(
        path, base, base + found.contents, size, len(found), found.contents, indexed, tuple(problems)
    )


def _contents(index: Index | None, base: int, end: int | None) -> int | None:
    """How many contents a segment must have, None for one that may end anywhere."""
    if index is not None:
        return index.contents
    return None if end is None else end - base


def _index_problems(
    store: Store, base: int, index: Index | None, scanned: Index, *, indexed: bool
) -> list[Problem]:
    path = store.path(index_name(base))
    if index is None:
        if not indexed:
            return []
        message = f"{path}: the index is missing or does not verify; it is made again from the segment"
        return [Problem(path, 0, None, None, message)]
    columns = zip(
        index.columns(),
        scanned.columns(),
        strict=True,
    )
    if any(list(own) != list(found) for own, found in columns):
        return [Problem(path, 0, None, None, f"{path}: the index does not agree with the segment")]
    return []


def _problem(error: Damaged) -> Problem:
    return Problem(error.file or "", error.offset or 0, error.first, error.end, str(error))

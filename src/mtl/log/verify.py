"""Verifies every byte of a log without changing anything: `mtl verify`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from mtl.errors import Damaged
from mtl.log.files import Disk, failure
from mtl.log.manifest import MANIFEST, Manifest, decode_manifest, unusable
from mtl.log.recovery import exchanged, missing, newest_missing
from mtl.log.scanned import damaged, scan_segment
from mtl.log.segment import Index, index_base, index_name, segment_base
from mtl.log.store import Store


class Problem(NamedTuple):
    """A problem at an octet of a file, and the sequences that it affects (`end` None: up to the log's end)."""

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
    """Read and verify every segment, oldest first; one report for each, and before them one for the log as a whole if
    that has a problem. A broker may use the log meanwhile, or remove it. StorageFailed when the disk cannot be read.
    """
    store = Store(disk, directory)
    try:
        yield from _verify(store)
    except OSError as error:
        if disk.exists(directory):
            raise failure(error, f"verifying {directory}") from error


def _verify(store: Store) -> Iterator[SegmentReport]:
    manifest, names = _survey(store)
    bases = [base for name in names if (base := segment_base(name)) is not None]
    problems = list(_log_problems(store, manifest, bases))
    if problems:
        yield SegmentReport(store.directory, 0, 0, 0, 0, 0, sealed=False, problems=tuple(problems))
    indexed = {base for name in names if (base := index_base(name)) is not None}
    least = manifest.end if isinstance(manifest, Manifest) and not problems else 1
    for base, end in zip_longest(bases, bases[1:]):
        try:
            yield _segment_twice(store, base, end, base in indexed, least)
        except FileNotFoundError:
            if store.disk.exists(store.segment_path(base)):
                raise
            now, _ = _survey(store)  # raises the same error if the whole log is gone
            if isinstance(now, Damaged) or base >= now.earliest:
                message = f"{store.segment_path(base)}: was removed while this ran"
                problem = Problem(store.directory, 0, base, end, message)
                yield SegmentReport(store.directory, base, base, 0, 0, 0, sealed=False, problems=(problem,))


def _survey(store: Store) -> tuple[Manifest | Damaged, list[str]]:
    """The manifest, and the names of the files at a time when it was valid."""
    before = store.read(MANIFEST)
    while True:
        names = store.disk.list_dir(store.directory)
        after = store.read(MANIFEST)
        if before == after:
            break
        before = after
    if after is None:
        return unusable(store.path(MANIFEST), "the file is missing"), names
    try:
        return decode_manifest(after, store.path(MANIFEST)), names
    except Damaged as error:
        return error, names


def _log_problems(store: Store, manifest: Manifest | Damaged, bases: list[int]) -> Iterator[Problem]:
    """Problems of the log as a whole."""
    if isinstance(manifest, Damaged):
        without = Problem(store.directory, 0, None, None, f"{store.directory}: a log without a segment")
        yield _problem(manifest) if bases else without
        return
    if not bases or bases[-1] < manifest.newest:
        yield _problem(newest_missing(store, bases, manifest))
    if bases and bases[0] > manifest.earliest:
        yield _problem(missing(store, manifest.earliest, bases[0]))
    stranger = exchanged(store, bases, manifest)
    if stranger is not None and store.manifest() == manifest:  # else a broker has replaced it meanwhile
        yield _problem(stranger)


def _segment_twice(store: Store, base: int, end: int | None, indexed: bool, least: int) -> SegmentReport:
    """A problem counts when it is found twice: a broker may replace the files of a segment while they are read."""
    report = _segment(store, base, end, indexed, least)
    if not report.problems:
        return report
    first = {(problem.path, problem.offset) for problem in report.problems}
    again = _segment(store, base, end, indexed, least)
    return again._replace(problems=tuple(x for x in again.problems if (x.path, x.offset) in first))


def _segment(store: Store, base: int, end: int | None, indexed: bool, least: int) -> SegmentReport:
    path, size = store.segment_path(base), store.segment_size(base)
    try:
        header = store.header(base)
        index = store.index(base)
        size = store.segment_size(base)  # after the index, so that it is not smaller than that says
        scanned = scan_segment(store, base, header, size, _contents(index, base, end))
    except Damaged as error:
        problem = Problem(path, error.offset or 0, base, end, str(error))
        return SegmentReport(path, base, base, size, 0, 0, sealed=indexed, problems=(problem,))
    problems = []
    wanted = _contents(index, base, end)
    if wanted is not None and scanned.index.contents != wanted:
        problems.append(_problem(damaged(path, scanned, base + wanted)))
    elif scanned.bad is not None and wanted is None and scanned.was_durable:
        problems.append(_problem(damaged(path, scanned)))
    elif end is None and base + scanned.index.contents < least:
        problems.append(_problem(damaged(path, scanned, least, at_least=True)))
    problems += _index_problems(store, base, index, scanned.index, indexed=indexed or end is not None)
    if end is not None and wanted is not None and base + wanted < end:
        problems.append(_problem(missing(store, base + wanted, end)))
    elif end is not None and wanted is not None and base + wanted > end:
        message = f"{path}: ends at {base + wanted}, but the next segment begins at {end}"
        problems.append(Problem(path, size, end, base + wanted, message))
    stored = scanned.index
    return SegmentReport(
        path, base, base + stored.contents, size, len(stored), stored.contents, indexed, tuple(problems)
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
        message = f"{path}: the index is missing or does not verify; it is rebuilt from the segment"
        return [Problem(path, 0, None, None, message)]
    columns = zip(
        index.columns(),
        scanned.columns(),
        strict=True,
    )
    if any(list(own) != list(theirs) for own, theirs in columns):
        return [Problem(path, 0, None, None, f"{path}: the index does not agree with the segment")]
    return []


def _problem(error: Damaged) -> Problem:
    return Problem(error.file or "", error.offset or 0, error.first, error.end, str(error))

"""Recovery of a log when it is opened: some damage is cut off, some is repaired, and the rest is refused.

- Only the newest segment can be unfinished: a segment is synced, and its index written and synced, before the next
  one is begun. Of sealed segments only names and sizes are checked here; they are verified when they are read. A
  missing index is built again by a scan.
- Every chunk header states the offset that was durable when its group began. A bad chunk at or above the largest such
  offset belongs to a group that was never acknowledged: it is cut, with all that follows (the pages of an unsynced
  group reach the disk in any order, so valid chunks after a hole are normal). A bad chunk below it was durable and has
  changed: Damaged, and the log is not changed. The manifest's `end` states the same for contents: it is recorded now
  and then under load, when a log has been idle, when it is closed, and when it was opened.
- Zeros after the last chunk are room for small groups (`group`): they are cut, too, but nothing was lost.
- The last group may have no such evidence. A chunk of it that does not verify counts as unfinished.
- Complete chunks above that offset are kept, but may not be on the disk: after a failed fdatasync the cache holds
  pages that the disk never got. They are written again in place and synced.
- All checks come before the first change, so a refused log is unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from msgspec import structs

from mtl.errors import Damaged
from mtl.log.chunk import HEADER_SIZE as CHUNK_HEADER_SIZE
from mtl.log.chunk import decode_runs
from mtl.log.files import File, write_fully
from mtl.log.limits import SCAN_BLOCK
from mtl.log.manifest import NEW_MANIFEST, Manifest
from mtl.log.scanned import Scanned, contents, count_runs, damaged, scan_segment
from mtl.log.segment import (
    HEADER_SIZE,
    NEW_INDEX,
    NEW_LINK,
    STASHED,
    TEMPORARY,
    Index,
    SegmentHeader,
    index_base,
    index_name,
    segment_base,
    segment_name,
)
from mtl.log.store import Store, read_header


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The changes by a recovery. `cut_bytes` at octet `cut_at` of `cut_file` counted as an unfinished group; its
    headers name contents [cut_first, cut_end), an empty range without headers. `removed` are names of files.
    """

    segments: int
    cut_bytes: int = 0
    cut_file: str | None = None
    cut_at: int = 0
    cut_first: int = 0
    cut_end: int = 0
    rebuilt: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(slots=True)
class Active:
    """The newest segment, open for appending: file, index so far, and the offset known to be durable. `room` is the end
    of the file, with zeros after the last chunk: recovery treats them as the tail of an unfinished group.
    """

    file: File
    header: SegmentHeader
    index: Index
    durable: int
    room: int = 0

    @property
    def base(self) -> int:
        return self.header.base

    def cut(self, end: int) -> None:
        """Make the file end at `end`. OSError: it is not known where the file ends."""
        self.file.truncate(end)
        self.room = end


@dataclass(slots=True)
class Recovered:
    """A log's state as its files have it. `index` is the newest segment's, which is sealed unless it is `active`."""

    bases: list[int]
    sizes: dict[int, int]
    index: Index
    active: Active | None
    numbers: dict[int, int]
    manifest: Manifest
    earliest: int
    report: RecoveryReport

    @property
    def next(self) -> int:
        return self.index.base + self.index.contents

    @property
    def last_time(self) -> int:
        return self.index.newest_time


@dataclass(slots=True)
class _Plan:
    """The result of all checks. `header`: that of the newest segment; `scanned`: its scan, if it is not sealed."""

    bases: list[int]
    below: list[int]
    rebuilt: list[Index]
    index: Index
    header: SegmentHeader
    scanned: Scanned | None
    numbers: dict[int, int]
    orphans: list[str]


def recover(store: Store, manifest: Manifest, earliest: int | None) -> Recovered:
    """Repair a log's files and return its state. OSError of the disk is passed on.

    `earliest` is the metadata's, which is written before the manifest's: the larger one applies.
    """
    names = store.disk.sizes(store.directory)
    sizes = {base: size for name, size in names.items() if (base := segment_base(name)) is not None}
    earliest = manifest.earliest if earliest is None else max(earliest, manifest.earliest)
    plan = _examine(store, names, sizes, earliest, manifest)
    return _repair(store, sizes, plan, manifest, earliest)


# --- finding out --------------------------------------------------------------------------------------------


def _examine(
    store: Store, names: dict[str, int], sizes: dict[int, int], earliest: int, manifest: Manifest
) -> _Plan:
    bases = sorted(sizes)
    torn = None
    if len(bases) > 1 and sizes[bases[-1]] < HEADER_SIZE:
        torn = bases.pop()  # it cannot have contents; the next append begins it again
    if not bases or bases[-1] < manifest.newest:
        raise newest_missing(store, bases, manifest)
    below = [base for base, end in pairwise(bases) if end <= earliest]
    bases = bases[len(below) :]
    if bases[0] > earliest:
        raise missing(store, earliest, bases[0])
    if (stranger := exchanged(store, bases, manifest)) is not None:
        raise stranger

    indexed = {base for name in names if (base := index_base(name)) is not None}
    rebuilt = [
        rebuild(store, base, end, sizes[base])[0] for base, end in pairwise(bases) if base not in indexed
    ]
    newest = bases[-1]
    header = store.header(newest)
    index = store.index(newest)
    scanned = None
    if index is None or index.salt != header.salt:
        scanned = _scan_newest(store, newest, header, sizes[newest], manifest.end)
        index = scanned.index
    elif index.length > sizes[newest]:
        raise shortened(store.segment_path(newest), index, sizes[newest])
    if torn is not None and torn != newest + index.contents:
        raise missing(store, newest + index.contents, torn)
    orphans = [index_name(base) for base in sorted(indexed - set(bases) - set(below))]
    if scanned is not None and newest in indexed:
        orphans.append(index_name(newest))
    numbers = _walk(store, bases, sizes) if scanned is None else scanned.numbers
    return _Plan(bases, below, rebuilt, index, header, scanned, numbers, orphans)


def missing(
    store: Store, first: int, end: int | None, file: str | None = None, *, at_least: bool = False
) -> Damaged:
    """The error for contents whose segments are missing; `file` is one that is known to be missing. `at_least`:
    contents from `end` on may be missing, too.
    """
    wanted = contents(first, end, "should be there", at_least=at_least)
    files = "their segments are" if file is None else f"{file} is"
    message = (
        f"{store.directory}: {wanted}, but {files} missing. Nothing was changed: restore the missing files from a "
        "copy, then restart the broker"
    )
    return Damaged(message, file=store.directory, first=first, end=end)


def newest_missing(store: Store, bases: list[int], manifest: Manifest) -> Damaged:
    """The error for a log without its newest segments, at least without the one that the manifest names."""
    index = store.index(bases[-1]) if bases else None
    first = manifest.newest if index is None else index.base + index.contents
    end = manifest.end if manifest.end > first else None
    return missing(store, first, end, segment_name(manifest.newest), at_least=True)


def exchanged(store: Store, bases: list[int], manifest: Manifest) -> Damaged | None:
    """The error for a newest segment with another salt than in the manifest. None also for a header that does not
    verify: reading it reports that.
    """
    if manifest.salt is None or manifest.newest not in bases:
        return None
    header = read_header(store.disk, store.segment_path(manifest.newest))
    if header is None or header.salt == manifest.salt:
        return None
    return foreign_segment(store, manifest.newest)


def foreign_segment(store: Store, base: int) -> Damaged:
    """The error for a segment file that does not match the manifest, or its index."""
    path = store.segment_path(base)
    message = (
        f"{path}: this is not the segment that the log's manifest or index names: the file belongs to another log, or "
        f"they are older copies; {contents(base, None, 'are affected')}. Nothing was changed: restore the files as "
        "they were, then restart the broker"
    )
    return Damaged(message, file=path, offset=0, first=base)


def _scan_newest(store: Store, base: int, header: SegmentHeader, size: int, end: int) -> Scanned:
    """Scan the newest segment, which is not sealed. Damaged when durable contents of it do not verify: those below
    `end`, and those that a later header attests.
    """
    path = store.segment_path(base)
    if header.base != base:
        message = f"{path}: its header belongs to another segment, and its index is missing"
        raise Damaged(message, file=path, offset=0, first=base)
    scanned = scan_segment(store, base, header, size)
    if base + scanned.index.contents < end:
        raise damaged(path, scanned, end, at_least=True)
    if scanned.was_durable:
        raise damaged(path, scanned)
    return scanned


def rebuild(store: Store, base: int, end: int, size: int) -> tuple[Index, dict[int, int]]:
    """Index and writers' numbers of a sealed segment without an index, which must hold all contents up to `end`."""
    header = store.header(base)
    scanned = scan_segment(store, base, header, size, end - base)
    if scanned.index.contents != end - base:
        raise damaged(store.segment_path(base), scanned, end)
    index = scanned.index
    if header.base != base:
        # It was adopted, at the time when the next segment began that was not adopted.
        index = replace(index, time=_base_time_after(store, end), adopted=True)
    return index, scanned.numbers


def _base_time_after(store: Store, start: int) -> int:
    """The base time of the first segment from `start` on that has one: an adopted one without an index has none."""
    for name in store.disk.list_dir(store.directory):
        base = segment_base(name)
        if base is None or base < start:
            continue
        index, header = store.index(base), store.header(base)
        if index is not None or header.base == base:
            return header.time if index is None else index.time
    raise Damaged(
        f"{store.directory}: no segment from {start} on is its own", file=store.directory, first=start
    )


def shortened(path: str, index: Index, size: int) -> Damaged:
    """The error for a sealed segment whose file is shorter than its index says."""
    at = index.find_offset(size)
    first = index.base + (index.sequences[at] if at >= 0 else 0)
    end = index.base + index.contents
    return Damaged(
        f"{path}: has {size} octets instead of {index.length}; {contents(first, end, 'are affected')}",
        file=path,
        offset=size,
        first=first,
        end=end,
    )


# --- the dedup table ----------------------------------------------------------------------------------------


def _walk(store: Store, bases: list[int], sizes: dict[int, int]) -> dict[int, int]:
    """The dedup table of a log whose newest segment is sealed: the last snapshot and the runs after it.

    Adopted segments have neither. While they are put in place the table lies in the stashed next segment.
    """
    end = None
    for base in reversed(bases):
        index, header = store.index(base), store.header(base)
        adopted = header.base != base if index is None else index.adopted
        if not adopted and index is None:
            assert end is not None  # the newest one's index was read before
            return rebuild(store, base, end, sizes[base])[1]
        if not adopted and index is not None:
            if index.length > sizes[base]:
                raise shortened(store.segment_path(base), index, sizes[base])
            return _numbers(store, header, index)
        if end is None and (stashed := _stashed(store)) is not None:
            return stashed
        end = base
    message = f"{store.directory}: every segment is adopted, so the writers' last numbers are lost"
    raise Damaged(message, file=store.directory)


def _stashed(store: Store) -> dict[int, int] | None:
    try:
        header = read_header(store.disk, store.path(STASHED))
        return None if header is None else store.snapshot(STASHED, header)
    except (FileNotFoundError, Damaged):
        return None


def _numbers(store: Store, header: SegmentHeader, index: Index) -> dict[int, int]:
    """The dedup table at the end of a sealed segment: its snapshot and its chunks' runs, found by its index."""
    numbers = store.snapshot(segment_name(index.base), header)
    file = store.disk.open(store.segment_path(index.base), "read")
    try:
        for place in range(len(index)):
            if runs := index.runs(place):
                table = file.pread(index.table(place), index.offsets[place] + CHUNK_HEADER_SIZE)
                count_runs(numbers, decode_runs(table, runs), store.segment_path(index.base))
    finally:
        file.close()
    return numbers


# --- repairing ----------------------------------------------------------------------------------------------


def _repair(store: Store, sizes: dict[int, int], plan: _Plan, manifest: Manifest, earliest: int) -> Recovered:
    if plan.below:
        manifest = structs.replace(manifest, earliest=earliest)
        store.write_manifest(manifest)
    removed = _remove_leavings(store, plan)
    for index in plan.rebuilt:
        store.write_index(index)
    newest = plan.bases[-1]
    kept = {base: sizes[base] for base in plan.bases}
    active = None
    if plan.scanned is not None:
        active = _reopen(store, plan.header, plan.scanned, sizes[newest])
        kept[newest] = plan.index.length
    scanned = plan.scanned or Scanned(plan.index)
    report = RecoveryReport(
        segments=len(plan.bases),
        cut_bytes=scanned.cut,
        cut_file=store.segment_path(newest) if scanned.cut else None,
        cut_at=plan.index.length,
        cut_first=plan.index.base + plan.index.contents,
        cut_end=scanned.cut_end,
        rebuilt=tuple(index_name(index.base) for index in plan.rebuilt),
        removed=removed,
    )
    return Recovered(plan.bases, kept, plan.index, active, plan.numbers, manifest, earliest, report)


def _remove_leavings(store: Store, plan: _Plan) -> tuple[str, ...]:
    """Remove incomplete files and the remains of an interrupted trim. The remaining names are durable
    afterwards.
    """
    names = [TEMPORARY, NEW_INDEX, NEW_LINK, NEW_MANIFEST, *plan.orphans]
    if not plan.index.adopted:
        names.append(STASHED)
    for base in plan.below:
        names += [segment_name(base), index_name(base)]
    present = set(store.disk.list_dir(store.directory))
    removed = tuple(name for name in names if name in present)
    for name in removed:
        store.remove(name)
    store.sync_names()
    return removed


def _reopen(store: Store, header: SegmentHeader, scanned: Scanned, size: int) -> Active:
    """Open the unsealed segment for appending: its bad tail is cut, the rest is made durable."""
    file = store.disk.open(store.segment_path(header.base), "write")
    try:
        if scanned.index.length < size:
            file.truncate(scanned.index.length)
        _write_again(file, max(scanned.durable, header.start), scanned.index.length)
        file.sync()
    except OSError:
        file.close()
        raise
    return Active(file, header, scanned.index, scanned.index.length)


def _write_again(file: File, start: int, end: int) -> None:
    for at in range(start, end, SCAN_BLOCK):
        write_fully(file, [file.pread(min(SCAN_BLOCK, end - at), at)], at)

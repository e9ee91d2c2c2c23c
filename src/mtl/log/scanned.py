"""Scans one segment: its index, its writers' numbers, and where it ends or is damaged. A broker may write meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mtl.errors import Damaged
from mtl.log.chunk import RunEntry
from mtl.log.files import File
from mtl.log.scan import Bad, Beyond, FoundChunk, scan, scan_beyond
from mtl.log.segment import Entry, Index, SegmentHeader, empty_index, segment_name
from mtl.log.store import Store

_NUMBERS = 1 << 64
"""Publishing numbers are below this bound. No writer reaches it, but octets of a damaged disk may decode to a
larger number."""


@dataclass(slots=True)
class Scanned:
    """A segment read to its end, or to the first bad chunk."""

    index: Index
    durable: int = 0
    bad: Bad | None = None
    beyond: Beyond = field(default_factory=Beyond)
    numbers: dict[int, int] = field(default_factory=dict)

    @property
    def cut(self) -> int:
        """Octets of an unfinished group."""
        return 0 if self.bad is None else self.beyond.end - self.index.length

    @property
    def was_durable(self) -> bool:
        """Whether the bad chunk, if there is one, was written and has changed since."""
        return self.bad is not None and self.bad.offset < self.durable

    @property
    def cut_end(self) -> int:
        """The sequence after the last content that a header of the unfinished group names."""
        return self.index.base + max(self.index.contents, self.beyond.contents)


def scan_segment(
    store: Store, base: int, header: SegmentHeader, size: int, contents: int | None = None
) -> Scanned:
    """Read a segment up to its end, a bad chunk, or `contents` contents."""
    path = store.segment_path(base)
    numbers = store.snapshot(segment_name(base), header)
    result = Scanned(replace(empty_index(header), base=base), numbers=numbers)
    file = store.disk.open(path, "read")
    try:
        while (bad := _add_chunks(result, file, header, path, size, contents)) is not None:
            seen, result.bad = result.bad, bad
            result.beyond = scan_beyond(file, header, bad.offset, size)
            result.durable = max(result.durable, result.beyond.durable)
            # A chunk was complete before a later header attested it. So it is read again: a broker may have written
            # both since the first time.
            if bad.offset >= result.durable or (seen is not None and seen.offset == bad.offset):
                return result
        result.bad, result.beyond = None, Beyond()
    finally:
        file.close()
    return result


def _add_chunks(
    result: Scanned, file: File, segment: SegmentHeader, path: str, size: int, contents: int | None
) -> Bad | None:
    """Add the chunks that follow. Returns the bad one at which this ends."""
    index = result.index
    for item in scan(file, segment, path, size, start=index.length, sequence=index.contents):
        if isinstance(item, Bad):
            return item
        if contents is not None and item.header.sequence >= contents:
            break
        _add_chunk(result, item, path)
    return None


def _add_chunk(result: Scanned, item: FoundChunk, path: str) -> None:
    header = item.header
    result.durable = max(result.durable, header.durable)
    result.index.add(Entry(item.offset, header.time, header.contents, header.body, header.runs, item.end))
    count_runs(result.numbers, item.runs(), path)


def damaged(path: str, scanned: Scanned, end: int | None = None, *, at_least: bool = False) -> Damaged:
    """The error for a segment whose durable part has a bad chunk. `at_least`: contents from `end` on may be affected,
    too.
    """
    index = scanned.index
    offset, reason = scanned.bad or (index.length, "the segment ends too early")
    first = index.base + index.contents
    if scanned.beyond.sequence is not None:
        end = index.base + scanned.beyond.sequence
        at_least = False
    return Damaged(
        f"{path}: damaged at octet {offset}: {reason}; {contents(first, end, 'are affected', at_least=at_least)}. "
        "Nothing was changed: `mtl verify` shows the intact parts, a copy of the file can replace it",
        file=path,
        offset=offset,
        first=first,
        end=end,
    )


def contents(first: int, end: int | None, what: str, *, at_least: bool = False) -> str:
    """For messages: "contents 3 to 7 are affected (5 in all)". `end` None: up to the log's end, which is not known."""
    if end is None:
        return f"contents from {first} on {what}"
    return f"contents {first} to {end - 1} {what} ({'at least ' if at_least else ''}{end - first:,} in all)"


def count_runs(numbers: dict[int, int], runs: list[RunEntry], path: str) -> None:
    """Add the runs of a chunk to the table of writers' last numbers. Damaged for an impossible number."""
    for run in runs:
        last = run.first + run.count - 1
        if last >= _NUMBERS:
            raise Damaged(f"{path}: a table of writers holds a number above 64 bits", file=path)
        numbers[run.writer] = max(numbers.get(run.writer, 0), last)

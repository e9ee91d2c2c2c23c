"""A log and a model of its required contents, for tests with failures and crashes.

`LogUnderTest` performs the actions of a broker on a log, in the same order and with the same records (which survive
every crash, as in a database). After every step it knows the contents that a reader must find: all acknowledged ones,
in order, without gaps, and no refused ones. Of contents in flight when the machine stopped, any prefix may exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mtl.errors import StorageError
from mtl.log.cache import ReadCache
from mtl.log.change import LogOptions, StagePart, Trimmed
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.files import Disk
from mtl.log.log import create_log, delete_log, open_log
from mtl.log.manifest import MANIFEST
from mtl.log.queries import Range, RangeFrom
from mtl.log.reader import LogReader
from mtl.log.recovery import RecoveryReport
from mtl.log.stage import stage_parts
from mtl.log.writer import LogWriter
from tests.support.faulty_disk import FaultyDisk

LOG = "/data/log"
OWNER = b"whose log this is"
T = TypeVar("T")


@dataclass(frozen=True)
class Stored:
    """A chunk as a reader must find it."""

    base: int
    count: int
    body: bytes
    runs: tuple[RunEntry, ...] = ()

    @property
    def end(self) -> int:
        return self.base + self.count


@dataclass
class Commit:
    """The record of a commit that is not applied yet: its start, the parts of its stages, and their contents."""

    base: int
    parts: tuple[StagePart, ...]
    chunks: list[NewChunk]
    adopt: bool


FILLED_BODY = bytes(range(200))


def make_dirs(disk: Disk, *paths: str) -> None:
    for path in paths:
        disk.make_dir(path)
        disk.fsync_dir(path.rsplit("/", 1)[0] or "/")


def files(disk: Disk, directory: str = LOG) -> list[str]:
    """Names of a log's segments, indexes, and files in the making; not the manifest's."""
    return [name for name in disk.list_dir(directory) if name != MANIFEST]


def read_all(reader: LogReader) -> list[Stored]:
    """All contents that a reader finds, with a check for gaps."""
    found = []
    ref = reader.snapshot().find(reader.earliest)
    while ref is not None:
        found.append(Stored(ref.base, ref.count, bytes(reader.snapshot().read(ref))))
        assert not found[:-1] or found[-2].end == ref.base, "a gap"
        ref = reader.snapshot().find(ref.end)
    return found


def place(base: int, chunks: Sequence[NewChunk]) -> list[Stored]:
    """`chunks` as they must be found when their first content gets sequence `base`."""
    stored = []
    for chunk in chunks:
        stored.append(Stored(base, chunk.count, bytes(chunk.body), chunk.runs))
        base += chunk.count
    return stored


class LogUnderTest:
    """Opens the log at `/data/log` of `disk`; creates it if it does not exist."""

    def __init__(self, disk: FaultyDisk, options: LogOptions | None = None) -> None:
        self.disk = disk
        self.options = options or LogOptions(segment_bytes=2048)
        self.now = 1_000_000
        self.held: list[Stored] = []  # all acknowledged contents, including those removed by retention
        self.maybe: list[NewChunk] = []  # contents in flight
        self.synced = 0  # durability "os": how many of `held` are there after a power failure, at least
        self.lost_power = False  # since it was last opened
        self.earliest = 1  # the metadata's
        self.record: Commit | None = None
        self.stages = 0
        self.starts = 0
        self.run_of: dict[int, str] = {}  # chunks by their base: the run that appended them last
        self.reader: LogReader
        self.writer: LogWriter
        self.report: RecoveryReport
        make_dirs(disk, "/data")
        create_log(disk, LOG, self.now, owner=OWNER, run=f"{self.starts + 1:08x}")
        self.open()

    @property
    def run(self) -> str:
        """The token of this run of the broker."""
        return f"{self.starts:08x}"

    @property
    def next(self) -> int:
        return self.held[-1].end if self.held else 1

    @property
    def visible(self) -> list[Stored]:
        """The contents that a reader must find."""
        return [
            Stored(chunk.base, chunk.count, chunk.body) for chunk in self.held if chunk.end > self.earliest
        ]

    @property
    def numbers(self) -> dict[int, int]:
        """The dedup table, computed from all contents ever stored."""
        numbers: dict[int, int] = {}
        for run in (run for chunk in self.held for run in chunk.runs):
            numbers[run.writer] = max(numbers.get(run.writer, 0), run.first + run.count - 1)
        return numbers

    # --- actions of a broker --------------------------------------------------------------------------------

    def append(self, *chunks: NewChunk) -> None:
        self.now += 1000
        self.maybe = list(chunks)
        self._coming(place(self.next, chunks))
        change = self._do(lambda: self.writer.append(chunks, self.now))
        stored = place(self.next, chunks)
        assert [ref.base for ref in change.chunks] == [chunk.base for chunk in stored]
        self.maybe = []
        self.held += stored
        if self.options.durability == "sync":
            self.synced = len(self.held)
        self.reader.apply(change)

    def roll(self) -> None:
        self.now += 1000
        self.reader.apply(self._do(lambda: self.writer.roll(self.now)))
        self.synced = len(self.held)

    def sync(self) -> None:
        self.reader.apply(self._do(self.writer.sync))
        self.synced = len(self.held)

    def mark(self) -> None:
        self._do(self.writer.mark)

    def trim(self, earliest: int) -> None:
        """Retention: the metadata first, then what is visible, then the files."""
        self.earliest = max(self.earliest, earliest)
        self.reader.apply(Trimmed(self.earliest))
        self._do(lambda: self.writer.trim(self.earliest))

    def commit(self, stages: Sequence[Sequence[NewChunk]], *, adopt: bool) -> None:
        """Write stages, record the commit, apply it."""
        directories = [self._write_stage(chunks) for chunks in stages]
        parts = tuple(part for directory in directories for part in stage_parts(self.disk, directory))
        if self.options.durability == "os":
            self.sync()  # contents before the commit must be as durable as its record
        chunks = [NewChunk(chunk.count, chunk.body) for stage in stages for chunk in stage]
        self.record = Commit(
            self.next, parts, chunks, adopt
        )  # without their runs, which the log must not count
        self.apply_commit()
        for directory in directories:
            delete_log(self.disk, directory)

    def apply_commit(self) -> None:
        """Also used for the redo: truncate_to has no effect the first time."""
        record = self.record
        assert record is not None
        self.now += 1000
        self.reader.apply(self._do(lambda: self.writer.truncate_to(record.base)))
        stored = place(record.base, record.chunks)
        self._coming(stored)
        method = self.writer.adopt if record.adopt else self.writer.append_from
        change = self._do(lambda: method(record.parts, self.now))
        assert (change.first, change.next) == (record.base, stored[-1].end)
        self.reader.apply(change)
        self.held += stored
        self.record = None
        self.synced = len(self.held)

    def _coming(self, stored: Sequence[Stored]) -> None:
        self.run_of.update({chunk.base: self.run for chunk in stored})

    def _write_stage(self, chunks: Sequence[NewChunk]) -> str:
        self.stages += 1
        directory = f"/data/stage{self.stages}"
        create_log(self.disk, directory, self.now)
        _, writer, _ = open_log(self.disk, directory, LogOptions(segment_bytes=1024), now_us=self.now)
        for chunk in chunks:
            writer.append([chunk], self.now)
        writer.seal()
        writer.close()
        return directory

    def _do(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except StorageError:
            if not self.writer.stopped:
                self.maybe = []
            raise

    # --- crashes and checks ---------------------------------------------------------------------------------

    def close(self) -> None:
        self.writer.close()
        self.reader.close()
        self.synced = len(self.held)

    def crash(self, *, power: bool = True, keep: str = "some") -> None:
        """Stop the machine or the process; then open the log again and check it."""
        self.disk.crash(power=power, keep=keep)
        self.lost_power |= power
        self.open()

    def open_only(self) -> None:
        self.now += 1000
        self.starts += 1
        self.reader, self.writer, self.report = open_log(
            self.disk,
            LOG,
            self.options,
            now_us=self.now,
            earliest=self.earliest,
            cache=ReadCache(tail_bytes=1000),
            owner=OWNER,
            run=self.run,
        )

    def open(self) -> None:
        """Open, compare with the model, redo a commit that was recorded."""
        self.open_only()
        self._take_stock()
        if self.record is not None:
            self.apply_commit()
        self.check()

    def _take_stock(self) -> None:
        """Contents in flight that exist count as acknowledged from now on; no others may exist."""
        coming = self.maybe if self.record is None else self.record.chunks
        candidates = [*self.held, *place(self.next, coming)]
        may_lose = self.lost_power and self.options.durability == "os"
        there = sum(chunk.base < self.reader.next for chunk in candidates)
        assert (self.synced if may_lose else len(self.held)) <= there, "acknowledged contents are lost"
        expected = [chunk for chunk in candidates[:there] if chunk.end > self.earliest]
        assert read_all(self.reader) == [Stored(chunk.base, chunk.count, chunk.body) for chunk in expected]
        if self.record is None:
            self.held = candidates[:there]
        self.maybe = []
        self.lost_power = False
        self.synced = len(self.held)

    def check(self) -> None:
        """Reader and writer agree with the model and with each other."""
        reader, writer = self.reader, self.writer
        assert read_all(reader) == self.visible
        assert (reader.earliest, reader.next, writer.next) == (self.earliest, self.next, self.next)
        assert writer.last_numbers == self.numbers
        refs = [reader.snapshot().find(chunk.base) for chunk in self.visible]
        times = [ref.time_us for ref in refs if ref is not None]
        assert times == sorted(times)
        assert all(time <= reader.last_time == writer.last_time for time in times[-1:])
        epochs = {chunk.base: reader.epoch_of(chunk.base) or "" for chunk in self.visible}
        assert {base: epoch.partition(".")[2] for base, epoch in epochs.items()} == {
            base: self.run_of[base] for base in epochs
        }
        numbers = [int(epoch.id.partition(".")[0]) for epoch in reader.history]
        assert numbers == sorted(set(numbers))
        infos = list(reader.segments())
        assert sum(info.bytes for info in infos) == reader.bytes
        assert [info.base for info in infos[1:]] == [info.end for info in infos[:-1]]


def filled_log(disk: FaultyDisk, groups: int = 12, *, segment_bytes: int = 1100) -> LogUnderTest:
    """Contents of two per chunk, one chunk per group, 320 octets each: three to a segment. Closed and opened again."""
    log = LogUnderTest(disk, LogOptions(segment_bytes=segment_bytes))
    for at in range(groups):
        log.append(NewChunk(2, bytes([at % 256]) + FILLED_BODY))
    log.close()
    log.open()
    return log


def range_of(reader: LogReader, start: int, contents: int | None = None) -> Range:
    found = reader.snapshot().answer(RangeFrom(start, contents))
    assert isinstance(found, Range)
    return found

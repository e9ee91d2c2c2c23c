"""Storage engines for tests: places that outlive an engine, and a caller that performs actions on one.

A place opens an engine as a new broker process would. `PLACES` has every engine of the project and the faulty twin of
the data directory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from mtl.errors import StorageError
from mtl.storage.api import (
    Append,
    Chunk,
    Contents,
    CreateLog,
    Draft,
    DropLogs,
    Engine,
    LogOptions,
    LogQuery,
    LogView,
    NewChunk,
    OpenLog,
    Publish,
    Read,
    Restored,
    RunEntry,
    Save,
    Seen,
    StorageAction,
)
from mtl.storage.directory import DirectoryEngine, DiskEngine
from mtl.storage.keys import LogKey, log_key, staged_log_keys
from mtl.storage.local import Storage
from mtl.storage.memory import Memory, MemoryEngine
from mtl.storage.records import AnyRecord, ResourceRecord, StageRecord, encode_owner
from mtl.wire.packs import trust_pack, unpack
from tests.support.faulty_disk import FaultyDisk
from tests.support.faulty_store import FaultyStore

ROOT = "/data"
SEGMENT_BYTES = 4 << 10
NOW = 1_700_000_000_000_000


class FaultyEngine(DiskEngine):
    """The engine of the data directory, on a disk and on records that can fail."""

    name = "faulty"

    def observe(self) -> Seen:
        return Seen(1 << 40, 1 << 40, None)


class Place(Protocol):
    """The storage of an engine, which outlives it."""

    def open(self) -> Engine:
        """The engine of a new process."""


class DirectoryPlace:
    def __init__(self, directory: Path) -> None:
        self.directory = directory / "data"
        self.directory.mkdir()

    def open(self) -> Engine:
        return DirectoryEngine(str(self.directory), SEGMENT_BYTES)


class FaultyPlace:
    def __init__(self, directory: Path | None = None) -> None:
        self.disk = FaultyDisk(random.Random(1))
        self.disk.make_dir(ROOT)
        self.disk.fsync_dir("/")
        self.store = FaultyStore()

    def open(self) -> Engine:
        return FaultyEngine(Storage(self.disk, ROOT, self.store, SEGMENT_BYTES))


class MemoryPlace:
    """`threads`, `in_memory` and `before_answer` are those of the engine."""

    def __init__(self, directory: Path | None = None, threads: int = 0, *, in_memory: bool = True) -> None:
        self.memory = Memory()
        self.threads = threads
        self.in_memory = in_memory
        self.before_answer: Callable[[StorageAction], None] = lambda _: None

    def _before(self, action: StorageAction) -> None:
        self.before_answer(action)

    def open(self) -> Engine:
        return MemoryEngine(
            self.memory, threads=self.threads, in_memory=self.in_memory, before_answer=self._before
        )


PLACES: dict[str, Callable[[Path], Place]] = {
    "directory": DirectoryPlace,
    "faulty": FaultyPlace,
    "memory": MemoryPlace,
    "memory-threads": lambda directory: MemoryPlace(directory, threads=4, in_memory=False),
}


def copied(memory: Memory) -> Memory:
    """A copy of this memory. Chunks, which nothing changes, are shared."""
    chunks: dict[int, Any] = {id(chunk): chunk for log in memory.logs.values() for chunk in log.chunks}
    twin = Memory(memory.octets, memory.record_octets)
    twin.logs, twin.records = deepcopy(memory.logs, chunks), dict(memory.records)
    twin.used, twin.record_used = memory.used, memory.record_used
    return twin


class Caller:
    """Performs actions as the broker does: one at a time for each log. `views` are the logs that are open, by key, and
    `numbers` their tables of publishing numbers as they were opened.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.now_us = NOW
        self.views: dict[LogKey, LogView] = {}
        self.numbers: dict[LogKey, dict[int, int]] = {}
        self._id = 0
        self.engine = place.open()
        self.restored: Restored = self.engine.restore()

    def id(self) -> int:
        self._id += 1
        return self._id

    def perform(self, action: StorageAction) -> Any:
        (result,) = self.engine.perform((action,))
        return result

    def reopen(self, bases: dict[LogKey, int] | None = None) -> None:
        """Close the engine; open it, and every log that a record names. `bases`: the start of interrupted commits."""
        assert self.engine.close(lambda _: None) == {}
        for view in self.views.values():
            view.close()
        self.views.clear()
        self.numbers.clear()
        self.engine = self.place.open()
        self.restored = self.engine.restore()
        assert not self.restored.damages
        for record in self.restored.records:
            if isinstance(record, ResourceRecord):
                self.open_log(log_key(record), record, (bases or {}).get(log_key(record)))
            elif isinstance(record, StageRecord):
                for key in staged_log_keys(record):
                    self.open_log(key, record)

    def open_log(self, key: LogKey, record: ResourceRecord | StageRecord, base: int | None = None) -> Any:
        earliest = record.earliest if isinstance(record, ResourceRecord) else None
        options = LogOptions(SEGMENT_BYTES)
        owner = encode_owner(record)
        opened = self.perform(OpenLog(self.id(), key, options, earliest, base, owner, self.now_us))
        if isinstance(opened, tuple):
            self.views[key], self.numbers[key] = opened
        return opened

    # --- actions of a broker --------------------------------------------------------------------------------

    def save(self, *put: AnyRecord, forget: tuple[AnyRecord, ...] = ()) -> Any:
        return self.perform(Save(self.id(), put, forget))

    def resource(self, name: str, **more: Any) -> LogKey:
        """Make a resource with its log."""
        record = ResourceRecord("/", name, f"i-{name}", f"l-{name}", **more)
        return self.log(log_key(record), record)

    def stage(self, name: str, *resources: str) -> tuple[LogKey, ...]:
        """Make a stage with a log for each resource."""
        record = StageRecord("/", name, "app", 1, {r: f"i-{r}" for r in resources}, self.now_us)
        return tuple(self.log(key, record) for key in staged_log_keys(record))

    def log(self, key: LogKey, record: ResourceRecord | StageRecord) -> LogKey:
        view = self.perform(CreateLog(self.id(), key, LogOptions(SEGMENT_BYTES), encode_owner(record)))
        assert not isinstance(view, StorageError), view
        self.views[key] = view
        assert self.save(record) is None
        return key

    def append(self, key: LogKey, *drafts: Draft | NewChunk) -> Any:
        return self.change(key, Append(self.id(), key, drafts, self.now_us))

    def publish(self, key: LogKey, base: int, contents: int, *stages: LogKey) -> Any:
        return self.change(key, Publish(self.id(), key, base, stages, contents, self.now_us))

    def change(self, key: LogKey, action: StorageAction) -> Any:
        """Perform the action, and apply its changes to the view."""
        result = self.perform(action)
        if not isinstance(result, StorageError):
            for change in result:
                self.views[key].apply(change)
        return result

    def drop(self, record: ResourceRecord | StageRecord) -> None:
        """Delete a resource or a stage."""
        keys = (log_key(record),) if isinstance(record, ResourceRecord) else staged_log_keys(record)
        assert self.save(forget=(record,)) is None
        for key in keys:
            self.views.pop(key).close()
        self.perform(DropLogs(keys))

    def record(self, kind: type[Any], name: str) -> Any:
        """A record of the last `reopen`."""
        return next(
            r
            for r in self.restored.records
            if isinstance(r, kind) and name in {r.key, getattr(r, "name", "")}
        )

    def ask(self, key: LogKey, query: LogQuery) -> Any:
        """The decoded answer to a query."""
        return self.perform(Read(self.id(), key, self.views[key].snapshot(), query))

    def bases(self, key: LogKey, first: int) -> list[int]:
        """The bases of all chunks from the one with the content `first` on."""
        return [x.ref.base for x in self.ask(key, Contents(first, 1 << 40, octets=1 << 40, most=1 << 40))]

    def bodies(self, key: LogKey) -> list[bytes]:
        return [body for _, _, body in contents(self.views[key])]


def chunks(view: LogView) -> list[Chunk]:
    """Every chunk that a view shows. Raises `StorageError`."""
    found: list[Chunk] = []
    at = view.earliest
    while at < view.next:
        query = Contents(at, view.next, octets=1 << 40, most=1 << 40)
        more = cast(tuple[Chunk, ...], view.snapshot().answer(query))
        if not more:
            break
        found += more
        at = more[-1].ref.end
    return found


def contents(view: LogView) -> list[tuple[int, int, bytes]]:
    """Every content that a view shows: sequence, append time, body. There are no gaps."""
    found = []
    at = view.earliest
    for chunk in chunks(view):
        bodies = [bytes(body) for _, body in unpack(trust_pack(chunk.body))]
        assert len(bodies) == chunk.ref.count
        for sequence, body in enumerate(bodies, chunk.ref.base):
            if sequence >= view.earliest:
                assert sequence == at
                found.append((sequence, chunk.ref.time_us, body))
                at += 1
    assert at == view.next
    return found


def plain(*bodies: bytes, writer: int = 0, first: int = 0) -> Draft:
    """Plain contents, of a named writer when there is one."""
    runs = (RunEntry(writer, first, len(bodies)),) if writer else ()
    return Draft(bodies, None, runs)


def trimmed(record: ResourceRecord, earliest: int) -> ResourceRecord:
    """The record of a resource after retention."""
    return msgspec.structs.replace(record, earliest=earliest)

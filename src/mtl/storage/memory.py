"""The engine of `--data memory:`: logs and records in memory, for tests and notebooks. They end with the broker.

It has one lane for everything, so a batch is one group commit of all logs and records, as on an object store.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from mtl import limits
from mtl.errors import Damaged, StorageError, StorageFailed, StorageFull
from mtl.log.chunk import check
from mtl.log.manifest import Epoch, History, run_id, with_epoch
from mtl.log.stamps import Setbacks, before, next_stamp, with_setback
from mtl.storage.api import (
    Append,
    Changes,
    ChunkRef,
    CreateLog,
    Draft,
    DropLogs,
    ForgetWriters,
    Lane,
    Mark,
    NewChunk,
    OpenedLog,
    OpenLog,
    Prepare,
    Publish,
    Read,
    Restored,
    Roll,
    Save,
    Seen,
    StorageAction,
    Trim,
)
from mtl.storage.keys import LogKey, directory_of
from mtl.storage.memory_log import CutBack, Emptied, Grown, KeptChunk, MemoryLog, SetBack
from mtl.storage.records import DECODERS, AnyRecord, ResourceRecord, StageRecord
from mtl.wire.packs import encode_pack

MEMORY_OCTETS = 1 << 30
"""Default of the octets of contents in a memory broker: more than a test or a notebook writes, and less than the memory
of a laptop."""

RECORD_OCTETS = 64 << 20
"""Octets of its records: some ten thousand resources with their cursors and names of writers."""

OVERHEAD = 512
"""Octets counted per chunk, record and log in addition to their own, for the objects that hold them."""


class _KeptLog:
    """A log. `counted` are its octets for the limit: 0 for a stage whose contents were published."""

    def __init__(self) -> None:
        self.chunks: list[KeptChunk] = []
        self.numbers: dict[int, int] = {}
        self.epochs: History = ()
        self.earliest = 1
        self.next = 1
        self.last_time = 0
        self.setbacks: Setbacks = ()
        self.offset = 0
        self.counted = 0


class Memory:
    """The data of memory engines: a new engine on it finds the data of the previous one. Contents take at most
    `octets` and records `record_octets`, each with OVERHEAD; `used` and `record_used` are the present figures.
    """

    def __init__(self, octets: int = MEMORY_OCTETS, record_octets: int = RECORD_OCTETS) -> None:
        self.octets = octets
        self.record_octets = record_octets
        self.used = 0
        self.record_used = 0
        self.logs: dict[LogKey, _KeptLog] = {}
        self.records: dict[tuple[str, str], bytes] = {}
        self.lock = threading.Lock()

    def count(self, log: _KeptLog, octets: int) -> None:
        """Add octets (possibly negative) to a log's count, which does not fall below 0."""
        octets = max(octets, -log.counted)
        log.counted += octets
        self.used += octets

    def drop(self, key: LogKey) -> None:
        """Remove a log that may not be there."""
        log = self.logs.pop(key, None)
        if log is not None:
            self.count(log, -log.counted)


class MemoryEngine:
    """Without `threads` everything has one lane and is performed in batches. With `threads`, logs are performed by so
    many at once. Without `in_memory` the broker has to read every content by an action, as from a remote store; with it
    none. `before_answer` is called with each action that was performed, on its thread, before the answer is
    given: waiting there delays answers and changes their order. `random` makes the token of a run.
    """

    name = "memory:"
    directory: Path | None = None

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        threads: int = 0,
        in_memory: bool = True,
        before_answer: Callable[[StorageAction], None] = lambda _: None,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._memory = memory if memory is not None else Memory()
        self._threads = threads
        self._in_memory = in_memory
        self._before_answer = before_answer
        self._run = random(4).hex()
        self._methods: dict[type, Callable[[Any], object]] = {
            Save: self._save,
            DropLogs: self._drop,
            Prepare: lambda _: None,
            CreateLog: self._create,
            OpenLog: self._open,
            Append: self._append,
            Publish: self._publish,
            Trim: lambda action: self._trim(self._log(action.log), action.earliest),
            ForgetWriters: self._forget,
            Roll: self._roll,
            Mark: lambda _: True,
            Read: lambda action: action.snapshot.answer(action.query),
        }

    def restore(self) -> Restored:
        """The records. Logs that none of them names are removed: they were being made or removed."""
        memory = self._memory
        records = [
            cast(AnyRecord, DECODERS[kind].decode(octets))
            for (kind, _), octets in sorted(memory.records.items())
        ]
        places = {directory_of(r) for r in records if isinstance(r, ResourceRecord | StageRecord)}
        for key in list(memory.logs):
            if "/".join(key.split("/")[:2]) not in places:
                memory.drop(key)
        return Restored(records)

    def lane(self, action: StorageAction) -> Lane:
        """One for all but reads, unless there are `threads`."""
        if isinstance(action, Read):
            return Lane("reads", self._threads or 1)
        if not self._threads:
            return Lane("memory", together=True)
        return Lane("records") if isinstance(action, Save | DropLogs) else Lane("logs", self._threads)

    def perform(self, actions: Sequence[StorageAction]) -> Sequence[object]:
        """A batch is performed as a whole before its results are visible."""
        with self._memory.lock:
            results = [self._perform(action) for action in actions]
        for action in actions:
            self._before_answer(action)
        return results

    def _perform(self, action: StorageAction) -> object:
        try:
            return self._methods[type(action)](action)
        except StorageError as error:
            return error
        except ValueError as error:  # contents that do not fit: writers get the error, the log stays usable
            return StorageFailed(f"{type(action).__name__}: {error}")

    def observe(self) -> Seen:
        """No other process changes records in this memory."""
        memory = self._memory
        with memory.lock:
            return Seen(max(0, memory.octets - memory.used), memory.octets, None)

    def close(self, closing: Callable[[LogKey], None]) -> dict[LogKey, StorageError]:  # noqa: ARG002
        """There is nothing to sync."""
        return {}

    # --- records --------------------------------------------------------------------------------------------

    def _save(self, action: Save) -> None:
        memory = self._memory
        new = {(record.kind, record.key): msgspec.json.encode(record) for record in action.put}
        old = [*new, *((record.kind, record.key) for record in action.forget)]
        more = sum(map(_counted, new.values())) - sum(
            _counted(memory.records[k]) for k in old if k in memory.records
        )
        if more > 0 and memory.record_used + more > memory.record_octets:
            raise StorageFull(
                f"the broker's memory for records is full: {len(memory.records)} records have {memory.record_used} of "
                f"{memory.record_octets} octets; delete resources, cursors or stages, or give the broker a directory"
            )
        for key in old:
            memory.records.pop(key, None)
        memory.records |= new
        memory.record_used += more

    # --- logs -----------------------------------------------------------------------------------------------

    def _log(self, key: LogKey) -> _KeptLog:
        kept = self._memory.logs.get(key)
        if kept is None:
            raise Damaged(f"there is no log {key} in the broker's memory")
        return kept

    def _create(self, action: CreateLog) -> MemoryLog:
        self._make_room(OVERHEAD)
        kept = self._memory.logs[action.log] = _KeptLog()
        self._memory.count(kept, OVERHEAD)
        return self._view(action.log, kept)

    def _drop(self, action: DropLogs) -> None:
        for key in action.logs:
            self._memory.drop(key)

    def _forget(self, action: ForgetWriters) -> Changes:
        kept = self._log(action.log)
        for writer in action.writers:
            kept.numbers.pop(writer, None)
        return ()

    def _view(self, key: LogKey, kept: _KeptLog) -> MemoryLog:
        epoch = run_id(kept.epochs, self._run) if key.startswith("resources/") else None
        return MemoryLog(
            kept.chunks,
            kept.earliest,
            kept.next,
            kept.last_time,
            kept.epochs,
            epoch,
            setbacks=kept.setbacks,
            in_memory=self._in_memory,
        )

    def _open(self, action: OpenLog) -> OpenedLog | None:
        if action.log.startswith("stages/") and action.log not in self._memory.logs:
            return None
        kept = self._log(action.log)
        if action.base is not None:
            self._cut_back(kept, action.base)
        self._trim(kept, action.earliest or 1)
        return self._view(action.log, kept), dict(kept.numbers)

    def _append(self, action: Append) -> Changes:
        kept = self._log(action.log)
        chunks = [draft if isinstance(draft, NewChunk) else _packed(draft) for draft in action.drafts]
        for chunk in chunks:
            check(chunk)
        self._make_room(sum(chunk.size + OVERHEAD for chunk in chunks))
        time, set_back = _stamp(kept, action.now_us)
        grown = [
            _add(kept, chunk.count, memoryview(chunk.body).cast("B").toreadonly(), time) for chunk in chunks
        ]
        self._memory.count(kept, sum(chunk.ref.stored for chunk in grown))
        for run in (run for chunk in chunks for run in chunk.runs):
            kept.numbers[run.writer] = max(kept.numbers.get(run.writer, 0), run.first + run.count - 1)
        return *set_back, Grown(tuple(grown), self._epoch(action.log, kept, grown))

    def _roll(self, action: Roll) -> Changes:
        return _stamp(self._log(action.log), action.now_us)[1]

    def _make_room(self, octets: int) -> None:
        memory = self._memory
        if memory.used + octets > memory.octets:
            raise StorageFull(
                f"the broker's memory for contents is full: {memory.used} of {memory.octets} octets are used, and "
                f"{octets} are to be added; let retention remove contents, delete resources, or set a larger "
                "memory-bytes"
            )

    def _epoch(self, key: LogKey, kept: _KeptLog, grown: Sequence[KeptChunk]) -> Epoch | None:
        """The epoch that these chunks begin, if they are the first ones of this run."""
        own = run_id(kept.epochs, self._run)
        if not grown or not key.startswith("resources/") or (kept.epochs and kept.epochs[-1].id == own):
            return None
        epoch = Epoch(grown[0].ref.base, own)
        kept.epochs = with_epoch(kept.epochs, epoch)
        return epoch

    def _publish(self, action: Publish) -> Changes:
        """The bodies are not copied, and now count for the resource. This always fits."""
        kept, stages = self._log(action.log), [self._log(key) for key in action.stages]
        staged = [chunk for stage in stages for chunk in stage.chunks]
        contents = sum(chunk.ref.count for chunk in staged)
        if contents != action.contents:
            raise Damaged(
                f"{', '.join(action.stages)}: {contents} contents are staged where {action.contents} were"
            )
        self._cut_back(kept, action.base)
        time, set_back = _stamp(kept, action.now_us)
        grown = [_add(kept, chunk.ref.count, chunk.body, time) for chunk in staged]
        self._memory.count(kept, sum(chunk.ref.stored for chunk in grown))
        for stage in stages:
            self._memory.count(stage, -stage.counted)
        return CutBack(action.base), *set_back, Grown(tuple(grown), self._epoch(action.log, kept, grown))

    def _trim(self, kept: _KeptLog, earliest: int) -> Changes:
        kept.earliest = max(kept.earliest, earliest)
        self._retain(
            kept, bisect_right(kept.chunks, kept.earliest, key=lambda chunk: chunk.ref.end), len(kept.chunks)
        )
        return (Emptied(kept.earliest),)

    def _cut_back(self, kept: _KeptLog, base: int) -> None:
        """Remove contents from `base` on: those of an interrupted commit, which no reader has seen."""
        place = bisect_left(kept.chunks, base, key=lambda chunk: chunk.ref.base)
        begins = kept.chunks[place].ref.base if place < len(kept.chunks) else kept.next
        if begins != base:
            raise Damaged(f"no chunk begins at {base}, so no commit did; nothing was changed")
        self._retain(kept, 0, place)
        kept.next = base
        kept.epochs = tuple(epoch for epoch in kept.epochs if epoch.first < base)
        kept.setbacks = before(kept.setbacks, base + 1)

    def _retain(self, kept: _KeptLog, first: int, end: int) -> None:
        gone = [*kept.chunks[:first], *kept.chunks[end:]]
        if gone:
            kept.chunks = kept.chunks[first:end]
            self._memory.count(kept, -sum(chunk.ref.stored for chunk in gone))


def _stamp(kept: _KeptLog, now_us: int) -> tuple[int, tuple[SetBack, ...]]:
    """The stamp of contents that are appended now, and the setback that they begin, if any."""
    time = next_stamp(now_us, kept.last_time)
    if time >= kept.last_time:
        return time, ()
    kept.setbacks = with_setback(kept.setbacks, kept.next, time)
    kept.last_time = time
    return time, (SetBack(kept.next, time),)


def _add(kept: _KeptLog, count: int, body: memoryview, time_us: int) -> KeptChunk:
    stored = len(body) + OVERHEAD
    ref = ChunkRef(kept.next, count, time_us, len(body), stored, kept.next, kept.offset, 0)
    chunk = KeptChunk(ref, body)
    kept.chunks.append(chunk)
    kept.next, kept.last_time, kept.offset = ref.end, time_us, kept.offset + stored
    return chunk


def _counted(record: bytes) -> int:
    return len(record) + OVERHEAD


def _packed(draft: Draft) -> NewChunk:
    return NewChunk(draft.count, encode_pack(draft.bodies, draft.properties, limits.MAX_FRAME), draft.runs)

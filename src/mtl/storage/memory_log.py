"""The broker's view of a log in memory, the changes to it, and its snapshots."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mtl.log.manifest import Epoch, History, epoch_of, with_epoch
from mtl.log.queries import collect
from mtl.log.stamps import Setbacks, appended_by, before, first_since, is_ahead, with_setback
from mtl.storage.api import (
    Answer,
    ByTime,
    Chunk,
    ChunkRef,
    Contents,
    LogQuery,
    NewestTime,
    NotInMemory,
    Range,
    RangeFrom,
    SegmentInfo,
)


@dataclass(frozen=True, slots=True)
class KeptChunk:
    """A chunk and its body, which nothing changes."""

    ref: ChunkRef
    body: memoryview


@dataclass(frozen=True, slots=True)
class Grown:
    """Chunks were added. `epoch`: the one that begins with them, None when they belong to the one before."""

    chunks: tuple[KeptChunk, ...]
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class CutBack:
    """Contents from `next` on were removed."""

    next: int


@dataclass(frozen=True, slots=True)
class Emptied:
    """Contents below `earliest` were removed."""

    earliest: int


@dataclass(frozen=True, slots=True)
class SetBack:
    """The stamps of contents from `first` on begin again at `time` (µs), below earlier ones."""

    first: int
    time: int


class MemorySnapshot:
    """Contents [earliest, next). The lists may grow meanwhile; the log replaces them when it removes chunks."""

    __slots__ = ("_bases", "_chunks", "_setbacks", "earliest", "next")

    def __init__(
        self,
        chunks: Sequence[KeptChunk],
        bases: Sequence[int],
        setbacks: Setbacks,
        earliest: int,
        end: int,
    ) -> None:
        self._chunks = chunks
        self._bases = bases
        self._setbacks = setbacks
        self.earliest = earliest
        self.next = end

    def answer(self, query: LogQuery) -> Answer:
        """Answer at once, and without an error."""
        match query:
            case Contents():
                return collect(query, self.earliest, self.find, self.read)
            case ByTime(us, now_us):
                return self._at_time(us, now_us)
            case RangeFrom():
                return self._range(query)
            case NewestTime(base):
                place = bisect_left(self._bases, base)
                is_base = place < len(self._bases) and self._bases[place] == base
                stamp = self._chunks[place].ref.time_us if is_base else None
                return appended_by(stamp, self._setbacks, base)

    def find(self, sequence: int) -> ChunkRef | None:
        """The chunk that holds a content."""
        if not self.earliest <= sequence < self.next:
            return None
        return self._chunks[bisect_right(self._bases, sequence) - 1].ref

    def read(self, ref: ChunkRef) -> Chunk:
        """A chunk with its body."""
        return Chunk(ref, self._chunks[bisect_left(self._bases, ref.base)].body)

    def _at_time(self, us: int, now_us: int) -> ChunkRef | None:
        def search(low: int, high: int) -> ChunkRef | None:
            place = bisect_left(self._chunks, us, low, high, key=lambda kept: kept.ref.time_us)
            return None if place == high else self._chunks[place].ref

        ref = first_since(us, now_us, self._setbacks, self._bases, len(self._chunks), search)
        return ref if ref is not None and ref.base < self.next else None

    def _range(self, query: RangeFrom) -> Range:
        start = max(query.start, self.earliest)
        first = self.find(start)
        if first is None:
            return Range(start, 0, None)
        end = self.next if query.contents is None else min(self.next, start + query.contents)
        if query.octets is not None:
            until = first.offset + query.octets
            place = bisect_right(self._chunks, until, key=lambda kept: kept.ref.offset + kept.ref.stored)
            end = min(end, max(first.end, self._chunks[place - 1].ref.end if place else 0))
        last = self.find(end - 1)
        octets = 0 if last is None else last.offset + last.stored - first.offset
        return Range(end, octets, first.time_us)


class MemoryLog:
    """A `LogView`. Every chunk is a segment of its own, so retention removes chunks. The `offset` of a chunk is the
    number of octets of all chunks that ever were before it. Without `in_memory` every content has to be read.
    """

    def __init__(
        self,
        chunks: Sequence[KeptChunk],
        earliest: int,
        end: int,
        last_time: int,
        epochs: History,
        epoch: str | None,
        *,
        setbacks: Setbacks = (),
        in_memory: bool = True,
    ) -> None:
        self._setbacks = setbacks
        self._in_memory = in_memory
        self._chunks = list(chunks)
        self._bases = [chunk.ref.base for chunk in chunks]
        self._epochs = epochs
        self.earliest = earliest
        self.next = end
        self.last_time = last_time
        self.epoch = epoch
        self.bytes = sum(chunk.ref.stored for chunk in chunks)

    @property
    def contents(self) -> int:
        """How many contents there are."""
        return self.next - self.earliest

    @property
    def history(self) -> History:
        """The epochs that have contents."""
        return tuple(epoch for epoch in self._epochs if epoch.first < self.next)

    def epoch_of(self, sequence: int) -> str | None:
        """The epoch of a content."""
        return epoch_of(self.history, sequence)

    # --- finding --------------------------------------------------------------------------------------------

    def tail(self, sequence: int) -> Chunk | None:
        """The chunk that holds a content."""
        snapshot = self.snapshot()
        ref = snapshot.find(sequence) if self._in_memory else None
        return None if ref is None else snapshot.read(ref)

    def place(self, chunk: Chunk) -> Chunk:
        """There is no file. Raises `LookupError`."""
        raise LookupError(f"chunk {chunk.ref.base} is in the broker's memory")

    def answer_from_memory(self, query: LogQuery) -> Answer:
        """Every answer, or none."""
        if not self._in_memory:
            raise NotInMemory
        return self.snapshot().answer(query)

    def snapshot(self) -> MemorySnapshot:
        """The log at this moment."""
        return MemorySnapshot(self._chunks, self._bases, self._setbacks, self.earliest, self.next)

    def segments(self) -> Iterator[SegmentInfo]:
        """One for each chunk."""
        for kept in self._chunks:
            ref = kept.ref
            newest = appended_by(ref.time_us, self._setbacks, ref.base)
            yield SegmentInfo(ref.base, ref.end, ref.stored, newest)

    def roll_due(self, too_old: Callable[[float], int], now_us: int) -> bool:  # noqa: ARG002
        """Not because of an age: a chunk can go as it is."""
        return is_ahead(self.last_time, now_us)

    # --- following ------------------------------------------------------------------------------------------

    def apply(self, change: Grown | CutBack | Emptied | SetBack) -> None:
        """Take a change over."""
        match change:
            case SetBack(first, time):
                self._setbacks = with_setback(self._setbacks, first, time)
                self.last_time = time
            case Grown(chunks, epoch):
                self._grow(chunks, epoch)
            case CutBack(end):
                self._retain(0, bisect_left(self._bases, end))
                self.next = end
                self._setbacks = before(self._setbacks, end + 1)
            case Emptied(earliest):
                self.trim(earliest)

    def _grow(self, chunks: tuple[KeptChunk, ...], epoch: Epoch | None) -> None:
        if epoch is not None:
            self._epochs = with_epoch(self._epochs, epoch)
        for chunk in chunks:
            self._chunks.append(chunk)
            self._bases.append(chunk.ref.base)
            self.bytes += chunk.ref.stored
        if chunks:
            self.next, self.last_time = chunks[-1].ref.end, chunks[-1].ref.time_us

    def trim(self, earliest: int) -> None:
        """Show nothing below `earliest`."""
        self.earliest = max(self.earliest, earliest)
        self._retain(
            bisect_right(self._chunks, self.earliest, key=lambda chunk: chunk.ref.end), len(self._chunks)
        )

    def _retain(self, first: int, end: int) -> None:
        gone = [*self._chunks[:first], *self._chunks[end:]]
        if gone:
            self.bytes -= sum(chunk.ref.stored for chunk in gone)
            self._chunks, self._bases = self._chunks[first:end], self._bases[first:end]

    def close(self) -> None:
        """Nothing is shown any more."""
        self._retain(0, 0)
        self.earliest = self.next

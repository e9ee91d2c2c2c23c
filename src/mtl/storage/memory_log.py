"""The broker's view of a log in memory, and the changes to it. Belongs to the loop's thread."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from mtl.log.manifest import Epoch, History, begun, epoch_of
from mtl.storage.api import ChunkRef, SegmentInfo


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk and its body, which nothing changes."""

    ref: ChunkRef
    body: bytes


@dataclass(frozen=True, slots=True)
class Grown:
    """Chunks were added. `epoch`: the one that begins with them, None when they belong to the one before."""

    chunks: tuple[Chunk, ...]
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class CutBack:
    """Contents from `next` on were removed."""

    next: int


@dataclass(frozen=True, slots=True)
class Emptied:
    """Contents below `earliest` are gone."""

    earliest: int


class MemoryLog:
    """A `LogView`. Every chunk is a segment of its own, so retention removes chunks. The `offset` of a chunk is the
    number of octets of all chunks that ever were before it.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        earliest: int,
        end: int,
        last_time: int,
        epochs: History,
        epoch: str | None,
    ) -> None:
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

    def find(self, sequence: int) -> ChunkRef | None:
        """The chunk that holds a content."""
        if not self.earliest <= sequence < self.next:
            return None
        return self._chunks[bisect_right(self._bases, sequence) - 1].ref

    def following(self, ref: ChunkRef) -> ChunkRef | None:
        """The chunk after this one."""
        return self.find(max(ref.end, self.earliest))

    def oldest_time(self) -> int | None:
        """When the earliest content was appended."""
        first = self.find(self.earliest)
        return None if first is None else first.time_us

    def at_time(self, us: int) -> ChunkRef | None:
        """The first chunk that is not older."""
        place = bisect_left(self._chunks, us, key=lambda chunk: chunk.ref.time_us)
        return None if place == len(self._chunks) else self._chunks[place].ref

    def end_within(self, start: int, contents: int | None = None, bytes: int | None = None) -> int:  # noqa: A002
        """See `LogView`."""
        start = max(start, self.earliest)
        end = self.next if contents is None else min(self.next, start + contents)
        first = self.find(start)
        if first is None or bytes is None:
            return max(start, end)
        until = first.offset + bytes
        place = bisect_right(self._chunks, until, key=lambda chunk: chunk.ref.offset + chunk.ref.stored)
        last = self._chunks[place - 1].ref.end if place else first.end
        return min(end, max(first.end, last))

    def stored_between(self, start: int, end: int) -> int:
        """See `LogView`."""
        first, last = self.find(max(start, self.earliest)), self.find(min(end, self.next) - 1)
        if first is None or last is None or first.base > last.base:
            return 0
        return last.offset + last.stored - first.offset

    def segments(self) -> Iterator[SegmentInfo]:
        """One for each chunk."""
        for chunk in self._chunks:
            ref = chunk.ref
            yield SegmentInfo(ref.base, ref.end, ref.stored, partial(getattr, ref, "time_us"))

    def roll_due(self, too_old: Callable[[float], int]) -> bool:  # noqa: ARG002
        """Never: a chunk can go as it is."""
        return False

    # --- reading --------------------------------------------------------------------------------------------

    def read(self, ref: ChunkRef) -> memoryview:
        """The body of a chunk."""
        place = bisect_left(self._bases, ref.base)
        if ref.end <= self.earliest or place == len(self._bases) or self._bases[place] != ref.base:
            raise LookupError(f"chunk {ref.base} lies below {self.earliest}, where the log begins")
        return memoryview(self._chunks[place].body)

    def place(self, ref: ChunkRef) -> tuple[str, int]:
        """There is no file."""
        raise LookupError(f"chunk {ref.base} is in the broker's memory")

    # --- following ------------------------------------------------------------------------------------------

    def apply(self, change: Grown | CutBack | Emptied) -> None:
        """Take a change over."""
        match change:
            case Grown(chunks, epoch):
                self._grow(chunks, epoch)
            case CutBack(end):
                self._keep(0, bisect_left(self._bases, end))
                self.next = end
            case Emptied(earliest):
                self.trim(earliest)

    def _grow(self, chunks: tuple[Chunk, ...], epoch: Epoch | None) -> None:
        if epoch is not None:
            self._epochs = begun(self._epochs, epoch)
        for chunk in chunks:
            self._chunks.append(chunk)
            self._bases.append(chunk.ref.base)
            self.bytes += chunk.ref.stored
        if chunks:
            self.next, self.last_time = chunks[-1].ref.end, chunks[-1].ref.time_us

    def trim(self, earliest: int) -> None:
        """Show nothing below `earliest`."""
        self.earliest = max(self.earliest, earliest)
        self._keep(
            bisect_right(self._chunks, self.earliest, key=lambda chunk: chunk.ref.end), len(self._chunks)
        )

    def _keep(self, first: int, end: int) -> None:
        gone = [*self._chunks[:first], *self._chunks[end:]]
        if gone:
            self.bytes -= sum(chunk.ref.stored for chunk in gone)
            self._chunks, self._bases = self._chunks[first:end], self._bases[first:end]

    def close(self) -> None:
        """Nothing is shown any more."""
        self._keep(0, 0)
        self.earliest = self.next

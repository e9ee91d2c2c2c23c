"""Chunks that are read for readers and queues before they are sent."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from mtl.broker.reading.reads import Reads
from mtl.broker.writing.resource import Resource
from mtl.errors import StorageError
from mtl.storage.api import Chunk, Contents

READ_AHEAD_OCTETS = 4 << 20
"""Octets of one read: a read takes a few milliseconds from a fast disk, and hides some of the latency of a slow
one."""

READ_AHEAD_CHUNKS = 64
"""Most chunks of one read: a small chunk costs about 20 microseconds, independent of its size."""

MAX_AHEAD_OCTETS = 256 << 20
"""Octets that are kept for all readers and queues. Above this number the chunks that were read first are dropped,
and read again when they are needed."""


class Ahead:
    """The chunks of one reader or queue, ascending and without gaps, and whether a read for it is under way."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._bases: list[int] = []
        self.reading = False

    def find(self, sequence: int) -> Chunk | None:
        """The chunk that holds `sequence`."""
        place = bisect_right(self._bases, sequence) - 1
        is_within = place >= 0 and sequence < self._chunks[place].ref.end
        return self._chunks[place] if is_within else None

    def following(self, sequence: int) -> int | None:
        """The sequence at which the next read should begin while the contents from `sequence` on are sent. None
        while a read is under way, or while more than half of the chunks are unsent.
        """
        left = len(self._bases) - bisect_right(self._bases, sequence)
        if self.reading or not self._chunks or left * 2 > len(self._chunks):
            return None
        return self._chunks[-1].ref.end

    def append(self, chunks: Sequence[Chunk], needed: int) -> None:
        """Append chunks that were read, and drop chunks before the content `needed`. If the new chunks do not
        follow the present ones, they replace them.
        """
        if not chunks:
            return
        follows = bool(self._chunks) and self._chunks[-1].ref.end == chunks[0].ref.base
        kept = [chunk for chunk in self._chunks if chunk.ref.end > needed] if follows else []
        self._chunks = [*kept, *chunks]
        self._bases = [chunk.ref.base for chunk in self._chunks]

    def clear(self) -> None:
        """Drop all chunks."""
        self._chunks, self._bases = [], []

    @property
    def octets(self) -> int:
        """Octets of the bodies."""
        return sum(len(chunk.body) for chunk in self._chunks)


class Aheads:
    """Reads chunks, and bounds those of all readers and queues together."""

    def __init__(self, reads: Reads, most: int = MAX_AHEAD_OCTETS) -> None:
        self._reads = reads
        self._most = most
        self._aheads: OrderedDict[Ahead, int] = OrderedDict()
        self._octets = 0

    async def read(
        self,
        ahead: Ahead,
        resource: Resource,
        first: int,
        end: int,
        share: str,
        *,
        place_from: int | None = None,
    ) -> Sequence[Chunk]:
        """The contents from `first` on, up to `end` or the bounds of one read: only one read for `ahead` at a time.
        Raises `StorageError`.
        """
        query = Contents(first, end, READ_AHEAD_OCTETS, READ_AHEAD_CHUNKS, place_from)
        ahead.reading = True
        try:
            chunks = await self._reads.read(resource, query, share)
        except StorageError:
            ahead.reading = False
            raise
        ahead.reading = False
        return chunks

    def add(self, ahead: Ahead, chunks: Sequence[Chunk], needed: int) -> None:
        """As `Ahead.append`, and drop the oldest chunks of others while there are too many in all."""
        ahead.append(chunks, needed)
        self.ended(ahead)
        self._aheads[ahead] = ahead.octets
        self._octets += self._aheads[ahead]
        while self._octets > self._most and len(self._aheads) > 1:
            oldest, octets = self._aheads.popitem(last=False)
            self._octets -= octets
            oldest.clear()

    def ended(self, ahead: Ahead) -> None:
        """The reader or queue has ended."""
        self._octets -= self._aheads.pop(ahead, 0)

"""Chunks that were read for readers and queues before they are sent."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from mtl.storage.api import Chunk

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
        found = place >= 0 and sequence < self._chunks[place].ref.end
        return self._chunks[place] if found else None

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


class AheadLimit:
    """Bounds the chunks of all readers and queues together."""

    def __init__(self, most: int = MAX_AHEAD_OCTETS) -> None:
        self._most = most
        self._aheads: OrderedDict[Ahead, int] = OrderedDict()
        self._octets = 0

    def grew(self, ahead: Ahead) -> None:
        """Chunks were added: drop the oldest chunks of other readers and queues while there are too many in all."""
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

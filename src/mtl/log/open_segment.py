"""One segment of an open log, as its reader and the reading threads share it."""

from __future__ import annotations

from mtl.errors import Damaged
from mtl.log.recovery import rebuild, shortened
from mtl.log.scanned import contents
from mtl.log.segment import Index
from mtl.log.store import Store


class OpenSegment:
    """`end` is the sequence after its last content, `bytes` the size of its file. `warm`: every chunk was written or
    scanned by this process; else `verified` has one octet per chunk, 1 for verified ones. `removed`: no log shows it.

    Only the thread of the log's reader changes it, except that any thread may read and drop the index of a sealed
    segment and mark chunks as verified: the octets of visible contents, and their entries in an index, never change.
    """

    __slots__ = (
        "base",
        "bytes",
        "end",
        "index",
        "newest_time",
        "removed",
        "sealed",
        "store",
        "verified",
        "warm",
    )

    def __init__(self, store: Store, base: int, end: int, size: int) -> None:
        self.store = store
        self.base = base
        self.end = end
        self.bytes = size
        self.sealed = True
        self.warm = False
        self.removed = False
        self.index: Index | None = None
        self.newest_time: int | None = None
        """Append time of a sealed segment's newest content in µs; None until its index was read."""
        self.verified = bytearray()

    def drop_index(self) -> None:
        """Forget the index; it can be read again."""
        self.index = None

    def load(self) -> Index:
        """The index from its file, or from a scan when the file does not verify. It ends before `end` if the next
        segment is missing. Raises `Damaged`, OSError.
        """
        index = self.store.index(self.base)
        if index is None:
            index, _ = rebuild(self.store, self.base, self.end, self.bytes)
        if index.contents > self.end - self.base:
            raise self.broken(f"it holds {index.contents} contents", index.length)
        if index.length > self.bytes:
            raise shortened(self.store.segment_path(self.base), index, self.bytes)
        if not self.verified:
            self.verified = bytearray(len(index))
        return index

    def broken(self, reason: str, offset: int, first: int | None = None, end: int | None = None) -> Damaged:
        """The error for damage at an offset; of the whole segment unless contents [first, end) are given."""
        path = self.store.segment_path(self.base)
        first, end = first or self.base, end or self.end
        message = f"{path}: damaged at octet {offset}: {reason}; {contents(first, end, 'are affected')}"
        return Damaged(message, file=path, offset=offset, first=first, end=end)

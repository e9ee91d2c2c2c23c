"""A log at one moment, for reads from the disk in any thread.

Its segments are shared with the log's reader (see `OpenSegment`). Retention may remove files below `earliest` after the
moment: reading those fails with `StorageFailed`, and a newer snapshot begins above them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence

from mtl.log.cache import ReadCache
from mtl.log.change import ChunkRef
from mtl.log.chunk import HEADER_SIZE, NewerChunk, checksum, decode_header, is_chunk, padded
from mtl.log.files import failure
from mtl.log.open_segment import OpenSegment
from mtl.log.queries import (
    Answer,
    ByTime,
    Chunk,
    Contents,
    LogQuery,
    NewestTime,
    NotInMemory,
    Range,
    RangeFrom,
    collect,
)
from mtl.log.recovery import missing
from mtl.log.segment import INDEX_ENTRY, Index
from mtl.log.stamps import Setbacks, appended_by, first_since
from mtl.log.store import Store

_EMPTY = memoryview(b"")


class LogSnapshot:
    """Contents [earliest, next) in `segments`, whose bases are `bases`. `log` is the key of its bodies in the cache.
    Without `may_read`, `NotInMemory` is raised where the disk would have to be read.

    Methods raise `Damaged` or `StorageFailed` for contents that cannot be read.
    """

    __slots__ = (
        "_bases",
        "_cache",
        "_log",
        "_may_read",
        "_segments",
        "_setbacks",
        "_store",
        "earliest",
        "next",
    )

    def __init__(
        self,
        store: Store,
        cache: ReadCache,
        log: Hashable,
        segments: Sequence[OpenSegment],
        bases: Sequence[int],
        earliest: int,
        end: int,
        *,
        setbacks: Setbacks = (),
        may_read: bool = True,
    ) -> None:
        self._store = store
        self._cache = cache
        self._log = log
        self._segments = segments
        self._bases = bases
        self._setbacks = setbacks
        self._may_read = may_read
        self.earliest = earliest
        self.next = end

    def answer(self, query: LogQuery) -> Answer:
        """Answer a query. Raises also `NotInMemory`, see the class."""
        match query:
            case Contents():
                return self._contents(query)
            case ByTime(us, now_us):
                return self.at_time(us, now_us)
            case RangeFrom():
                return self._range(query)
            case NewestTime(base):
                return self._newest_time(base)

    # --- finding --------------------------------------------------------------------------------------------

    def find(self, sequence: int) -> ChunkRef | None:
        """The chunk that holds `sequence`, None outside [earliest, next)."""
        if not self.earliest <= sequence < self.next:
            return None
        segment = self._segment(sequence)
        index = self._index(segment)
        if sequence >= segment.base + index.contents:
            raise missing(self._store, segment.base + index.contents, segment.end)
        return self._ref(segment, index, index.find(sequence - segment.base))

    def at_time(self, us: int, now_us: int) -> ChunkRef | None:
        """The first chunk appended at or after `us`, None when all are older (stamps.py). `now_us`: the clock."""
        filled = len(self._segments) - (not len(self._index(self._segments[-1])))

        def search(low: int, high: int) -> ChunkRef | None:
            place = bisect_left(
                range(filled), us, low, high, key=lambda at: self._newest_of(self._segments[at])
            )
            if place == high:
                return None
            segment = self._segments[place]
            index = self._index(segment)
            return self._ref(segment, index, index.first_since(us))

        ref = first_since(us, now_us, self._setbacks, self._bases, filled, search)
        return ref if ref is None or ref.end > self.earliest else self.find(self.earliest)

    def end_within(self, start: int, contents: int | None = None, octets: int | None = None) -> int:
        """The end (exclusive) of the range from `start` on with at most the given contents and stored octets.

        The limit of contents is exact. The limit of octets rounds down to a whole chunk, but includes that of `start`.
        """
        start = max(start, self.earliest)
        end = self.next if contents is None else min(self.next, start + contents)
        first = self.find(start)
        if first is None or octets is None:
            return max(start, end)
        return min(end, max(first.end, self._end_of_octets(first, octets)))

    def stored_between(self, start: int, end: int) -> int:
        """Octets of the chunks that hold [start, end), as far as they are in the log."""
        first, last = self.find(max(start, self.earliest)), self.find(min(end, self.next) - 1)
        if first is None or last is None or first.base > last.base:
            return 0
        inside = last.offset + last.stored - first.offset
        low, high = self._place(first.segment), self._place(last.segment)
        return inside + sum(segment.bytes for segment in self._segments[low:high])

    def _range(self, query: RangeFrom) -> Range:
        first = self.find(max(query.start, self.earliest))
        if first is None:
            return Range(max(query.start, self.earliest), 0, None)
        end = self.end_within(query.start, query.contents, query.octets)
        return Range(end, self.stored_between(query.start, end), first.time_us)

    def _newest_time(self, base: int) -> int | None:
        place = self._place(base)
        if place < 0 or self._bases[place] != base:
            return None
        return appended_by(self._newest_of(self._segments[place]), self._setbacks, base)

    def _end_of_octets(self, first: ChunkRef, limit: int) -> int:
        """The end of the last chunk that lies within `limit` octets from the start of `first`."""
        place = self._place(first.segment)
        until = first.offset + limit
        while until >= self._segments[place].bytes and place + 1 < len(self._segments):
            until -= self._segments[place].bytes
            place += 1
        segment = self._segments[place]
        index = self._index(segment)
        if not len(index) or until >= index.length:
            return segment.end
        at = index.find_offset(until)
        return segment.base + (index.sequences[at] if at >= 0 else 0)

    def _place(self, base: int) -> int:
        return bisect_right(self._bases, base) - 1

    def _segment(self, sequence: int) -> OpenSegment:
        return self._segments[self._place(sequence)]

    def _newest_of(self, segment: OpenSegment) -> int:
        if segment.newest_time is not None:
            return segment.newest_time
        newest = self._index(segment).newest_time
        if segment.sealed:
            segment.newest_time = newest
        return newest

    def _index(self, segment: OpenSegment) -> Index:
        index = segment.index
        if index is not None:
            if segment.sealed:
                self._cache.use_index(segment)
            return index
        if not self._may_read:
            raise NotInMemory
        try:
            index = segment.load()
        except OSError as error:
            raise failure(error, f"reading {self._store.segment_path(segment.base)}") from error
        segment.index = index
        self._cache.keep_index(segment, len(index) * INDEX_ENTRY)
        return index

    def _ref(self, segment: OpenSegment, index: Index, place: int) -> ChunkRef:
        size = index.body(place)
        base = segment.base + index.sequences[place]
        return ChunkRef(
            base,
            # The index of the newest segment grows meanwhile, and then counts later contents.
            min(index.count(place), self.next - base),
            index.time_of(place),
            size,
            HEADER_SIZE + index.table(place) + padded(size),
            segment.base,
            index.offsets[place],
            place,
        )

    # --- reading --------------------------------------------------------------------------------------------

    def tail(self, sequence: int) -> Chunk | None:
        """The chunk that holds `sequence`, if its body is in memory because it was appended a short time ago."""
        if not self.earliest <= sequence < self.next:
            return None
        segment = self._segment(sequence)
        index = segment.index
        if index is None or sequence >= segment.base + index.contents:
            return None
        ref = self._ref(segment, index, index.find(sequence - segment.base))
        body = self._cache.body(self._log, ref.base)
        return None if body is None else Chunk(ref, memoryview(body).cast("B").toreadonly())

    def _contents(self, query: Contents) -> tuple[Chunk, ...]:
        return collect(query, self.earliest, self.find, lambda ref: self._chunk_of(ref, query.place_from))

    def _chunk_of(self, ref: ChunkRef, place_from: int | None) -> Chunk:
        if place_from is not None and ref.size >= place_from:
            return Chunk(ref, _EMPTY, self.place(ref))
        return Chunk(ref, self.read(ref))

    def read(self, ref: ChunkRef) -> memoryview:
        """The body of a chunk, read-only. It stays valid even if the log is closed or removed. Readers of the same
        chunk share it while it is in use.

        The header is verified every time, so that another chunk is never returned; the checksum only the first time,
        and not if this process wrote the chunk. Damaged when one of them is wrong.
        """
        body = self._cache.body(self._log, ref.base)
        if body is not None:
            return memoryview(body).cast("B").toreadonly()
        segment = self._segment(ref.base)
        shared = self._cache.read_body(segment, ref.base)
        if shared is not None:
            return shared
        chunk = self._verified(ref, ref.stored)
        return self._cache.share_body(segment, ref.base, chunk[ref.stored - padded(ref.size) :][: ref.size])

    def place(self, ref: ChunkRef) -> tuple[str, int]:
        """The file of a chunk's body and the offset in it, for readers on this machine.

        Verified as by `read`, with the same errors. The octets do not change while the file is open.
        """
        if self._cache.body(self._log, ref.base) is None:  # else this process wrote it a short time ago
            self._verified(ref, HEADER_SIZE)
        return place_of(self._store, ref)

    def _verified(self, ref: ChunkRef, size: int) -> memoryview:
        """The first `size` octets of a chunk, verified."""
        if not self._may_read:
            raise NotInMemory
        segment = self._segment(ref.base)
        try:
            data = self._octets(segment, ref, size)
        except OSError as error:
            raise failure(error, f"reading {self._store.segment_path(segment.base)}") from error
        if len(data) < size:
            raise segment.broken("the file ends too early", ref.offset + len(data), ref.base, ref.end)
        salt = self._index(segment).salt
        if not is_chunk(data, ref.base - segment.base, ref.count, ref.size, salt):
            raise segment.broken("its header does not verify", ref.offset, ref.base, ref.end)
        return data

    def _octets(self, segment: OpenSegment, ref: ChunkRef, size: int) -> memoryview:
        # Read and not mapped: the file of a mapping may be cut at any time later, and an access to a lost page ends the
        # process by SIGBUS.
        copy = self._checked(segment, ref) if segment.sealed and not segment.warm else None
        return memoryview(copy or self._pread(segment, ref, size))

    def _checked(self, segment: OpenSegment, ref: ChunkRef) -> bytes | None:
        """Verify a chunk at its first use. Returns its octets if they were read for that."""
        self._index(segment)
        verified = segment.verified
        if verified[ref.place]:
            return None
        copy = self._verify(segment, ref)
        verified[ref.place] = 1
        return copy

    def _pread(self, segment: OpenSegment, ref: ChunkRef, size: int) -> bytes:
        file = self._store.disk.open(self._store.segment_path(segment.base), "read")
        try:
            return file.pread(size, ref.offset)
        finally:
            file.close()

    def _verify(self, segment: OpenSegment, ref: ChunkRef) -> bytes:
        """The chunk's octets, verified."""
        data = self._pread(segment, ref, ref.stored)
        if len(data) < ref.stored:
            raise segment.broken("the file ends too early", ref.offset + len(data), ref.base, ref.end)
        try:
            header = decode_header(data, ref.offset, self._index(segment).salt)
        except NewerChunk as error:
            raise segment.broken(
                f"a newer software wrote it ({error})", ref.offset, ref.base, ref.end
            ) from error
        expected = (ref.base - segment.base, ref.count, ref.size, ref.stored)
        if header is None or (header.sequence, header.contents, header.body, header.stored) != expected:
            raise segment.broken("its header does not verify", ref.offset, ref.base, ref.end)
        if checksum(memoryview(data)[HEADER_SIZE:]) != header.crc:
            raise segment.broken("its contents do not match their checksum", ref.offset, ref.base, ref.end)
        return data


def place_of(store: Store, ref: ChunkRef) -> tuple[str, int]:
    """The file of a chunk's body, and the offset of the body in it."""
    return store.segment_path(ref.segment), ref.offset + ref.stored - padded(ref.size)

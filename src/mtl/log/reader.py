"""The reading half of a log. Belongs to one thread; it learns of durable contents by the writer's changes."""

from __future__ import annotations

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial

from mtl.errors import Damaged
from mtl.log.cache import ReadCache
from mtl.log.change import (
    Adopted,
    Appended,
    Change,
    ChunkRef,
    Cut,
    LogOptions,
    Rolled,
    Sealed,
    Synced,
    Trimmed,
)
from mtl.log.chunk import HEADER_SIZE, NewerChunk, checksum, decode_header, is_chunk, padded
from mtl.log.files import File, Mapped, failure
from mtl.log.manifest import Epoch, History, begun, epoch_of, run_id
from mtl.log.recovery import Recovered, missing, rebuild, shortened
from mtl.log.retention import SegmentInfo
from mtl.log.segment import INDEX_ENTRY, Index, SegmentHeader, empty_index
from mtl.log.store import Store

_NOTHING_TO_MAP_WITH = {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.EACCES}


class _Segment:
    """One segment; its index is read at the first use.

    `end` is the sequence after its last content, `bytes` the size of its file. `warm`: every chunk was written or
    scanned by this process; else `verified` has one octet per chunk, 1 for verified ones.
    """

    __slots__ = ("base", "bytes", "end", "index", "sealed", "store", "verified", "warm")

    def __init__(self, store: Store, base: int, end: int, size: int) -> None:
        self.store = store
        self.base = base
        self.end = end
        self.bytes = size
        self.sealed = True
        self.warm = False
        self.index: Index | None = None
        self.verified = bytearray()

    def drop_index(self) -> None:
        self.index = None

    def load(self) -> Index:
        """The index from its file, or from a scan when the file does not verify. It ends before `end` if the next
        segment is missing.
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
        path = self.store.segment_path(self.base)
        first, end = first or self.base, end or self.end
        message = f"{path}: damaged at octet {offset}: {reason}; contents {first} to {end - 1} are affected"
        return Damaged(message, file=path, offset=offset, first=first, end=end)


class LogReader:
    """Made by open_log. Contents [earliest, next) can be read; `bytes` is the size of the files, `last_time` the append
    time of the newest content in µs; `epoch` is the id of this run's epoch, which begins with its first contents (None
    when the log was opened without a run). Methods that read a cold segment may raise Damaged or StorageFailed.
    """

    def __init__(
        self,
        store: Store,
        options: LogOptions,
        cache: ReadCache,
        recovered: Recovered,
        run: str | None = None,
    ) -> None:
        self._store = store
        self._options = options
        self._cache = cache
        self._bases = list(recovered.bases)
        self._file: File | None = None
        self.next = recovered.next
        self.last_time = recovered.last_time
        self.earliest = self._bases[0]
        self._epochs = recovered.manifest.epochs
        self.epoch = None if run is None else run_id(self._epochs, run)
        ends = [*self._bases[1:], self.next]
        self._segments = [
            _Segment(store, base, end, recovered.sizes[base])
            for base, end in zip(self._bases, ends, strict=True)
        ]
        self.bytes = sum(recovered.sizes.values())
        if recovered.active is not None:
            newest = self._segments[-1]
            # The writer's own index grows, and counts the marks of older versions.
            newest.index = recovered.index.cut(recovered.index.contents)
            newest.index.length = newest.index.end_of_chunks
            newest.sealed, newest.warm = False, True

    @property
    def contents(self) -> int:
        return self.next - self.earliest

    @property
    def history(self) -> History:
        """The log's epochs that have contents, ascending. Contents below the first one are older than the history."""
        return tuple(epoch for epoch in self._epochs if epoch.first < self.next)

    def epoch_of(self, sequence: int) -> str | None:
        """The id of the epoch that appended a content; None when that is not known."""
        return epoch_of(self.history, sequence)

    def close(self) -> None:
        """Release files and memory; bodies that were read stay valid."""
        self._close_file()
        self._cache.forget_bodies(self)
        for segment in self._segments:
            self._cache.forget_index(segment)
            self._cache.drop_mapping(segment)
        self._segments.clear()
        self._bases.clear()
        self.earliest = self.next

    def share(self, cache: ReadCache) -> None:
        """Use a cache together with other logs; from now on the reader belongs to that cache's thread, which need not
        be the one that opened it. Indexes of sealed segments are read again when they are needed.
        """
        self._cache = cache
        for segment in self._segments:
            if segment.sealed:
                segment.drop_index()

    # --- finding --------------------------------------------------------------------------------------------

    def find(self, sequence: int) -> ChunkRef | None:
        """The chunk that holds `sequence`, None outside [earliest, next)."""
        if not self.earliest <= sequence < self.next:
            return None
        segment = self._segment(sequence)
        index = self._index(segment)
        if sequence >= segment.base + index.contents:
            raise missing(self._store, segment.base + index.contents, segment.end)
        return _ref(segment, index, index.find(sequence - segment.base))

    def following(self, ref: ChunkRef) -> ChunkRef | None:
        """The next chunk, None at the end. If retention removed it, the earliest chunk."""
        return self.find(max(ref.end, self.earliest))

    def oldest_time(self) -> int | None:
        """Append time of the earliest content in µs, None for an empty log."""
        first = self.find(self.earliest)
        return None if first is None else first.time_us

    def at_time(self, us: int) -> ChunkRef | None:
        """The first chunk appended at or after `us`, None when all are older."""
        filled = len(self._segments) - (not len(self._index(self._segments[-1])))
        place = bisect_left(range(filled), us, key=lambda at: self._newest(self._segments[at]))
        if place == filled:
            return None
        segment = self._segments[place]
        index = self._index(segment)
        ref = _ref(segment, index, index.first_since(us))
        return ref if ref.end > self.earliest else self.find(self.earliest)

    def end_within(self, start: int, contents: int | None = None, bytes: int | None = None) -> int:  # noqa: A002
        """The end (exclusive) of the range from `start` on with at most so many contents and stored octets.

        The limit of contents is exact. The limit of octets rounds down to a whole chunk, but includes that of `start`.
        """
        start = max(start, self.earliest)
        end = self.next if contents is None else min(self.next, start + contents)
        first = self.find(start)
        if first is None or bytes is None:
            return max(start, end)
        return min(end, max(first.end, self._end_of_bytes(first, bytes)))

    def stored_between(self, start: int, end: int) -> int:
        """Octets of the chunks that hold [start, end), as far as they are in the log."""
        first, last = self.find(max(start, self.earliest)), self.find(min(end, self.next) - 1)
        if first is None or last is None or first.base > last.base:
            return 0
        inside = last.offset + last.stored - first.offset
        low, high = self._place(first.segment), self._place(last.segment)
        return inside + sum(segment.bytes for segment in self._segments[low:high])

    def segments(self) -> Iterator[SegmentInfo]:
        """Oldest first, for retention.plan."""
        for segment in self._segments:
            yield SegmentInfo(segment.base, segment.end, segment.bytes, partial(self._newest, segment))

    def roll_due(self, too_old: Callable[[float], int]) -> bool:
        """Whether the newest segment has contents and is older than `segment_age_s`. `too_old` converts an age (s) to
        the append time (µs) below which contents are older.
        """
        newest, age_s = self._segments[-1], self._options.segment_age_s
        return age_s is not None and not newest.sealed and self._index(newest).began_before(too_old(age_s))

    def _end_of_bytes(self, first: ChunkRef, limit: int) -> int:
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
        if at < 0:
            return segment.base
        last = _ref(segment, index, at)  # a mark may lie behind it
        return last.end if last.offset + last.stored <= until else last.base

    def _place(self, base: int) -> int:
        return bisect_right(self._bases, base) - 1

    def _segment(self, sequence: int) -> _Segment:
        return self._segments[self._place(sequence)]

    def _newest(self, segment: _Segment) -> int:
        return self._index(segment).newest_time

    def _index(self, segment: _Segment) -> Index:
        index = segment.index
        if index is None:
            try:
                index = segment.index = segment.load()
            except OSError as error:
                raise failure(error, f"reading {self._store.segment_path(segment.base)}") from error
            self._cache.keep_index(segment, len(index) * INDEX_ENTRY)
        elif segment.sealed:
            self._cache.use_index(segment)
        return index

    # --- reading --------------------------------------------------------------------------------------------

    def read(self, ref: ChunkRef) -> memoryview:
        """The body of a chunk, read-only. It stays valid even if the log is closed or removed.

        The header is verified every time, so that another chunk is never returned; the checksum only the first time,
        and not if this process wrote the chunk. Damaged when one of them is wrong. LookupError for a chunk that
        retention removed.
        """
        body = self._cache.body(self, ref.base)
        if body is not None:
            return memoryview(body).cast("B").toreadonly()
        chunk = self._chunk(ref, ref.stored)
        return chunk[ref.stored - padded(ref.size) :][: ref.size]

    def place(self, ref: ChunkRef) -> tuple[str, int]:
        """The file of a chunk's body and the offset in it, for readers on this machine.

        Verified as by `read`, with the same errors. The octets do not change while the file is open.
        """
        self._chunk(ref, HEADER_SIZE)
        return self._store.segment_path(self._segment(ref.base).base), ref.offset + ref.stored - padded(
            ref.size
        )

    def _still_there(self, ref: ChunkRef) -> _Segment:
        if ref.end <= self.earliest:
            raise LookupError(f"chunk {ref.base} lies below {self.earliest}, where the log begins")
        return self._segment(ref.base)

    def _chunk(self, ref: ChunkRef, size: int) -> memoryview:
        """The first `size` octets of a chunk, verified."""
        segment = self._still_there(ref)
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

    def _octets(self, segment: _Segment, ref: ChunkRef, size: int) -> memoryview:
        if not segment.sealed:
            return memoryview(self._newest_file().pread(size, ref.offset))
        copy = None if segment.warm else self._checked(segment, ref)
        mapped = self._mapping(segment)
        if mapped is not None and self._store.disk.bring(mapped, ref.offset, size):
            return memoryview(mapped).toreadonly()[ref.offset : ref.offset + size]
        return memoryview(copy or self._pread(segment, ref, size))

    def _checked(self, segment: _Segment, ref: ChunkRef) -> bytes | None:
        """Verify a chunk at its first use. Returns its octets if they were read for that."""
        self._index(segment)
        if segment.verified[ref.place]:
            return None
        copy = self._verify(segment, ref)
        segment.verified[ref.place] = 1
        return copy

    def _pread(self, segment: _Segment, ref: ChunkRef, size: int) -> bytes:
        file = self._store.disk.open(self._store.segment_path(segment.base), "read")
        try:
            return file.pread(size, ref.offset)
        finally:
            file.close()

    def _verify(self, segment: _Segment, ref: ChunkRef) -> bytes:
        """The chunk's octets, read from the disk and not from a mapping, which would report a bad sector by SIGBUS."""
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

    def _mapping(self, segment: _Segment) -> Mapped | None:
        """A mapping of the whole segment; None when the system has no memory or file for it: read it then."""
        mapped = self._cache.mapping(segment)
        if mapped is not None or not self._cache.may_map:
            return mapped
        length = self._index(segment).length
        try:
            mapped = self._store.disk.map(self._store.segment_path(segment.base), length)
        except OSError as error:
            if error.errno in _NOTHING_TO_MAP_WITH:
                return None
            raise
        self._cache.keep_mapping(segment, mapped, length)
        return mapped

    def _newest_file(self) -> File:
        if self._file is None:
            newest = self._segments[-1]
            self._file = self._store.disk.open(self._store.segment_path(newest.base), "read")
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- following the writer -------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Apply a change that a call of the writer returned: every change once, and in order."""
        match change:
            case Appended():
                self._append(change)
            case Adopted():
                self._adopt(change)
            case Cut():
                self._cut(change)
            case Trimmed():
                self.trim(change.earliest)
            case Sealed():
                self._seal_newest()
            case Rolled(begun):
                for header in begun:
                    self._begin(header)
            case Synced():
                pass

    def _append(self, change: Appended) -> None:
        self._begin_epoch(change.epoch)
        for header in change.begun:
            self._begin(header)
        newest = self._segments[-1]
        index = self._index(newest)
        for entry in change.entries:
            index.add(entry)
        newest.end = self.next = change.next
        self.last_time = change.time_us
        self._resize(newest, index.length)
        for ref, body in zip(change.chunks, change.bodies, strict=False):
            self._cache.keep_body(self, ref.base, body)

    def _adopt(self, change: Adopted) -> None:
        self._begin_epoch(change.epoch)
        *before, newest = change.begun if change.segments else (*change.begun, None)
        for header in before:
            assert header is not None
            self._begin(header)
        for part in change.segments:
            self._leave_newest(part.base)
            self._add(_Segment(self._store, part.base, part.base + part.contents, 0), part.bytes)
        if newest is not None:
            self.next, self.last_time = change.next, change.time_us
            self._begin(newest)

    def _begin_epoch(self, epoch: Epoch | None) -> None:
        if epoch is not None:
            self._epochs = begun(self._epochs, epoch)

    def _cut(self, change: Cut) -> None:
        if not change.begun:
            return
        self._close_file()
        self._cache.forget_bodies(self, change.next)
        while self._segments and self._bases[-1] >= change.next:
            self._drop(len(self._segments) - 1)
        if self._segments and self._segments[-1].end > change.next:
            newest = self._segments[-1]
            self._cache.forget_index(newest)
            newest.end, newest.index, newest.sealed, newest.warm = change.next, None, True, False
            newest.verified = bytearray()
        self.next = change.next
        for header in change.begun:
            self._begin(header)

    def trim(self, earliest: int) -> None:
        """Stop showing contents below `earliest`; `LogWriter.trim` removes their files."""
        for _ in range(self._place(earliest)):
            self._drop(0)
        self.earliest = max(self.earliest, earliest)

    def _begin(self, header: SegmentHeader) -> None:
        self._leave_newest(header.base)
        segment = _Segment(self._store, header.base, header.base, 0)
        segment.index = empty_index(header)
        segment.sealed, segment.warm = False, True
        self._add(segment, header.start)

    def _leave_newest(self, base: int) -> None:
        """A segment is about to follow at `base`: the newest one so far is sealed, or replaced when it is empty."""
        self._close_file()
        if not self._segments:
            return
        if self._bases[-1] == base:
            self._drop(len(self._segments) - 1)
        else:
            self._seal_newest()

    def _seal_newest(self) -> None:
        newest = self._segments[-1]
        if newest.end > newest.base and not newest.sealed:
            newest.sealed = True
            if newest.index is not None:
                self._cache.keep_index(newest, len(newest.index) * INDEX_ENTRY)

    def _add(self, segment: _Segment, size: int) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base)
        self._resize(segment, size)

    def _drop(self, place: int) -> None:
        segment = self._segments.pop(place)
        del self._bases[place]
        self._resize(segment, 0)
        self._cache.forget_index(segment)
        self._cache.drop_mapping(segment)

    def _resize(self, segment: _Segment, size: int) -> None:
        self.bytes += size - segment.bytes
        segment.bytes = size


def _ref(segment: _Segment, index: Index, place: int) -> ChunkRef:
    size = index.body(place)
    return ChunkRef(
        segment.base + index.sequences[place],
        index.count(place),
        index.time_of(place),
        size,
        HEADER_SIZE + index.table(place) + padded(size),
        segment.base,
        index.offsets[place],
        place,
    )

"""The reading half of a log, in memory. Belongs to one thread. The writer's changes report durable contents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from mtl.log.cache import ReadCache
from mtl.log.change import (
    Adopted,
    Appended,
    Change,
    Cut,
    LogOptions,
    Rolled,
    Sealed,
    Synced,
    Trimmed,
)
from mtl.log.manifest import Epoch, History, epoch_of, run_id, with_epoch
from mtl.log.open_segment import OpenSegment
from mtl.log.queries import Answer, Chunk, LogQuery
from mtl.log.recovery import Recovered
from mtl.log.retention import SegmentInfo
from mtl.log.segment import INDEX_ENTRY, Index, SegmentHeader, empty_index
from mtl.log.snapshot import LogSnapshot, place_of
from mtl.log.stamps import above, appended_by, before, is_ahead, with_setback
from mtl.log.store import Store


class LogReader:
    """Made by open_log. Contents [earliest, next) can be read; `bytes` is the size of the files, `last_time` the append
    time of the newest content in µs; `epoch` is the id of this run's epoch, which begins with its first contents (None
    when the log was opened without a run).
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
        self._frozen: tuple[tuple[OpenSegment, ...], tuple[int, ...]] | None = None
        """Segments and bases for snapshots; None after a change of them."""
        self.next = recovered.next
        self.last_time = recovered.last_time
        self.earliest = self._bases[0]
        self._epochs = recovered.manifest.epochs
        self._setbacks = recovered.manifest.setbacks
        self.epoch = None if run is None else run_id(self._epochs, run)
        ends = [*self._bases[1:], self.next]
        self._segments = [
            OpenSegment(store, base, end, recovered.sizes[base])
            for base, end in zip(self._bases, ends, strict=True)
        ]
        self.bytes = sum(recovered.sizes.values())
        if recovered.active is not None:
            newest = self._segments[-1]
            newest.index = recovered.index.cut(recovered.index.contents)  # the writer's own index grows
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
        self._cache.forget_bodies(self)
        for segment in self._segments:
            self._discard(segment)
        self._segments, self._bases, self._frozen = [], [], None
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

    def tail(self, sequence: int) -> Chunk | None:
        """The chunk that holds `sequence`, if its body is in memory because it was appended a short time ago."""
        return self._snapshot(may_read=False).tail(sequence)

    def place(self, chunk: Chunk) -> Chunk:
        """A chunk of the tail by its place in its file, for readers on this machine."""
        return Chunk(chunk.ref, chunk.body[:0], place_of(self._store, chunk.ref))

    def answer_from_memory(self, query: LogQuery) -> Answer:
        """The answer to a query. Raises `NotInMemory` when the disk has to be read for it: ask a `snapshot` then."""
        return self._snapshot(may_read=False).answer(query)

    def snapshot(self) -> LogSnapshot:
        """The log at this moment, for another thread to read."""
        return self._snapshot(may_read=True)

    def _snapshot(self, *, may_read: bool) -> LogSnapshot:
        if self._frozen is None:
            self._frozen = tuple(self._segments), tuple(self._bases)
        return LogSnapshot(
            self._store,
            self._cache,
            self,
            *self._frozen,
            self.earliest,
            self.next,
            setbacks=self._setbacks,
            may_read=may_read,
        )

    def segments(self) -> Iterator[SegmentInfo]:
        """Oldest first, for retention.plan."""
        for segment in self._segments:
            newest = appended_by(segment.newest_time, self._setbacks, segment.base)
            yield SegmentInfo(segment.base, segment.end, segment.bytes, newest)

    def roll_due(self, too_old: Callable[[float], int], now_us: int) -> bool:
        """Whether the newest segment has contents and is older than `segment_age_s`, or a stamp is ahead of the clock,
        so that it would not age. `too_old` converts an age (s) to the append time (µs) below which contents are older.
        """
        newest, age_s = self._segments[-1], self._options.segment_age_s
        if age_s is None:
            return False
        return is_ahead(self.last_time, now_us) or (
            not newest.sealed and _grown(newest).began_before(too_old(age_s))
        )

    def _place(self, base: int) -> int:
        return bisect_right(self._bases, base) - 1

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
                    self._begin_segment(header)
            case Synced():
                pass

    def _append(self, change: Appended) -> None:
        self._begin_epoch(change.epoch)
        for header in change.new_headers:
            self._begin_segment(header)
        newest = self._segments[-1]
        index = _grown(newest)
        for entry in change.entries:
            index.add(entry)
        newest.end = self.next = change.next
        self.last_time = change.time_us
        self._resize(newest, index.length)
        for ref, body in zip(change.chunks, change.bodies, strict=False):
            self._cache.keep_body(self, ref.base, body)

    def _adopt(self, change: Adopted) -> None:
        self._begin_epoch(change.epoch)
        *before, newest = change.new_headers if change.segments else (*change.new_headers, None)
        for header in before:
            assert header is not None
            self._begin_segment(header)
        if newest is not None:
            self._note_time(change.first, change.time_us)
        for part in change.segments:
            self._close_newest(part.base)
            self._add(OpenSegment(self._store, part.base, part.base + part.contents, 0), part.bytes)
        if newest is not None:
            self.next, self.last_time = change.next, change.time_us
            self._begin_segment(newest)

    def _begin_epoch(self, epoch: Epoch | None) -> None:
        if epoch is not None:
            self._epochs = with_epoch(self._epochs, epoch)

    def _cut(self, change: Cut) -> None:
        if not change.new_headers:
            return
        self._cache.forget_bodies(self, change.next)
        while self._segments and self._bases[-1] >= change.next:
            self._drop(len(self._segments) - 1)
        if self._segments and self._segments[-1].end > change.next:
            newest = self._segments[-1]
            self._cache.forget_index(newest)
            newest.end, newest.index, newest.sealed, newest.warm = change.next, None, True, False
            newest.verified, newest.newest_time = bytearray(), None
        self.next = change.next
        self._setbacks = before(self._setbacks, change.next + 1)
        for header in change.new_headers:
            self._begin_segment(header)

    def trim(self, earliest: int) -> None:
        """Stop showing contents below `earliest`; `LogWriter.trim` removes their files."""
        for _ in range(self._place(earliest)):
            self._drop(0)
        self.earliest = max(self.earliest, earliest)
        self._setbacks = above(self._setbacks, self.earliest)

    def _begin_segment(self, header: SegmentHeader) -> None:
        self._note_time(header.base, header.time)
        self._close_newest(header.base)
        segment = OpenSegment(self._store, header.base, header.base, 0)
        segment.index = empty_index(header)
        segment.sealed, segment.warm = False, True
        self._add(segment, header.start)

    def _note_time(self, first: int, time: int) -> None:
        """A segment at `first` has this base time, which may be a setback."""
        if time < self.last_time:
            self._setbacks = with_setback(self._setbacks, first, time)
            self.last_time = time

    def _close_newest(self, base: int) -> None:
        """A segment is about to follow at `base`: the newest one so far is sealed, or replaced when it is empty."""
        if not self._segments:
            return
        if self._bases[-1] == base:
            self._drop(len(self._segments) - 1)
        else:
            self._seal_newest()

    def _seal_newest(self) -> None:
        newest = self._segments[-1]
        if newest.end > newest.base and not newest.sealed:
            index = _grown(newest)
            newest.newest_time = index.newest_time
            newest.sealed = True
            self._cache.keep_index(newest, len(index) * INDEX_ENTRY)

    def _add(self, segment: OpenSegment, size: int) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base)
        self._frozen = None
        self._resize(segment, size)

    def _drop(self, place: int) -> None:
        segment = self._segments.pop(place)
        del self._bases[place]
        self._frozen = None
        self._resize(segment, 0)
        self._discard(segment)

    def _discard(self, segment: OpenSegment) -> None:
        segment.removed = True  # first: from now on, threads that read the segment do not fill the cache
        self._cache.drop_owner(segment)

    def _resize(self, segment: OpenSegment, size: int) -> None:
        self.bytes += size - segment.bytes
        segment.bytes = size


def _grown(newest: OpenSegment) -> Index:
    """The index of the newest segment, which is in memory while that is written."""
    assert newest.index is not None
    return newest.index

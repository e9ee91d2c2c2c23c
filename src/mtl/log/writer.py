"""The writing half of a log. One call at a time, on any thread; it shares nothing with the reader.

A call that raises has stored nothing (except `adopt`, see there). After an OSError the log continues or stops,
depending on the operation that failed:

- a failed write: the segment is cut back to where the group began, durably; if that fails too, the log stops. If the
  file may not grow (EFBIG) the segment is sealed, and the group written to a new one;
- a failed fdatasync, durability "sync": the segment is abandoned at its last known-good end and a new one begun; the
  group was never acknowledged and is not kept. Durability "os": contents that were acknowledged may be lost from
  the cache at any time, so the log stops, and opening it writes its tail again;
- a failed fsync of the directory: it is not known which names would survive a crash, so the log stops.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from mtl.errors import StorageFailed
from mtl.log.change import (
    Adopted,
    AdoptedSegment,
    Appended,
    Cut,
    LogOptions,
    Rolled,
    Sealed,
    StagePart,
    Synced,
    Trimmed,
)
from mtl.log.chunk import NewChunk, check
from mtl.log.cutting import CutPlan, plan_cut
from mtl.log.files import failure
from mtl.log.group import Group
from mtl.log.limits import SEGMENT_CHUNKS
from mtl.log.manifest_keeper import ManifestKeeper
from mtl.log.recovery import Active, Recovered
from mtl.log.segment import STASHED, TEMPORARY, SegmentHeader, empty_index, index_name, segment_name
from mtl.log.stage import Part, chunks, open_parts
from mtl.log.stamps import next_stamp
from mtl.log.store import NamesNotSynced, Store

if TYPE_CHECKING:
    from typing_extensions import Buffer


_WAY_OUT = "restart the broker when the disk works again and has space: it opens the log again"


class LogWriter:
    """Made by open_log. `next`: the sequence that the next content gets; `last_time`: µs; `last_numbers`: the dedup
    table, writer id to last publishing number.
    """

    def __init__(
        self, store: Store, options: LogOptions, recovered: Recovered, run: str | None = None
    ) -> None:
        self.next = recovered.next
        self.last_time = recovered.last_time
        self.last_numbers = recovered.numbers
        self._store = store
        self._options = options
        self._sync = options.durability == "sync"
        self._bases = list(recovered.bases)
        self._active = recovered.active
        self._manifest = ManifestKeeper(store, recovered.manifest, run)
        self._new_headers: list[SegmentHeader] = []
        self._unfinished: int | None = None
        self._stopped = ""

    @property
    def stopped(self) -> bool:
        """Whether every call raises StorageFailed from now on; opening the log again ends this state."""
        return bool(self._stopped)

    @property
    def doubtful(self) -> bool:
        """Whether a failure may have taken contents that were acknowledged: only under durability "os"."""
        return bool(self._stopped) and not self._sync

    # --- appending ------------------------------------------------------------------------------------------

    def append(self, chunks: Sequence[NewChunk], now_us: int) -> Appended:
        """Append chunks as one group: written, synced once, then returned. Sequences are assigned here, from `next`.

        ValueError for a chunk that cannot be stored; StorageFull, StorageFailed: nothing was kept.
        """
        for chunk in chunks:
            check(chunk)
        with self._guard("appending"):
            size, fill = sum(chunk.stored for chunk in chunks), lambda group: group.write_all(chunks)
            group = self._store_group(size, len(chunks), now_us, fill, sync=self._sync)
        for chunk in chunks:
            for run in chunk.runs:
                last = run.first + run.count - 1
                self.last_numbers[run.writer] = max(self.last_numbers.get(run.writer, 0), last)
        return self._appended(group, tuple(chunk.body for chunk in chunks))

    def append_from(self, parts: Sequence[StagePart], now_us: int) -> Appended:
        """Copy the contents of small stages into the newest segment, verifying them, as one group.

        Damaged when a stage does not verify; nothing was kept then.
        """
        with self._guard("merging stages"):
            opened = open_parts(self._store.disk, parts)
            size, count = sum(part.bytes for part in opened), sum(len(part.index) for part in opened)
            fill = lambda group: group.write_all(self._copies(opened))  # noqa: E731
            # Synced also under durability "os": the stages are removed next.
            group = self._store_group(size, count, now_us, fill, sync=True)
        return self._appended(group, ())

    def _copies(self, parts: list[Part]) -> Iterator[NewChunk]:
        """The chunks of stages without their runs: the stages' own numbers are not valid in this log."""
        for part in parts:
            for chunk in chunks(self._store.disk, part):
                yield NewChunk(chunk.header.contents, chunk.body())

    def _store_group(
        self, size: int, count: int, now_us: int, fill: Callable[[Group], None], *, sync: bool
    ) -> Group:
        """Write and sync a group. A segment that may not grow further (ulimit -f, the file system) is full."""
        group = self._group(size, count, now_us, sync=sync)
        try:
            self._write(group, fill)
        except OSError as error:
            if error.errno != errno.EFBIG or self._stopped or not len(group.active.index):
                raise
            self._seal()
            group = self._group(size, count, now_us, sync=sync)
            self._write(group, fill)
        self._commit(group)
        return group

    def _group(self, size: int, count: int, now_us: int, *, sync: bool) -> Group:
        """A group at the end of the newest segment, or of a new one when that is full or old enough."""
        self._refuse_unfinished()
        active, newest = self._active, self._newest_time
        time = next_stamp(now_us, newest)
        if active is None or time < newest or self._needs_roll(active, size, count, now_us):
            active = self._begin_segment(time)
        self._manifest.announce(active.base, active.header.salt, self.next)
        return Group(active, self.next, time, sync=sync)

    @property
    def _newest_time(self) -> int:
        """The newest stamp: that of the newest content, or of the segment begun after it."""
        return self.last_time if self._active is None else max(self.last_time, self._active.header.time)

    def _needs_roll(self, active: Active, size: int, count: int, now_us: int) -> bool:
        options, index = self._options, active.index
        return bool(len(index)) and (
            index.length + size > options.segment_bytes
            or len(index) + count > SEGMENT_CHUNKS
            or (
                options.segment_age_s is not None
                and index.began_before(now_us - int(options.segment_age_s * 1e6))
            )
        )

    def _write(self, group: Group, fill: Callable[[Group], None]) -> None:
        """Let `fill` write a group; cut the group back if that fails."""
        whole = False
        try:
            fill(group)
            whole = True
        finally:  # after any exception: the next group must not follow half of this one
            if not whole:
                self._undo(group)

    def _undo(self, group: Group) -> None:
        """Cut a group that was not written whole. The cut is synced, so that no page of it can come back later."""
        active = group.active
        try:
            active.cut(group.start)
            active.file.sync()
        except OSError as error:
            self._stop("cutting back a group that was not written whole", error)
        else:
            active.durable = group.start

    def _commit(self, group: Group) -> None:
        active = group.active
        if group.sync:
            try:
                active.file.sync()
            except OSError as error:
                if self._sync:
                    self._abandon(active, group.time_us)
                else:
                    self._stop("syncing", error)
                raise
            active.durable = group.end
        group.add_to_index()
        self.next = group.next
        self.last_time = group.time_us

    def _abandon(self, active: Active, time_us: int) -> None:
        """Continue in a new segment after a failed fdatasync. The base of the new segment is the end of the old
        one.
        """
        try:
            self._close_with_index(active)
            self._begin_segment(time_us)
        except OSError as error:
            self._stop("beginning a new segment after a failed sync", error)

    def _appended(self, group: Group, bodies: tuple[Buffer, ...]) -> Appended:
        return Appended(
            group.first,
            group.next,
            group.time_us,
            tuple(group.refs),
            group.end - group.start,
            tuple(group.entries),
            bodies,
            self._pop_new_headers(),
            self._manifest.pop_epoch(),
        )

    # --- segments -------------------------------------------------------------------------------------------

    def roll(self, now_us: int) -> Rolled:
        """Seal the newest segment and begin another, unless it is empty and the clock is not behind it."""
        with self._guard("rolling"):
            self._refuse_unfinished()
            active, time = self._active, next_stamp(now_us, self._newest_time)
            if active is None or len(active.index) or time < self._newest_time:
                self._begin_segment(time)
        return Rolled(self._pop_new_headers())

    def seal(self) -> Sealed:
        """Make the log complete and durable, as a stage at its end: no new segment is begun."""
        with self._guard("sealing"):
            self._refuse_unfinished()
            if self._active is not None and len(self._active.index):
                self._seal()
        return Sealed(self.next)

    def sync(self) -> Synced:
        """Durability "os": make everything that was appended durable."""
        with self._guard("syncing"):
            if self._active is not None:
                self._sync_active(self._active)
        return Synced(self.next)

    def mark(self) -> bool:
        """Record the log's end in the manifest, if the log has new contents. False when that fails; the log itself is
        not affected.

        Until the end is recorded, a loss at the end may be taken for an unfinished write (recovery.py). New segments
        and `close` record it, too.
        """
        with self._guard("recording the end"):
            if self._unfinished is None and self._manifest.lacks(self.next):
                if self._active is not None and not self._sync:
                    self._sync_active(self._active)
                return self._record_end()
        return True

    def _record_end(self) -> bool:
        try:
            self._manifest.record_end(self.next, None if self._active is None else self._active.header)
        except OSError:  # also NamesNotSynced: the old and the new manifest are both correct
            return False
        return True

    def forget(self, writers: Iterable[int]) -> None:
        """Leave expired writers out of the next segment's snapshot."""
        for writer in writers:
            self.last_numbers.pop(writer, None)

    def trim(self, earliest: int) -> Trimmed:
        """Unlink the segments wholly below `earliest`, which the metadata already has. Never the newest one."""
        with self._guard("removing old segments"):
            self._refuse_unfinished()
            self._manifest.trim(earliest)
            while len(self._bases) > 1 and self._bases[1] <= earliest:
                self._store.remove(segment_name(self._bases[0]))
                self._store.remove(index_name(self._bases[0]))
                del self._bases[0]
            self._store.sync_names()
        return Trimmed(earliest)

    def close(self) -> None:
        """Sync, record the end and close. The writer cannot be used afterwards. Harmless when repeated."""
        active = self._active
        if active is None or self._stopped:
            self._release()
            return
        try:
            with self._guard("closing"):
                if not self._sync:
                    self._sync_active(active)
                if active.room > active.index.length:
                    active.cut(active.index.length)
                    active.file.sync()
                if self._unfinished is None:
                    self._record_end()
        finally:
            self._release()

    def _release(self) -> None:
        if self._active is not None:
            self._active.file.close()
            self._active = None
        self._stopped = self._stopped or f"the log {self._store.directory} is closed"

    def _sync_active(self, active: Active) -> None:
        try:
            active.file.sync()
        except OSError as error:
            self._stop("syncing contents that were acknowledged before", error)
            raise
        active.durable = active.index.length

    def _seal(self) -> None:
        """Give the newest segment its index. Nothing is ever appended to it again."""
        active = self._active
        assert active is not None
        if not self._sync:
            self._sync_active(active)
        if active.room > active.durable:
            active.cut(active.durable)
        self._close_with_index(active)

    def _close_with_index(self, active: Active) -> None:
        """Close a segment; it ends where its durable part ends."""
        if len(active.index):
            self._store.write_index(replace(active.index, length=active.durable))
        self._active = None
        active.file.close()

    def _begin_segment(self, time: int) -> Active:
        """Begin a new segment with the base time `time`, durably. It follows the newest one, or replaces it if that is
        empty.
        """
        if self._active is not None and len(self._active.index):
            self._seal()
        self._note_setback(time)
        self._manifest.before_replacing(self.next)
        file, header = self._store.write_segment(self.next, time, self.last_numbers)
        try:
            self._store.place(TEMPORARY, segment_name(self.next))
        except OSError:
            file.close()
            raise
        self._drop_active()
        return self._activate(Active(file, header, empty_index(header), header.start))

    def _note_setback(self, time: int) -> None:
        """Stamps go back to `time`, if that is below the newest one."""
        if time < self._newest_time:
            self._manifest.set_back(self.next, time)
            self.last_time = time

    def _activate(self, active: Active) -> Active:
        if self._bases[-1] != active.base:
            self._bases.append(active.base)
        self._active = active
        self._new_headers.append(active.header)
        return active

    def _pop_new_headers(self) -> tuple[SegmentHeader, ...]:
        headers, self._new_headers = tuple(self._new_headers), []
        return headers

    # --- commits of stages ----------------------------------------------------------------------------------

    def adopt(self, parts: Sequence[StagePart], now_us: int) -> Adopted:
        """Add a stage's segments to this log, by links; the append time of all their contents is now.

        The stage's files stay as they are and can be removed afterwards. After a failure half-way only
        truncate_to(first) is accepted; then `adopt` can be tried again.
        """
        with self._guard("adopting a stage"):
            self._refuse_unfinished()
            opened = open_parts(self._store.disk, parts)
            first, time = self.next, next_stamp(now_us, self._newest_time)
            if not opened:
                return Adopted(first, first, time, 0, (), self._pop_new_headers())
            if self._active is not None and len(self._active.index):
                self._seal()
            self._note_setback(time)
            self._manifest.before_replacing(first)
            end = first + sum(part.count for part in opened)
            file, header = self._store.write_segment(end, time, self.last_numbers)
            try:
                self._store.stash()
                self._drop_active()
                self._unfinished = first
                adopted = [self._adopt(part, time) for part in opened]
                self._store.place(STASHED, segment_name(end))
            except BaseException:  # a bug, too, must leave no file open
                file.close()
                raise
            self.last_time = time
            self._activate(Active(file, header, empty_index(header), header.start))
            self._manifest.announce(adopted[-1].base, opened[-1].header.salt, first)
            self._unfinished = None
        size = sum(segment.bytes for segment in adopted)
        return Adopted(
            first, end, time, size, tuple(adopted), self._pop_new_headers(), self._manifest.pop_epoch()
        )

    def _drop_active(self) -> None:
        """Close an empty newest segment that is about to be replaced."""
        if self._active is not None:
            self._active.file.close()
            self._active = None

    def _adopt(self, part: Part, time: int) -> AdoptedSegment:
        store, base = self._store, self.next
        # The index first: only the index says which sequences of this log the stage's segment has.
        store.write_index(replace(part.index, base=base, time=time, adopted=True))
        store.adopt_file(part.path, segment_name(base))
        if self._bases[-1] != base:
            self._bases.append(base)
        self.next += part.count
        return AdoptedSegment(base, part.count, part.bytes)

    def truncate_to(self, sequence: int) -> Cut:
        """Remove everything from `sequence` on: the remains of a commit that was not applied, before its redo.

        No file is cut in place (a read of it may be under way): the new newest segment's base says where the old one
        ends. Under durability "os" the commit must have synced or rolled the log before it was recorded; otherwise the
        log may end before `sequence`.
        Damaged, and nothing changed, when no chunk begins at `sequence` or contents of writers would be removed.
        """
        with self._guard("taking back an unapplied commit"):
            if sequence == self.next and self._unfinished is None:
                return Cut(sequence, self._pop_new_headers())
            newest = None if self._active is None else self._active.index
            plan = plan_cut(self._store, self._bases, newest, sequence)
            self._replace_tail(plan, sequence)
        return Cut(sequence, self._pop_new_headers())

    def _replace_tail(self, plan: CutPlan, sequence: int) -> None:
        """Remove the newest segment first, so that every state in between is a valid log; the stash keeps the dedup
        table meanwhile. An index is removed after its segment: without it an adopted segment cannot be read.
        """
        store = self._store
        self._new_headers = [header for header in self._new_headers if header.base < sequence]
        self._manifest.before_cutting([base for base in self._bases if base < sequence], sequence)
        file, header = store.write_segment(sequence, self.last_time, self.last_numbers)
        try:
            store.stash()
            self._unfinished = sequence
            self._drop_active()
            for base in reversed(plan.victims):
                if base != sequence:
                    store.remove(segment_name(base))
                    store.sync_names()
                    # From here on the segment is removed: a retry must not search it if removing its index fails.
                    self._bases.pop()
                    store.remove(index_name(base))
            if plan.index is not None:
                store.write_index(plan.index)
            store.place(STASHED, segment_name(sequence))
            store.remove(index_name(sequence))
            store.sync_names()
        except OSError:
            file.close()
            raise
        self._unfinished = None
        self.next = sequence
        self._activate(Active(file, header, empty_index(header), header.start))

    # --- failing --------------------------------------------------------------------------------------------

    @contextmanager
    def _guard(self, doing: str) -> Iterator[None]:
        """Turns errors of the disk into the project's errors; some of them stop the log."""
        if self._stopped:
            raise StorageFailed(f"{self._stopped}; {_WAY_OUT}")
        try:
            yield
        except OSError as error:
            if isinstance(error, NamesNotSynced):
                self._stop(doing, error)
            if self._stopped:
                raise StorageFailed(f"{self._stopped}; {_WAY_OUT}") from error
            raise failure(error, f"{doing} in {self._store.directory}") from error

    def _stop(self, doing: str, error: OSError) -> None:
        self._stopped = (
            f"the log {self._store.directory} was stopped: {doing} failed ({error.strerror or error})"
        )

    def _refuse_unfinished(self) -> None:
        if self._unfinished is not None:
            raise StorageFailed(
                f"the log {self._store.directory} has an unfinished commit at {self._unfinished}: redo it first"
            )

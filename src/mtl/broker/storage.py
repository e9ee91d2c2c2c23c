"""Carries out what the core asks of the disk: logs, and the records beside them. No threads of its own.

Data directory:

    lock                     held by the broker that runs on it
    broker.db                the records (`store`)
    resources/<id>/          one log per resource
    stages/<stage>/<n>/      one log per resource that a stage writes to
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import groupby

import msgspec

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.core import OpenedLog, Restored
from mtl.broker.records import AnyRecord, PublishRecord, ResourceRecord, RunRecord, StageRecord
from mtl.broker.resources import log_key, log_options
from mtl.broker.stages import Stage
from mtl.broker.store import RecordStore
from mtl.errors import LogStopped, MtlError, StorageError, StorageFailed
from mtl.log import (
    Change,
    LogOptions,
    LogWriter,
    NewChunk,
    ReadCache,
    StagePart,
    create_log,
    delete_log,
    open_log,
    stage_parts,
)
from mtl.log.files import Disk, failure
from mtl.log.segment import segment_base
from mtl.wire.packs import encode_pack

log = logging.getLogger("mtl.broker")

DiskAction = a.LogAction | a.Save


class Storage:
    """The logs' writing halves and the records, below one directory.

    `perform` may be called from several threads at once as long as no log and not the records have two actions at a
    time; the core sees to that.
    """

    def __init__(self, disk: Disk, directory: str, records: RecordStore, segment_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._records = records
        self._segment_bytes = segment_bytes
        self._cache = ReadCache()
        self._writers: dict[a.LogKey, LogWriter] = {}

    # --- opening --------------------------------------------------------------------------------------------

    def restore(self, boot: str, new_id: str, now_us: int) -> Restored:
        """Open everything. A log that does not open is reported in its place and stops only its resource.

        After an unclean stop under another boot the contents of durability "os" may be gone: those resources begin a
        new incarnation (PROTOCOL.md 5.2), named from `new_id`.
        """
        try:
            for name in ("resources", "stages"):
                self._make_dir(self._path(name))
        except OSError as e:
            raise failure(e, f"preparing {self._directory}") from e
        records = self._records.load()
        run = next((r for r in records if isinstance(r, RunRecord)), None)
        if run is not None and not run.clean and run.boot != boot:
            records = self._reincarnate(records, new_id)
        self._records.save((RunRecord(boot, clean=False),), ())
        logs: dict[a.LogKey, OpenedLog | StorageError] = {}
        bases = _unapplied(records)
        for record in records:
            if isinstance(record, ResourceRecord):
                key, options = log_key(record), log_options(record, self._segment_bytes)
                logs[key] = self._open(key, options, now_us, record.earliest, bases.get(key))
            elif isinstance(record, StageRecord):
                for key in filter(self._was_made, Stage(record, 0.0).log_keys):
                    logs[key] = self._open(key, LogOptions(self._segment_bytes), now_us, None)
        self._sweep(records)
        return Restored(records, logs)

    def _was_made(self, key: a.LogKey) -> bool:
        """Whether a staged log is there. One without a segment was being made when the broker stopped: nothing was
        confirmed in it, and it is made again when it is needed.
        """
        path = self._path(key)
        names = self._disk.list_dir(path) if self._disk.exists(path) else ()
        return any(segment_base(name) is not None for name in names)

    def _open(
        self,
        key: a.LogKey,
        options: LogOptions,
        now_us: int,
        earliest: int | None,
        base: int | None = None,
    ) -> OpenedLog | StorageError:
        """A log, cut back to `base` where a commit was interrupted: nobody is to see a part of it before its redo."""
        try:
            reader, writer, report = open_log(
                self._disk, self._path(key), options, now_us=now_us, earliest=earliest, cache=self._cache
            )
            if base is not None:
                reader.apply(writer.truncate_to(base))
        except StorageError as e:
            return e
        if report.cut_bytes:
            log.info("%s: %d octets of an unfinished group were cut", report.cut_file, report.cut_bytes)
        self._writers[key] = writer
        return reader, dict(writer.last_numbers)

    def _reincarnate(self, records: list[AnyRecord], new_id: str) -> list[AnyRecord]:
        changed = {
            r.key: msgspec.structs.replace(r, incarnation=f"{new_id}-{r.log}")
            for r in records
            if isinstance(r, ResourceRecord) and r.durability == "os"
        }
        self._records.save(tuple(changed.values()), ())
        return [changed.get(r.key, r) if isinstance(r, ResourceRecord) else r for r in records]

    def _sweep(self, records: Sequence[AnyRecord]) -> None:
        """Remove logs that no record names: the leavings of a crash between two steps."""
        resources = {r.log for r in records if isinstance(r, ResourceRecord)}
        stages = {r.stage for r in records if isinstance(r, StageRecord)}
        for kind, known in (("resources", resources), ("stages", stages)):
            for name in self._disk.list_dir(self._path(kind)):
                if name not in known:
                    self._remove(f"{kind}/{name}")

    # --- actions --------------------------------------------------------------------------------------------

    def perform(self, action: DiskAction) -> object:
        """Carry out one action; its result, or the `StorageError` it failed with."""
        if isinstance(action, a.Save):
            return self._failing(action, lambda: self._records.save(action.put, action.forget))
        result = self._failing(action, lambda: self._log_action(action))
        writer = self._writers.get(action.log)
        if isinstance(result, StorageError) and writer is not None and writer.stopped:
            return LogStopped(str(result))
        return result

    def _failing(self, action: DiskAction, work: Callable[[], object]) -> object:
        try:
            return work()
        except StorageError as e:
            return e
        except OSError as e:
            return failure(e, f"carrying out {type(action).__name__}")
        except (MtlError, ValueError) as e:
            # What is taken in was checked before; should it not fit after all, its writers hear of it and the log
            # goes on.
            return StorageFailed(f"{type(action).__name__}: {e}")

    def _log_action(self, action: a.LogAction) -> object:
        match action:
            case a.CreateLog():
                return self._create(action)
            case a.Append():
                chunks = [d if isinstance(d, NewChunk) else _packed(d) for d in action.drafts]
                return self._writers[action.log].append(chunks, action.now_us)
            case a.Publish():
                return self._publish(action)
            case a.Trim():
                return self._writers[action.log].trim(action.earliest)
            case a.Roll():
                return self._writers[action.log].roll(action.now_us)
            case a.ForgetWriters():
                self._writers[action.log].forget(action.writers)
                return None

    def _create(self, action: a.CreateLog) -> object:
        parent = self._path(action.log).rpartition("/")[0]
        # Also when it is there: another log of the same stage may have made it a moment ago, and not synced it yet.
        self._disk.make_dir(parent)
        self._disk.fsync_dir(parent.rpartition("/")[0])
        create_log(self._disk, self._path(action.log), 0)
        opened = self._open(action.log, action.options, 0, None)
        return opened if isinstance(opened, StorageError) else opened[0]

    def _publish(self, action: a.Publish) -> list[Change]:
        """PROTOCOL.md 5.5, step 4: large staged logs are adopted, small ones copied, in order.

        What an attempt before this one left is taken back first; it may have left nothing but a start.
        """
        writer = self._writers[action.log]
        changes: list[Change] = [writer.truncate_to(action.base)]
        parts: list[StagePart] = []
        for key in action.stages:
            self._seal(key, action.now_us)
            parts.extend(stage_parts(self._disk, self._path(key)))
        for large, run in groupby(parts, key=lambda p: p.bytes >= limits.ADOPT_OCTETS):
            together = tuple(run)
            changes.append(
                writer.adopt(together, action.now_us)
                if large
                else writer.append_from(together, action.now_us)
            )
        return changes

    def _seal(self, key: a.LogKey, now_us: int) -> None:
        """Make a staged log complete. One that a failure of this has stopped is opened again: it is committed, and
        there is no other way on. One that never opened has no writer; its parts say whether it is whole.
        """
        writer = self._writers.get(key)
        if writer is not None and writer.stopped:
            writer.close()
            opened = self._open(key, LogOptions(self._segment_bytes), now_us, None)
            if isinstance(opened, StorageError):
                raise opened
            opened[0].close()
            writer = self._writers[key]
        if writer is not None:
            writer.seal()

    def drop(self, action: a.DropLogs) -> None:
        """Close and remove logs; what cannot be removed now goes with the next start."""
        for key in action.logs:
            writer = self._writers.pop(key, None)
            try:
                if writer is not None:
                    writer.close()
            except StorageError as e:
                log.info("closing %s, which is being removed: %s", key, e)
        for top in dict.fromkeys("/".join(key.split("/")[:2]) for key in action.logs):
            self._remove(top)

    def _remove(self, place: str) -> None:
        """Remove the log of a resource, or all those of a stage."""
        directory = self._path(place)
        try:
            if place.startswith("resources/"):
                delete_log(self._disk, directory)
            elif self._disk.exists(directory):
                for name in self._disk.list_dir(directory):
                    delete_log(self._disk, f"{directory}/{name}")
                self._disk.remove_dir(directory)
        except (StorageError, OSError) as e:
            log.warning("%s was not removed, the next start will: %s", directory, e)

    def close(self, boot: str) -> None:
        """Everything written is synced, and the next start may know it. Raises a `StorageError` if it is not."""
        failed: list[StorageError] = []
        for writer in self._writers.values():
            try:
                writer.close()
            except StorageError as e:
                failed.append(e)
        try:
            if not failed:
                self._records.save((RunRecord(boot, clean=True),), ())
        finally:
            self._records.close()
        if failed:
            raise failed[0]

    def _make_dir(self, path: str) -> None:
        if not self._disk.exists(path):
            self._disk.make_dir(path)
            self._disk.fsync_dir(path.rpartition("/")[0])

    def _path(self, *parts: str) -> str:
        return "/".join((self._directory, *parts))


def _unapplied(records: Sequence[AnyRecord]) -> dict[a.LogKey, int]:
    """Where the commits begin that were interrupted, by log."""
    logs = {(r.vhost, r.name): log_key(r) for r in records if isinstance(r, ResourceRecord)}
    publishes = [r for r in records if isinstance(r, PublishRecord)]
    return {logs[p.vhost, e.resource]: e.base for p in publishes for e in p.entries}


def _packed(draft: a.Draft) -> NewChunk:
    """Plain contents are packed here, on the commit thread."""
    return NewChunk(draft.count, encode_pack(draft.bodies, draft.properties, limits.MAX_FRAME), draft.runs)

"""Carries out what the core asks of the disk: logs, and the records beside them. No threads of its own.

Data directory:

    lock                     held by the broker that runs on it
    broker.db                the records (`store`)
    resources/<id>/          one log per resource
    stages/<stage>/<n>/      one log per resource that a stage writes to
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec
import pyarrow as pa

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.core import OpenedLog, Restored
from mtl.broker.records import AnyRecord, ResourceRecord, RunRecord, StageRecord
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

DiskAction = a.CreateLog | a.Append | a.Publish | a.Trim | a.Roll | a.Save


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
        new incarnation (profiles.md "Readers"), named from `new_id`.
        """
        for name in ("resources", "stages"):
            self._make_dir(self._path(name))
        records = self._records.load()
        run = next((r for r in records if isinstance(r, RunRecord)), None)
        if run is not None and not run.clean and run.boot != boot:
            records = self._reincarnate(records, new_id)
        self._records.save((RunRecord(boot, clean=False),), ())
        logs: dict[a.LogKey, OpenedLog | StorageError] = {}
        for record in records:
            if isinstance(record, ResourceRecord):
                options = log_options(record, self._segment_bytes)
                logs[log_key(record)] = self._open(log_key(record), options, now_us, record.earliest)
            elif isinstance(record, StageRecord):
                stage = Stage(record)
                for key in map(stage.log_key, record.incarnations):
                    if self._is_made(key):
                        logs[key] = self._open(key, LogOptions(self._segment_bytes), now_us, None)
        self._sweep(records)
        return Restored(records, logs)

    def _is_made(self, key: a.LogKey) -> bool:
        """Whether a stage has its log: it is made with the first content, which a crash may interrupt."""
        path = self._path(key)
        names = self._disk.list_dir(path) if self._disk.exists(path) else ()
        return any(segment_base(name) is not None for name in names)

    def _open(
        self, key: a.LogKey, options: LogOptions, now_us: int, earliest: int | None
    ) -> OpenedLog | StorageError:
        try:
            reader, writer, _ = open_log(
                self._disk, self._path(key), options, now_us=now_us, earliest=earliest, cache=self._cache
            )
        except StorageError as e:
            return e
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
        for name in self._disk.list_dir(self._path("resources")):
            if name not in resources:
                delete_log(self._disk, self._path("resources", name))
        for name in self._disk.list_dir(self._path("stages")):
            if name not in stages:
                self._drop_stage(name)

    # --- actions --------------------------------------------------------------------------------------------

    def perform(self, action: DiskAction) -> object:
        """Carry out one action; its result, or the `StorageError` it failed with."""
        try:
            if isinstance(action, a.Save):
                self._records.save(action.put, action.forget)
                return None
            return self._log_action(action)
        except StorageError as e:
            return self._named(action, e)
        except OSError as e:
            return self._named(action, failure(e, f"carrying out {type(action).__name__}"))
        except (MtlError, ValueError) as e:
            # What is taken in was checked before; should it not fit after all, its writers hear of it and the log
            # goes on.
            return self._named(action, StorageFailed(f"{type(action).__name__}: {e}"))

    def _named(self, action: DiskAction, error: StorageError) -> StorageError:
        """The error, as `LogStopped` when the log takes nothing more after it."""
        writer = self._writers.get(action.log) if not isinstance(action, a.Save) else None
        return LogStopped(str(error)) if writer is not None and writer.stopped else error

    def _log_action(self, action: a.CreateLog | a.Append | a.Publish | a.Trim | a.Roll) -> object:
        match action:
            case a.CreateLog():
                return self._create(action)
            case a.Append():
                chunks = [_chunk(d) for d in action.drafts]
                return self._writers[action.log].append(chunks, action.now_us)
            case a.Publish():
                return self._publish(action)
            case a.Trim():
                return self._writers[action.log].trim(action.earliest)
            case a.Roll():
                return self._writers[action.log].roll(action.now_us)

    def _create(self, action: a.CreateLog) -> object:
        path = self._path(action.log)
        parent = path.rpartition("/")[0]
        if not self._disk.exists(parent):
            self._make_dir(parent)
        create_log(self._disk, path, 0)
        opened = self._open(action.log, action.options, 0, None)
        return opened if isinstance(opened, StorageError) else opened[0]

    def _publish(self, action: a.Publish) -> list[Change]:
        """storage-and-loop.md "Stage.Commit", step 4: large staged logs are adopted, small ones copied, in order."""
        writer = self._writers[action.log]
        changes: list[Change] = []
        if writer.next > action.base:
            changes.append(writer.truncate_to(action.base))
        parts: list[StagePart] = []
        for key in action.stages:
            self._writers[key].seal()
            parts.extend(stage_parts(self._disk, self._path(key)))
        for large, run in groupby(parts, key=lambda p: p.bytes >= limits.ADOPT_OCTETS):
            together = tuple(run)
            changes.append(
                writer.adopt(together, action.now_us)
                if large
                else writer.append_from(together, action.now_us)
            )
        return changes

    def drop(self, action: a.DropLogs) -> None:
        """Close and remove logs; what cannot be removed now goes with the next start."""
        for key in action.logs:
            writer = self._writers.pop(key, None)
            try:
                if writer is not None:
                    writer.close()
            except StorageError:
                pass  # it is being removed
            try:
                if key.startswith("stages/"):
                    self._drop_stage(key.split("/")[1])
                else:
                    delete_log(self._disk, self._path(key))
            except (StorageError, OSError):
                continue

    def _drop_stage(self, stage: str) -> None:
        directory = self._path("stages", stage)
        if not self._disk.exists(directory):
            return
        for name in self._disk.list_dir(directory):
            delete_log(self._disk, f"{directory}/{name}")
        self._disk.remove_dir(directory)

    def close(self, boot: str) -> None:
        """Everything written is synced, and the next start may know it."""
        for writer in self._writers.values():
            if not writer.stopped:
                writer.close()
        self._records.save((RunRecord(boot, clean=True),), ())
        self._records.close()

    def _make_dir(self, path: str) -> None:
        if not self._disk.exists(path):
            self._disk.make_dir(path)
            self._disk.fsync_dir(path.rpartition("/")[0])

    def _path(self, *parts: str) -> str:
        return "/".join((self._directory, *parts))


def _chunk(draft: a.Draft) -> NewChunk:
    """The chunk of a draft; plain contents are packed here, on the commit thread."""
    if draft.pack is not None:
        body = draft.pack if isinstance(draft.pack, bytes) else pa.py_buffer(draft.pack)
        return NewChunk(draft.count, body, draft.runs)
    properties = [p for p, _ in draft.plain]
    bodies = [b for _, b in draft.plain]
    return NewChunk(draft.count, encode_pack(bodies, properties, limits.MAX_FRAME), draft.runs)

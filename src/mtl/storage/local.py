"""Performs the core's actions on the disk: on logs and on the records. It has no threads of its own.

Data directory:

    lock                     the process id of the broker that runs on it
    broker.db                the records (`sqlite`)
    generation               the number of the last transaction on them (`generation`)
    resources/<id>/          one log per resource
    stages/<stage>/<n>/      one log per resource that a stage writes to
    lost+found/              logs that no record names (`orphans`), and damaged files (`salvage`)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from mtl import limits
from mtl.errors import Damaged, LogStopped, MtlError, StorageError, StorageFailed
from mtl.log.cache import ReadCache
from mtl.log.change import Change, LogOptions, StagePart
from mtl.log.chunk import NewChunk
from mtl.log.files import Disk, failure
from mtl.log.log import create_log, open_log
from mtl.log.reader import LogReader
from mtl.log.recovery import RecoveryReport
from mtl.log.stage import stage_parts
from mtl.log.writer import LogWriter
from mtl.storage import limits as storage_limits
from mtl.storage.api import (
    Append,
    CreateLog,
    Draft,
    DropLogs,
    ForgetWriters,
    LogAction,
    LogKey,
    Mark,
    OpenedLog,
    OpenLog,
    Publish,
    Read,
    Restored,
    Roll,
    Save,
    Trim,
    WriterAction,
)
from mtl.storage.interrupted import barred
from mtl.storage.orphans import Orphans, may_own
from mtl.storage.records import AnyRecord, RecordDamage, ResourceRecord
from mtl.storage.sqlite import RecordStore
from mtl.storage.tombstones import Tombstones
from mtl.wire.packs import encode_pack

log = logging.getLogger("mtl.broker")

DiskAction = LogAction | Save | Read


class Storage:
    """The logs' writing halves and the records, below one directory.

    `perform` may be called from several threads at once, with at most one action at a time per log, one save and one
    removal, and any number of reads; the core ensures that.
    """

    def __init__(self, disk: Disk, directory: str, records: RecordStore, segment_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._records = records
        self._tombstones = Tombstones(records)
        self._orphans = Orphans(disk, directory)
        self._segment_bytes = segment_bytes
        self._cache = ReadCache()
        self._writers: dict[LogKey, LogWriter] = {}
        self._run = ""
        self._barred: dict[LogKey, Damaged] = {}
        self._undelivered: dict[LogKey, list[Change]] = {}
        """Per log: the changes of the completed steps of failed actions. The next action that succeeds delivers them
        first, so that readers never search for new contents at old places.
        """

    # --- the start ------------------------------------------------------------------------------------------

    def restore(self) -> Restored:
        """Read the records. The logs that they name are opened later, one by one (`OpenLog`)."""
        try:
            for name in ("resources", "stages"):
                self._make_dir(self._path(name))
        except OSError as e:
            raise failure(e, f"preparing {self._directory}") from e
        self._run = self._disk.entropy(4).hex()
        loaded = self._records.load()
        self._settle()
        for damage in loaded.damages:
            log.warning("%s; `mtl recover %s` shows the affected data", damage, self._directory)
        records, damages = self._settle_orphans(loaded.records, loaded.damages)
        self._barred = barred(records, damages)
        return Restored(records, damages)

    def _settle(self) -> None:
        """Save once before the records are used. The last transaction of the previous run may have failed or been cut
        short: after this it is either durable or gone.
        """
        try:
            self._records.save((), ())
        except StorageError as e:
            log.warning("the records cannot be written: %s", e)

    def _settle_orphans(
        self, records: Sequence[AnyRecord], damages: Sequence[RecordDamage]
    ) -> tuple[list[AnyRecord], list[RecordDamage]]:
        """Settle the logs that no record names (`orphans`). Returns all records and the remaining damages."""
        self._tombstones.restore(records)
        try:
            rebuilt, whole = self._orphans.settle(records, damages, self._tombstones.removed)
        except OSError as e:
            raise failure(e, f"looking for logs in {self._directory}") from e
        whole = [kind for kind in whole if any(d.kind == kind and d.key is None for d in damages)]
        if rebuilt or self._tombstones.has_removed_logs:
            self._tombstones.save(rebuilt, ())
        if whole:
            self._records.complete(whole)
        keys = {(r.kind, r.key) for r in rebuilt}
        left = [
            d for d in damages if (d.kind, d.key) not in keys and (d.kind not in whole or d.key is not None)
        ]
        return [*records, *rebuilt], left

    # --- actions --------------------------------------------------------------------------------------------

    def perform(self, action: DiskAction) -> object:
        """Carry out one action; its result, or the `StorageError` it failed with."""
        if isinstance(action, Save):
            return self._failing(action, lambda: self._tombstones.save(action.put, action.forget))
        if isinstance(action, Read):
            return self._failing(action, lambda: action.snapshot.answer(action.query))
        result = self._failing(action, lambda: self._log_action(action))
        writer = self._writers.get(action.log)
        if isinstance(result, StorageError) and writer is not None and writer.stopped:
            return LogStopped(str(result))
        return result

    def save(self, saves: Sequence[Save]) -> list[object]:
        """Perform saves in one transaction, so that many of them cost little more than one. If it fails each has a
        transaction of its own, so that no save fails because of another one.
        """
        merged = _merged(saves) if len(saves) > 1 else None
        if merged is not None:
            result = self._failing(saves[0], lambda: self._tombstones.save(*merged))
            if not isinstance(result, StorageError):
                return [result] * len(saves)
        return [self.perform(save) for save in saves]

    def _failing(self, action: DiskAction, work: Callable[[], object]) -> object:
        try:
            return work()
        except StorageError as e:
            return e
        except OSError as e:
            return failure(e, f"carrying out {type(action).__name__}")
        except (MtlError, ValueError) as e:
            # Contents were checked before; if they do not fit after all, their writers get the error and the log stays
            # usable.
            return StorageFailed(f"{type(action).__name__}: {e}")

    def _log_action(self, action: LogAction) -> object:
        """The answer to an action. Changes are all since the last action on this log that succeeded, in order."""
        if isinstance(action, CreateLog):
            return self._create(action)
        if isinstance(action, OpenLog):
            return self._open_log(action)
        if isinstance(action, Mark):
            return self._writers[action.log].mark()
        changes = self._undelivered.setdefault(action.log, [])
        for change in self._steps(action):
            changes.append(change)
        return self._undelivered.pop(action.log)

    def _steps(self, action: WriterAction) -> Iterator[Change]:
        """Carry out an action step by step. The change of a completed step counts even if the next step fails."""
        writer = self._writers[action.log]
        match action:
            case Append():
                chunks = [d if isinstance(d, NewChunk) else _packed(d) for d in action.drafts]
                yield writer.append(chunks, action.now_us)
            case Publish():
                yield from self._publish(writer, action)
            case Trim():
                yield writer.trim(action.earliest)
            case Roll():
                yield writer.roll(action.now_us)
            case ForgetWriters():
                writer.forget(action.writers)

    def _create(self, action: CreateLog) -> object:
        parent = self._path(action.log).rpartition("/")[0]
        # Also when it exists: another log of the same stage may have made it a moment ago, and not synced it yet.
        self._disk.make_dir(parent)
        self._disk.fsync_dir(parent.rpartition("/")[0])
        run = self._run if action.log.startswith("resources/") else None
        create_log(self._disk, self._path(action.log), 0, owner=action.owner, run=run)
        reader, _ = self._open(action.log, action.options, 0, run=run)
        reader.share(self._cache)
        return reader

    def _open_log(self, action: OpenLog) -> OpenedLog | None:
        path, staged = self._path(action.log), action.log.startswith("stages/")
        if not self._disk.exists(path):
            if staged:
                return None
            raise Damaged(f"{path} is missing: restore it from a copy", file=path)
        opened = self._open(
            action.log,
            action.options,
            action.now_us,
            action.earliest,
            action.base,
            owner=action.owner,
            run=None if staged else self._run,
        )
        opened[0].share(self._cache)
        return opened

    def _open(
        self,
        key: LogKey,
        options: LogOptions,
        now_us: int,
        earliest: int | None = None,
        base: int | None = None,
        *,
        owner: bytes | None = None,
        run: str | None = None,
    ) -> tuple[LogReader, dict[int, int]]:
        """Open a log. Nothing of it stays open when that fails: it is tried again. Raises `StorageError`."""
        if key in self._barred:
            raise self._barred[key]
        reader, writer, report = open_log(
            self._disk,
            self._path(key),
            options,
            now_us=now_us,
            earliest=earliest,
            owner=owner,
            is_owner=lambda kept: may_own(kept, key),
            run=run,
        )
        try:
            if base is not None:
                reader.apply(writer.truncate_to(base))
        except StorageError:
            reader.close()
            self._close(key, writer)
            raise
        if report.cut_bytes:
            _log_cut(report)
        self._writers[key] = writer
        self._undelivered.pop(key, None)
        return reader, dict(writer.last_numbers)

    def _close(self, key: LogKey, writer: LogWriter) -> None:
        """Close a writer that is not needed or not usable any more."""
        try:
            writer.close()
        except StorageError as e:
            log.info("closing the unused log %s failed: %s", key, e)

    def _publish(self, writer: LogWriter, action: Publish) -> Iterator[Change]:
        """PROTOCOL.md 5.5, step 4: large staged logs are adopted, small ones copied, in order.

        Contents of an earlier attempt, possibly an incomplete one, are removed first.
        """
        yield writer.truncate_to(action.base)
        parts: list[StagePart] = []
        for key in action.stages:
            self._seal(key, action.now_us)
            parts.extend(stage_parts(self._disk, self._path(key)))
        staged = sum(part.count for part in parts)
        if staged != action.contents:
            raise Damaged(
                f"{', '.join(action.stages)}: {staged} contents are staged where {action.contents} were"
            )
        for large, run in groupby(parts, key=lambda p: p.bytes >= storage_limits.ADOPT_OCTETS):
            together = tuple(run)
            yield (
                writer.adopt(together, action.now_us)
                if large
                else writer.append_from(together, action.now_us)
            )

    def _seal(self, key: LogKey, now_us: int) -> None:
        """Make a staged log complete. A log that an earlier failed seal stopped is reopened: its stage is committed and
        must be published. A log that never opened has no writer; its parts show whether it is complete.
        """
        writer = self._writers.get(key)
        if writer is not None and writer.stopped:
            writer.close()
            self._open(key, LogOptions(self._segment_bytes), now_us)[0].close()
            writer = self._writers[key]
        if writer is not None:
            writer.seal()

    def drop(self, action: DropLogs) -> None:
        """Close and remove logs; the next start removes those that cannot be removed now."""
        for key in action.logs:
            writer = self._writers.pop(key, None)
            self._undelivered.pop(key, None)
            if writer is not None:
                self._close(key, writer)
        for top in dict.fromkeys("/".join(key.split("/")[:2]) for key in action.logs):
            self._remove(top)

    def _remove(self, place: str) -> None:
        """Remove the log of a resource, or all those of a stage."""
        try:
            self._orphans.remove(place)
        except StorageError as e:
            log.warning("%s was not removed; the next start removes it: %s", self._path(place), e)
        else:
            self._tombstones.removed(place)

    def close(self, closing: Callable[[LogKey], None] = lambda _: None) -> dict[LogKey, StorageError]:
        """Everything written is synced. Returns the logs that are not, and why; `closing` is called before each."""
        failed: dict[LogKey, StorageError] = {}
        for key, writer in self._writers.items():
            closing(key)
            if writer.doubtful:
                failed[key] = StorageFailed(
                    f"the log {key} was stopped, and contents that it confirmed are not synced"
                )
            try:
                writer.close()
            except StorageError as e:
                failed[key] = e
        self._records.close()
        return failed

    def _make_dir(self, path: str) -> None:
        if not self._disk.exists(path):
            self._disk.make_dir(path)
            self._disk.fsync_dir(path.rpartition("/")[0])

    def _path(self, *parts: str) -> str:
        return "/".join((self._directory, *parts))


def _merged(saves: Sequence[Save]) -> tuple[list[AnyRecord], list[AnyRecord]] | None:
    """What saves in this order write and forget in all. None if a record is forgotten and then written with its logs in
    another place: one transaction would not name the former place, whose logs have to be removed.
    """
    put: dict[tuple[str, str], AnyRecord] = {}
    forgotten: dict[tuple[str, str], AnyRecord] = {}
    for save in saves:
        for record in save.put:
            key = (record.kind, record.key)
            former = forgotten.pop(key, None)
            if isinstance(former, ResourceRecord) and former.log != getattr(record, "log", None):
                return None
            put[key] = record
        for record in save.forget:
            key = (record.kind, record.key)
            put.pop(key, None)
            forgotten[key] = record
    return list(put.values()), list(forgotten.values())


def _log_cut(report: RecoveryReport) -> None:
    where = f"{report.cut_file}: {report.cut_bytes} octets from octet {report.cut_at} on were cut"
    if report.cut_end <= report.cut_first:
        log.info("%s: a group that was not finished", where)
        return
    log.warning(
        "%s: contents %d to %d are not whole. They were not confirmed, unless the broker confirmed them shortly before "
        "it stopped and the file was damaged after that (PROTOCOL.md 9.3). Their sequences are assigned again",
        where,
        report.cut_first,
        report.cut_end - 1,
    )


def _packed(draft: Draft) -> NewChunk:
    """Plain contents are packed here, on the commit thread."""
    return NewChunk(draft.count, encode_pack(draft.bodies, draft.properties, limits.MAX_FRAME), draft.runs)

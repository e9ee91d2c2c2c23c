"""The engine of a data directory: its lock, its logs and its records."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from mtl import limits
from mtl.errors import OptionError, StorageError
from mtl.log.files import Lock, RealDisk
from mtl.log.frugal import FrugalDisk
from mtl.log.reserve import files_at_once
from mtl.storage import limits as storage_limits
from mtl.storage.api import (
    CreateLog,
    DropLogs,
    Lane,
    OpenLog,
    Prepare,
    Read,
    Restored,
    Save,
    Seen,
    StorageAction,
)
from mtl.storage.keys import LogKey
from mtl.storage.local import Storage
from mtl.storage.records import UserRecord
from mtl.storage.salvage import open_records

log = logging.getLogger("mtl.broker")

_COMMITS = Lane("commits", limits.COMMIT_THREADS)
_LANES: dict[type, Lane] = {
    Save: Lane("records", together=True),
    DropLogs: Lane("removals"),
    CreateLog: Lane("creations"),
    OpenLog: Lane("openings", limits.OPENINGS),
    Prepare: Lane("prepare"),
    Read: Lane("reads", storage_limits.READ_THREADS),
}
"""The lanes of actions other than group commits, so that these never delay one."""


class DiskEngine:
    """An engine on any disk and records; tests use failing ones."""

    name: str
    directory: Path | None = None

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def restore(self) -> Restored:
        """Read the records, and clean up after the last run."""
        return self._storage.restore()

    def lane(self, action: StorageAction) -> Lane:
        """A log is written by any of a few threads."""
        return _LANES.get(type(action), _COMMITS)

    def perform(self, actions: Sequence[StorageAction]) -> Sequence[object]:
        """Perform the actions one by one, since each log has files of its own; but consecutive saves in one
        transaction.
        """
        results: list[object] = []
        for is_save, together in groupby(actions, lambda action: isinstance(action, Save)):
            if is_save:
                results += self._storage.save([x for x in together if isinstance(x, Save)])
            else:
                results += map(self._perform, together)
        return results

    def _perform(self, action: StorageAction) -> object:
        if isinstance(action, Prepare):
            action.chunk.checksum()
            return None
        if isinstance(action, DropLogs):
            self._storage.drop(action)
            return None
        return self._storage.perform(action)

    def close(self, closing: Callable[[LogKey], None]) -> dict[LogKey, StorageError]:
        """Close the logs; all written data is synced."""
        return self._storage.close(closing)


class DirectoryEngine(DiskEngine):
    """`data` is the path of an existing directory; `segment_bytes` is for staged logs. Raises `OptionError` for a
    directory that cannot be used, `DirectoryInUse` while another process has it, and the errors of `open_records`.
    """

    def __init__(self, data: str, segment_bytes: int) -> None:
        self._data = data
        self.name = data
        self.directory = Path(data).resolve()
        self._lock = _lock(data)
        try:
            self._records = open_records(Path(data))
        except BaseException:
            self._lock.release()
            raise
        for note in self._records.notes:
            log.warning("%s", note)
        super().__init__(Storage(FrugalDisk(RealDisk(), files_at_once()), data, self._records, segment_bytes))

    def observe(self) -> Seen:
        """The free space of the file system, and changes by `mtl user`."""
        free, total = None, 0
        try:
            room = os.statvfs(self._data)
        except OSError as error:
            log.error("the free space of the disk could not be measured: %s", error)
        else:
            free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
        users = None
        try:
            if self._records.changed():
                users = self._records.of(UserRecord)
        except StorageError as error:
            log.error("the users could not be read again: %s", error)
        return Seen(free, total, users)

    def close(self, closing: Callable[[LogKey], None]) -> dict[LogKey, StorageError]:
        """Close the engine: all written data is synced, and the directory is free for another process."""
        try:
            return super().close(closing)
        finally:
            self._lock.release()


def _lock(data: str) -> Lock:
    try:
        return RealDisk().lock(data)
    except OSError as error:
        raise OptionError(f"cannot use {data} as data directory: {error.strerror}") from error

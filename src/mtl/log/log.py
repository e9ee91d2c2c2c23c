"""Making, opening and deleting a log: one directory of segments, one reader, one writer."""

from __future__ import annotations

from mtl.errors import Damaged
from mtl.log.cache import ReadCache
from mtl.log.change import LogOptions, Trimmed
from mtl.log.files import Disk, failure
from mtl.log.reader import LogReader
from mtl.log.recovery import RecoveryReport, recover
from mtl.log.segment import TEMPORARY, segment_base, segment_name
from mtl.log.store import Store
from mtl.log.writer import LogWriter


def create_log(disk: Disk, directory: str, now_us: int, *, base: int = 1) -> None:
    """An empty log whose first content will get sequence `base`. Durable; again is the same, as long as it is empty.

    The parent directory must exist. Damaged when there are segments with contents already.
    """
    store = Store(disk, directory)
    try:
        disk.make_dir(directory)
        disk.fsync_dir(_parent(directory))
        present = [found for name in disk.list_dir(directory) if (found := segment_base(name)) is not None]
        if present and present != [base]:
            raise Damaged(f"{directory}: there is a log already", file=directory)
        if present:
            header = store.header(base)
            if disk.sizes(directory)[segment_name(base)] > header.start:
                raise Damaged(f"{directory}: there is a log with contents already", file=directory)
            store.sync_names()
            return
        file, _ = store.write_segment(base, now_us, {})
        file.close()
        store.place(TEMPORARY, segment_name(base))
    except OSError as error:
        raise failure(error, f"creating the log {directory}") from error


def open_log(
    disk: Disk,
    directory: str,
    options: LogOptions | None = None,
    *,
    now_us: int,
    earliest: int | None = None,
    cache: ReadCache | None = None,
) -> tuple[LogReader, LogWriter, RecoveryReport]:
    """Bring a log into order after whatever happened (recovery.py) and open it.

    `earliest` is what the metadata says: segments wholly below it are removed, as a trim that was interrupted would
    have done, and a log that begins above it is Damaged. Without it the log begins where its files do. `cache` is
    shared by all logs of a process; each has its own by default.

    Damaged: bytes that were durable have changed; nothing was touched. NewerVersion, StorageFull, StorageFailed.
    """
    options = options or LogOptions()
    store = Store(disk, directory)
    try:
        recovered = recover(store, earliest)
    except OSError as error:
        raise failure(error, f"opening the log {directory}") from error
    reader = LogReader(store, options, cache or ReadCache(), recovered)
    if earliest is not None:
        reader.apply(Trimmed(earliest))
    writer = LogWriter(store, options, recovered)
    if recovered.index.adopted:
        # Retention never removes the newest segment, so that must be one with the table of writers.
        reader.apply(writer.roll(now_us))
    return reader, writer, recovered.report


def delete_log(disk: Disk, directory: str) -> None:
    """Remove a log with all its contents. Again is the same."""
    try:
        if not disk.exists(directory):
            return
        for name in disk.list_dir(directory):
            disk.unlink(f"{directory}/{name}")
        disk.remove_dir(directory)
        disk.fsync_dir(_parent(directory))
    except OSError as error:
        raise failure(error, f"deleting the log {directory}") from error


def _parent(directory: str) -> str:
    return directory.rsplit("/", 1)[0] if "/" in directory else "."

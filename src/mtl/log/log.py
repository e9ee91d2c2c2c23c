"""Making, opening and deleting a log: one directory of segments, one reader, one writer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mtl.errors import Damaged
from mtl.log.cache import ReadCache
from mtl.log.change import LogOptions, Trimmed
from mtl.log.files import Disk, failure
from mtl.log.manifest import MANIFEST, Epoch, Manifest, run_id
from mtl.log.reader import LogReader
from mtl.log.recovery import RecoveryReport, recover
from mtl.log.segment import TEMPORARY, segment_base, segment_name
from mtl.log.stamps import Setbacks, with_setback
from mtl.log.store import Store, read_header
from mtl.log.writer import LogWriter

MAKING = ".new"
"""Suffix of the directory of a log that is being made: it gets its own name when it is complete."""

GOING = ".gone"
"""Suffix of the directory of a log that is being removed: under this name it is not a log any more."""


def create_log(
    disk: Disk, directory: str, now_us: int, *, base: int = 1, owner: bytes = b"", run: str | None = None
) -> None:
    """Make an empty log whose first content will get sequence `base`, durably. Harmless to repeat while it is empty.

    `owner`: opaque octets for the manifest. `run`: the epoch of the first content, as for `open_log`.
    The parent directory must exist. Damaged when there are segments with contents already.
    """
    try:
        if disk.exists(directory) and _is_empty_log(Store(disk, directory), base):
            disk.fsync_dir(_parent(directory))
            return
        delete_log(disk, directory)
        making = Store(disk, directory + MAKING)
        disk.make_dir(making.directory)
        file, header = making.write_segment(base, now_us, {})
        file.close()
        disk.rename(making.path(TEMPORARY), making.segment_path(base))
        epochs = () if run is None else (Epoch(base, run_id((), run)),)
        making.write_manifest(Manifest(base, base, base, owner, epochs, salt=header.salt))
        disk.rename(making.directory, directory)
        disk.fsync_dir(_parent(directory))
    except OSError as error:
        raise failure(error, f"creating the log {directory}") from error


def _is_empty_log(store: Store, base: int) -> bool:
    """Whether the directory holds an empty log that begins at `base`; False when it holds no log."""
    sizes = store.disk.sizes(store.directory)
    present = [segment for name in sizes if (segment := segment_base(name)) is not None]
    if not present and MANIFEST not in sizes:
        return False
    if present != [base]:
        raise Damaged(f"{store.directory}: there is a log already", file=store.directory)
    if sizes[segment_name(base)] > store.header(base).start:
        raise Damaged(f"{store.directory}: there is a log with contents already", file=store.directory)
    store.manifest()
    return True


def rebuild_manifest(disk: Disk, directory: str, owner: bytes, earliest: int | None = None) -> bool:
    """Make the manifest of a log that lost it from its segments, durably. False, without a change, when it has one or
    is not a log.

    `earliest`: where the log begins; by default where its files do.
    """
    try:
        if not disk.exists(directory):
            return False
        names = disk.list_dir(directory)
        bases = [base for name in names if (base := segment_base(name)) is not None]
        if MANIFEST in names or not bases:
            return False
        store, newest = Store(disk, directory), bases[-1]
        header = read_header(disk, store.segment_path(newest))
        salt = None if header is None else header.salt
        setbacks = _setbacks(store, bases)
        store.write_manifest(
            Manifest(earliest or bases[0], newest, owner=owner, salt=salt, setbacks=setbacks)
        )
    except OSError as error:
        raise failure(error, f"writing the manifest of {directory}") from error
    return True


def _setbacks(store: Store, bases: list[int]) -> Setbacks:
    """Where the stamps of a log go back, as far as its segments can be read."""
    setbacks: Setbacks = ()
    newest = 0
    for base in bases:
        index, header = store.index(base), read_header(store.disk, store.segment_path(base))
        if index is None and (header is None or header.base != base):
            continue
        began = index.time if index is not None else header.time if header is not None else 0
        if began < newest:
            setbacks = with_setback(setbacks, base, began)
        newest = began if index is None else index.newest_time
    return setbacks


def open_log(
    disk: Disk,
    directory: str,
    options: LogOptions | None = None,
    *,
    now_us: int,
    earliest: int | None = None,
    cache: ReadCache | None = None,
    owner: bytes | None = None,
    is_owner: Callable[[bytes], bool] | None = None,
    run: str | None = None,
) -> tuple[LogReader, LogWriter, RecoveryReport]:
    """Recover a log (recovery.py) and open it.

    `earliest` is the metadata's: segments wholly below it are removed, as an interrupted trim would have done, and a
    log that begins above it is Damaged. Without it, or if the manifest's is higher, the manifest's applies. `cache` is
    shared by all logs of a process; each has its own by default. `is_owner` decides whether the owner in the manifest
    can be this log's; if not, the manifest is another log's. `owner` replaces the manifest's. `run` is a token of 8
    hexadecimal digits of this run of the broker: the log begins an epoch with its next contents; None begins none.

    Damaged: bytes that were durable have changed, or files are missing; nothing was changed. UnknownFormat,
    StorageFull, StorageFailed.
    """
    options = options or LogOptions()
    store = Store(disk, directory)
    try:
        if not disk.exists(directory):
            message = (
                f"{directory}: the log is missing; restore the directory from a copy, then restart the broker"
            )
            raise Damaged(message, file=directory)
        manifest = store.manifest()
        if is_owner is not None and not is_owner(manifest.owner):
            raise _manifest_of_another(store)
        if owner is not None and owner != manifest.owner:
            manifest = msgspec.structs.replace(manifest, owner=owner)
            store.write_manifest(manifest)
        recovered = recover(store, manifest, earliest)
    except OSError as error:
        raise failure(error, f"opening the log {directory}") from error
    reader = LogReader(store, options, cache or ReadCache(), recovered, run)
    reader.apply(Trimmed(recovered.earliest))
    writer = LogWriter(store, options, recovered, run)
    if recovered.index.adopted:
        # Retention never removes the newest segment, so that one must have the table of writers.
        reader.apply(writer.roll(now_us))
    writer.mark()
    return reader, writer, recovered.report


def _manifest_of_another(store: Store) -> Damaged:
    path = store.path(MANIFEST)
    message = (
        f"{path}: this is the manifest of another log. Nothing was changed: restore the files as they were, then "
        "restart the broker"
    )
    return Damaged(message, file=path)


def delete_log(disk: Disk, directory: str) -> None:
    """Remove a log with all its contents, and the remains of an interrupted `create_log`. Harmless when repeated. No
    file of it may be open.
    """
    try:
        going = directory + GOING
        for path in (directory + MAKING, going):
            _clear(disk, path)
        if disk.exists(directory):
            disk.rename(directory, going)
            disk.fsync_dir(_parent(directory))
            _clear(disk, going)
    except OSError as error:
        raise failure(error, f"deleting the log {directory}") from error


def _clear(disk: Disk, path: str) -> None:
    if not disk.exists(path):
        return
    for name in disk.list_dir(path):
        disk.unlink(f"{path}/{name}")
    disk.remove_dir(path)
    disk.fsync_dir(_parent(path))


def _parent(directory: str) -> str:
    return directory.rsplit("/", 1)[0] if "/" in directory else "."

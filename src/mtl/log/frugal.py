"""A disk with a bounded number of open files for any number of logs.

A log keeps its newest segment open, so a broker with ten thousand resources would need more open files than the
system allows one process. This disk closes the least recently used file, and opens it again under its present name
when it is needed. Logs do not depend on this.

A file with unsynced data is synced before it is closed; otherwise an error of the disk would be lost. After an error
every later `sync` of the file fails, because a sync that succeeds later proves nothing.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from mtl.log.files import Disk, File, Lock, Mode
from mtl.log.limits import OPEN_FILES
from mtl.log.reserve import with_reserve

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")

_NO_MORE_FILES = {errno.EMFILE, errno.ENFILE}


class KeptFile:
    """A file that is open for its user, but may be closed in the system. Any thread may use it, one at a time."""

    def __init__(self, home: FrugalDisk, path: str, mode: Mode, file: File) -> None:
        self.path = path
        self.dirty = False
        self.named = True
        self.closed = False
        self._home = home
        self._reopen_mode: Mode = "read" if mode == "read" else "write"
        self._file: File | None = file
        self._failed: OSError | None = None
        self._lock = threading.Lock()

    def size(self) -> int:
        return self._with_file(lambda file: file.size())

    def pread(self, size: int, offset: int) -> bytes:
        return self._with_file(lambda file: file.pread(size, offset))

    def writev(self, buffers: Sequence[Buffer], offset: int) -> int:
        return self._with_file(lambda file: file.writev(buffers, offset), dirties=True)

    def truncate(self, size: int) -> None:
        self._with_file(lambda file: file.truncate(size), dirties=True)

    def begin_sync(self, offset: int, size: int) -> None:
        self._with_file(lambda file: file.begin_sync(offset, size), dirties=True)

    def sync(self) -> None:
        self._with_file(self._sync)

    def _sync(self, file: File) -> None:
        if self._failed is not None:
            raise self._failed
        file.sync()
        self.dirty = False

    def close(self) -> None:
        self.closed = True
        self._home.closed(self)
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def keep_open(self) -> None:
        """Its name is removed or given to another file, so it has to stay open from now on."""
        self.named = False
        self._with_file(lambda _: None)

    def park(self) -> None:
        """Close the file in the system until it is used again, unless a thread is using it now."""
        if self._lock.acquire(blocking=False):
            try:
                self._park()
            finally:
                self._lock.release()

    def _park(self) -> None:
        if self._file is None or not self.named:
            return
        if self.dirty:
            try:
                self._file.sync()
            except OSError as error:
                self._failed = error
                return
            self.dirty = False
        self._file.close()
        self._file = None

    def _with_file(self, work: Callable[[File], T], *, dirties: bool = False) -> T:
        with self._lock:
            if self.closed:
                raise OSError(errno.EBADF, "the file is closed", self.path)
            if self._file is None:
                self._file = self._home.reopen(self.path, self._reopen_mode)
            self.dirty = self.dirty or dirties
            result = work(self._file)
        self._home.used(self)
        return result


class FrugalDisk:
    """Wraps a disk and keeps at most about `most` of its files open at a time."""

    def __init__(self, disk: Disk, most: int = OPEN_FILES) -> None:
        self._disk = disk
        self._most = most
        self._lock = threading.Lock()
        self._by_path: dict[str, list[KeptFile]] = {}
        """Files that are open for their users, by their present name."""
        self._open_files: dict[KeptFile, None] = {}
        """Files that are open in the system, least recently used first."""

    # --- files ----------------------------------------------------------------------------------------------

    def open(self, path: str, mode: Mode) -> KeptFile:
        kept = KeptFile(self, path, mode, self.reopen(path, mode))
        with self._lock:
            self._by_path.setdefault(path, []).append(kept)
        self.used(kept)
        return kept

    def reopen(self, path: str, mode: Mode) -> File:
        """Open a file now."""
        return self._with_files(lambda: self._disk.open(path, mode))

    def fsync_dir(self, path: str) -> None:
        self._with_files(lambda: self._disk.fsync_dir(path))

    def _with_files(self, work: Callable[[], T]) -> T:
        """Call `work`; if the system has no more files, close those that are not in use and call it again, at last with
        the reserve.
        """
        try:
            return work()
        except OSError as error:
            if error.errno not in _NO_MORE_FILES:
                raise
        self._park(0)
        try:
            return work()
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
        return with_reserve(work)

    def used(self, kept: KeptFile) -> None:
        """A file was used; if too many are open, close others."""
        with self._lock:
            if not kept.closed:
                self._open_files.pop(kept, None)
                self._open_files[kept] = None
            enough = len(self._open_files) <= self._most
        if not enough:
            # An eighth more than necessary: `_park` sorts all open files, which every further one would repeat.
            self._park(self._most - self._most // 8)

    def closed(self, kept: KeptFile) -> None:
        """A file was closed by its user."""
        with self._lock:
            self._open_files.pop(kept, None)
            self._remove(kept)

    def _park(self, most: int) -> None:
        """Close files until `most` are open: first those that need no sync, and the least recently used first."""
        with self._lock:
            idle = sorted((x for x in self._open_files if x.named), key=lambda x: x.dirty)
            leaving = idle[: max(0, len(self._open_files) - most)]
            for kept in leaving:
                del self._open_files[kept]
        for kept in leaving:
            kept.park()

    # --- names ----------------------------------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        self._forget_name(target)
        self._disk.rename(source, target)
        with self._lock:
            moved = self._by_path.pop(source, [])
            for kept in moved:
                kept.path = target
            if moved:
                self._by_path[target] = moved

    def unlink(self, path: str) -> None:
        self._forget_name(path)
        self._disk.unlink(path)

    def _forget_name(self, path: str) -> None:
        """The name is about to be removed or given to another file; files that are open under it stay open."""
        with self._lock:
            nameless = self._by_path.pop(path, [])
        for kept in nameless:
            kept.keep_open()

    def _remove(self, kept: KeptFile) -> None:
        same = self._by_path.get(kept.path, [])
        if kept in same:
            same.remove(kept)
            if not same:
                del self._by_path[kept.path]

    # --- the rest is the other disk's -----------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        self._disk.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self._disk.remove_dir(path)

    def list_dir(self, path: str) -> list[str]:
        return self._with_files(lambda: self._disk.list_dir(path))

    def sizes(self, path: str) -> dict[str, int]:
        return self._with_files(lambda: self._disk.sizes(path))

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def link(self, source: str, target: str) -> None:
        self._disk.link(source, target)

    def entropy(self, size: int) -> bytes:
        return self._disk.entropy(size)

    def lock(self, directory: str) -> Lock:
        return self._disk.lock(directory)

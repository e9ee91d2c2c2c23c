"""The interface of a disk as the log uses it, and its implementation by the operating system.

`Disk` and `File` raise OSError as the system does; the log turns it into the project's errors in one place
(`failure`). The tests run the log also on a disk in memory with the same contract, which loses unsynced data, fails
and crashes on demand (tests/support/faulty_disk.py).

No operation is atomic or durable by itself. The log relies on these guarantees only:

- bytes are durable after `File.sync` returned, and only then;
- a name (made, linked, renamed or removed) is durable after `Disk.fsync_dir` of its directory returned, and a rename
  is seen by a crash either whole or not at all;
- after a failed sync the bytes written since the last successful one may be lost, even if a later sync succeeds.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from mtl.errors import DirectoryInUse, StorageError, StorageFailed, StorageFull
from mtl.log.limits import IOV_BATCH

if TYPE_CHECKING:
    from typing_extensions import Buffer

Mode = Literal["read", "write", "create"]

_FULL = {errno.ENOSPC, errno.EDQUOT}
LOCK_NAME = "lock"
"""Holds the process id of the directory's holder, for messages only. The lock itself is on the directory."""

_LOCKS = Path("/proc/locks")
"""Linux's list of file locks and their holders."""


class File(Protocol):
    """An open file. Offsets and sizes are octets."""

    def size(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Fewer than `size` octets only at the end of the file."""

    def writev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write the buffers in order. Returns the octets written, which may be fewer than given."""

    def truncate(self, size: int) -> None: ...

    def begin_sync(self, offset: int, size: int) -> None:
        """Start writing these octets to the disk without waiting, so that `sync` takes less time. `sync` also raises
        the errors of this call. Does nothing on a system without such a call.
        """

    def sync(self) -> None:
        """Bytes and size are durable when this returns (fdatasync)."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Directories and names. Paths are absolute or relative strings with "/"."""

    def make_dir(self, path: str) -> None:
        """One directory; an existing one is fine. Durable after fsync_dir of its parent."""

    def remove_dir(self, path: str) -> None: ...

    def list_dir(self, path: str) -> list[str]:
        """Names of files and directories, sorted."""

    def sizes(self, path: str) -> dict[str, int]:
        """Octets of every file of a directory, by name, in order of the names."""

    def exists(self, path: str) -> bool: ...

    def open(self, path: str, mode: Mode) -> File:
        """Mode "create" makes an empty file, which replaces an existing one; the others fail without a file."""

    def rename(self, source: str, target: str) -> None:
        """Replaces an existing target."""

    def link(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def entropy(self, size: int) -> bytes:
        """Random octets that cannot be guessed."""

    def lock(self, directory: str) -> Lock:
        """Lock the directory until release() or the end of this process; DirectoryInUse if it is locked already."""


_REMEDIES: dict[int, Callable[[], str]] = {
    errno.ENOSPC: lambda: "free some space, or some inodes (df -h, df -i), nothing else is needed",
    errno.EDQUOT: lambda: (
        "raise the disk quota of the broker's user, or free some of it; nothing else is needed"
    ),
    errno.EFBIG: lambda: f"{file_limit_text()}; raise the limit, then restart the broker",
    errno.EMFILE: lambda: (
        "raise the limit of open files of this process (ulimit -n, LimitNOFILE), then restart it"
    ),
    errno.ENFILE: lambda: "raise the system's limit of open files (sysctl fs.file-max)",
    errno.EROFS: lambda: (
        "make the file system writable; if the system made it read-only, its disk failed (dmesg)"
    ),
    errno.EIO: lambda: "the disk or its connection fails (dmesg)",
    errno.EACCES: lambda: "give the broker's user the permission",
    errno.EPERM: lambda: "give the broker's user the permission",
}
"""The way out of the errors of a system that people can end."""


def failure(error: OSError, doing: str) -> StorageError:
    """The project's error for an error of the system: StorageFull or StorageFailed; `doing` names the failed step."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    way_out = "" if remedy is None else f"; {remedy()}"
    if error.errno in _FULL:
        return StorageFull(f"no space left while {doing} ({reason}){way_out}")
    return StorageFailed(f"{doing} failed: {reason}{way_out}")


def file_limit() -> int | None:
    """The octets that a file of this process may have (ulimit -f); None without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def file_limit_text() -> str:
    """A file may not grow further: the limit, for messages."""
    limit = file_limit()
    if limit is None:
        return "the file system does not allow a larger file"
    return f"a file of this process may have {limit:,} octets (ulimit -f, LimitFSIZE)"


def write_fully(file: File, buffers: Sequence[Buffer], offset: int) -> int:
    """Write all octets of `buffers` at `offset`, in as many calls as needed. Returns the octets written."""
    at = offset
    for first in range(0, len(buffers), IOV_BATCH):
        batch = buffers[first : first + IOV_BATCH]
        size = sum(map(octets, batch))
        written = file.writev(batch, at) if size else 0
        if written < size:
            _write_rest(file, batch, at, written)
        at += size
    return at - offset


def _write_rest(file: File, buffers: Sequence[Buffer], offset: int, written: int) -> None:
    """Write the rest after an incomplete write. OSError when a call writes nothing."""
    left = _after([memoryview(buffer).cast("B") for buffer in buffers], written)
    at = offset + written
    while left:
        if not written:
            raise OSError(errno.EIO, "a write of 0 octets")
        written = file.writev(left, at)
        at += written
        left = _after(left, written)


def _after(buffers: list[memoryview], written: int) -> list[memoryview]:
    """The rest of `buffers` after their first `written` octets."""
    for index, buffer in enumerate(buffers):
        if written < buffer.nbytes:
            return [buffer[written:], *buffers[index + 1 :]]
        written -= buffer.nbytes
    return []


def octets(buffer: Buffer) -> int:
    """The size of a buffer of any kind."""
    return len(buffer) if isinstance(buffer, bytes) else memoryview(buffer).nbytes


def _sync_file_range() -> Callable[[int, int, int, int], int]:
    """Linux's sync_file_range, which Python does not offer; on other systems a function without effect."""
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except AttributeError:
        return lambda *_: 0
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast("Callable[[int, int, int, int], int]", call)


def _madvise() -> Callable[[int, int, int], int]:
    """The system's madvise. That of `mmap` keeps other threads from running while it waits for the disk."""
    call = ctypes.CDLL(None).madvise
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return cast("Callable[[int, int, int], int]", call)


_begin_writing = _sync_file_range()
_advise = _madvise()
_WRITE = 2
"""SYNC_FILE_RANGE_WRITE: begin to write, wait for nothing, promise nothing."""

_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ESPIPE}
"""Errors of a system that has the call, but does not support it, or not for this file."""


class RealFile:
    """A file of the operating system."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._failed: OSError | None = None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        return self._pread_on(data, size, offset)

    def _pread_on(self, data: bytes, size: int, offset: int) -> bytes:
        parts, have = [data], len(data)
        while have < size:
            part = os.pread(self._fd, size - have, offset + have)
            if not part:
                break
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def writev(self, buffers: Sequence[Buffer], offset: int) -> int:
        if hasattr(os, "pwritev"):  # not on macOS
            return os.pwritev(self._fd, buffers, offset)
        os.lseek(self._fd, offset, os.SEEK_SET)  # the log uses a descriptor from one thread at a time
        return os.writev(self._fd, buffers)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def begin_sync(self, offset: int, size: int) -> None:
        if _begin_writing(self._fd, offset, size, _WRITE):
            code = ctypes.get_errno()
            if code not in _CANNOT:
                self._failed = OSError(code, os.strerror(code))

    def sync(self) -> None:
        if self._failed is not None:  # a sync may succeed now although the octets were lost
            raise self._failed
        if sys.platform == "darwin":  # fsync there does not reach the platter
            fcntl.fcntl(self._fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class RealLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_FLAGS = {"read": os.O_RDONLY, "write": os.O_RDWR, "create": os.O_RDWR | os.O_CREAT | os.O_TRUNC}


class RealDisk:
    """The file system of this machine. Files are made for this user only (0600, directories 0700)."""

    def make_dir(self, path: str) -> None:
        Path(path).mkdir(mode=0o700, exist_ok=True)

    def remove_dir(self, path: str) -> None:
        Path(path).rmdir()

    def list_dir(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries)

    def sizes(self, path: str) -> dict[str, int]:
        with os.scandir(path) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        return dict(sorted(sizes.items()))

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def open(self, path: str, mode: Mode) -> RealFile:
        return RealFile(os.open(path, _FLAGS[mode] | os.O_CLOEXEC, 0o600))

    def rename(self, source: str, target: str) -> None:
        Path(source).replace(target)

    def link(self, source: str, target: str) -> None:
        Path(target).hardlink_to(source)

    def unlink(self, path: str) -> None:
        Path(path).unlink()

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    def lock(self, directory: str) -> RealLock:
        """Locks the directory itself: a lock file could be removed, and a second process would lock another file."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(fd, directory)
            os.close(fd)
            raise DirectoryInUse(
                f"another broker{f' (process {holder})' if holder else ''} is using {directory}; "
                "stop it, or give this one a data directory of its own"
            ) from None
        name = Path(directory) / LOCK_NAME
        with suppress(OSError):  # the disk may be full; the file is for messages only
            name.touch(mode=0o600)
            name.write_text(str(os.getpid()), "ascii")
        return RealLock(fd)


def _holder(fd: int, directory: str) -> str | None:
    """The id of the process that has locked a directory, None if it is not known."""
    name = Path(directory) / LOCK_NAME
    if name.exists():
        return name.read_text("ascii", "replace").strip()
    if not _LOCKS.exists():
        return None
    inode = os.fstat(fd).st_ino
    # 1: FLOCK  ADVISORY  WRITE 8672 fe:00:9978156 0 EOF
    locks = (entry.split() for entry in _LOCKS.read_text("ascii").splitlines())
    return next((x[4] for x in locks if x[1] == "FLOCK" and x[5].endswith(f":{inode}")), None)

"""Opens files below a directory that a broker has granted (PROTOCOL.md 5.6), and no others.

The broker chooses the names. If the client followed symbolic links, left the directory or opened a FIFO, a malicious
broker could make it read any file of its user, or hang. So each component is opened by itself, below the one before
it. A symbolic link is an error; the last component has to be a regular file, and opening it never blocks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

from mtl.wire.control import LOCAL_KEY, LocalFiles

_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""O_PATH (Linux) needs no right to list the directory."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class GrantedDirectory:
    """An open directory of the broker. Raises OSError if it is missing, or does not contain the key that the broker
    sent: then it is another directory, of another file system or broker.
    """

    def __init__(self, files: LocalFiles) -> None:
        self.files = files
        self._names = _names(files.directory)
        root = os.open("/", _DIRECTORY)
        try:
            self._fd = _directory(root, self._names)
        finally:
            os.close(root)
        try:
            self._check_key()
        except BaseException:
            self.close()
            raise

    def _check_key(self) -> None:
        wanted = self.files.key.encode()
        fd = _regular(self._fd, LOCAL_KEY)
        try:
            key = os.read(fd, len(wanted) + 1)
        finally:
            os.close(fd)
        if key != wanted:
            raise OSError(errno.ENOKEY, f"another {LOCAL_KEY} than the broker's")

    def open(self, path: str) -> int:
        """A descriptor of a regular file below the directory. OSError for any other path, and for a missing file."""
        names = _names(path)
        depth = len(self._names)
        if names[:depth] != self._names or len(names) == depth:
            raise OSError(errno.EACCES, f"not below {self.files.directory}")
        parent = _directory(self._fd, names[depth:-1])
        try:
            return _regular(parent, names[-1])
        finally:
            os.close(parent)

    def close(self) -> None:
        """Close the directory; files opened in it stay open."""
        os.close(self._fd)


def _names(path: str) -> Sequence[str]:
    """The components of an absolute path. OSError for a path that is not in normal form."""
    root, *names = path.split("/")
    if root or any(name in {"", ".", ".."} or "\0" in name for name in names):
        raise OSError(errno.EINVAL, "not a plain absolute path")
    return names


def _directory(start: int, names: Sequence[str]) -> int:
    """A new descriptor of the directory below `start`."""
    fd = os.dup(start)
    for name in names:
        try:
            below = os.open(name, _DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _regular(parent: int, name: str) -> int:
    fd = os.open(name, _FILE, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd

"""The socket file of an ipc endpoint: its claim and its mode.

libzmq would replace the file of a running server without an error, and give it the mode that the umask leaves.

That server would run on and could not be reached any more. A file at which no server listens (its process was killed)
may be replaced. The claim is held until the endpoint is bound, so that of two servers that start together one is
refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec

PRIVATE = 0o600
"""The mode that a socket file gets first: only processes of the server's own user connect."""

SocketMode = Annotated[str, msgspec.Meta(pattern="^[67][0-7]{2}$")]
"""The mode of a socket file in a configuration, in octal digits; its own user can always connect."""

_PREFIX = "ipc://"
_PROBE_S = 1.0
"""Longest wait for a server that listens: the kernel answers for it, at once."""


@contextmanager
def claimed(endpoint: str) -> Iterator[None]:
    """Hold the claim while the endpoint is bound, and create its file for the own user only; no effect for other
    transports than ipc. Raises OSError: EADDRINUSE if a server listens there, EEXIST for a file that is no socket.
    """
    name = endpoint.removeprefix(_PREFIX)
    if (
        not endpoint.startswith(_PREFIX) or name == "*" or name.startswith("@")
    ):  # the kernel refuses a second "@name"
        yield
        return
    path = Path(name)
    with _locked(path.parent):
        _check(path)
        # The mask is the process's. Files that other threads create meanwhile get no wider mode.
        before = os.umask(0o777 & ~PRIVATE)
        try:
            yield
        finally:
            os.umask(before)


def admit(endpoint: str, mode: str) -> None:
    """Give the file of a bound ipc endpoint its configured mode; no effect for other transports."""
    name = endpoint.removeprefix(_PREFIX)
    if endpoint.startswith(_PREFIX) and not name.startswith("@"):
        Path(name).chmod(int(mode, 8))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One server at a time claims a file of this folder. The lock leaves no file behind."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # bind has the error
        yield
        return
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # there is no file, or bind has the error
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "a file that is not a socket has this name")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return  # its server has ended
        except OSError:
            pass  # its queue is full, or only other users may connect: there is a server
    raise OSError(errno.EADDRINUSE, "another server listens there")

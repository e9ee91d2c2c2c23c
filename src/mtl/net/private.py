"""What only its owner may see: the files of passwords and tokens and the data directory of a broker."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mtl.errors import OptionError

_OTHERS = 0o077
"""Rights that neither a group nor others may have to a password."""

_OTHERS_MOUNTED = 0o027
"""The same where root gave the file to a group of its reader, as Kubernetes' fsGroup does."""

_OTHERS_DATA = 0o027
"""Rights that nobody else may have to a data directory. A group may read: its members are readers on this machine."""

_EVERYBODY_EXECUTES = 0o111


def check_password_file(path: Path, shown: str, what: str = "password") -> None:
    """Raises `OptionError`, which names the file as `shown` and `what` is in it, for one that others can read. OSError
    when there is none.

    Accepted are what is no file (a pipe, a terminal), a secret that a container was given (root's, on a mount that
    nobody can write to), and a file below a directory that nobody else can enter. A file that everybody may execute
    has its mode from Spark, which gives copies of `--files` to executors like that, or from a file system without
    modes: its owner cannot set another one.
    """
    found = path.stat()
    mine = found.st_uid == os.geteuid()
    others = _OTHERS_MOUNTED if found.st_uid == 0 and not mine else _OTHERS
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & others:
        return
    if found.st_mode & _EVERYBODY_EXECUTES == _EVERYBODY_EXECUTES:
        return
    if (found.st_uid == 0 and os.statvfs(path).f_flag & os.ST_RDONLY) or _is_shut(path):
        return
    raise OptionError(
        f"others can read the {what} in {shown} (mode {found.st_mode & 0o777:o}): set it to 600 "
        f"(chmod 600), and choose another {what} if somebody may have read it"
    )


def make_data_directory(path: Path) -> None:
    """The data directory of a broker, made for its owner alone if it is not there.

    Raises `OptionError` when it cannot be made, and for one that others may enter or its group may write to, unless
    nobody else can enter a directory above it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise OptionError(f"cannot use {path} as data directory: {error.strerror}") from error
    if not mode & _OTHERS_DATA or _is_shut(path):
        return
    raise OptionError(
        f"others can enter the data directory {path} (mode {mode:o}), which has all contents and the users: "
        f"chmod 700 {path} (750 where readers of its group are on this machine), and start again; nothing in it "
        "changes. For the root of a volume, which is somebody else's, use a directory in it"
    )


def _is_shut(path: Path) -> bool:
    """Whether there is a directory above that only its owner can enter."""
    return any(not above.stat().st_mode & 0o011 for above in path.resolve().parents)

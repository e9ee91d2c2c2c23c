"""Access rights of private files: passwords, tokens and the data directory of a broker."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mtl.errors import OptionError

_OTHERS = 0o077
"""Rights that neither the group nor others may have to a password file."""

_OTHERS_MOUNTED = 0o027
"""The same for a file of root that its reader may read by a group, as with Kubernetes' fsGroup."""

_OTHERS_DATA = 0o027
"""Rights that must not be set on a data directory. A group may read: its members are readers on this machine."""

_EVERYBODY_EXECUTES = 0o111


def check_password_file(path: Path, displayed: str, content: str = "password") -> None:
    """Raises `OptionError` for a file that others can read, OSError for a missing one. The message names the file as
    `displayed` and its content as `content`.

    Accepted are also pipes and terminals, secrets mounted into a container (root's, on a read-only mount), and files
    below a directory that only its owner can enter. A file that everybody may execute is accepted because its owner
    cannot change the mode: Spark sets it on the executors' copies of `--files`, or the file system has no modes.
    """
    status = path.stat()
    is_own = status.st_uid == os.geteuid()
    others = _OTHERS_MOUNTED if status.st_uid == 0 and not is_own else _OTHERS
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & others:
        return
    if status.st_mode & _EVERYBODY_EXECUTES == _EVERYBODY_EXECUTES:
        return
    if (status.st_uid == 0 and os.statvfs(path).f_flag & os.ST_RDONLY) or _is_shut(path):
        return
    raise OptionError(
        f"others can read the {content} in {displayed} (mode {status.st_mode & 0o777:o}): set it to 600 "
        f"(chmod 600), and choose another {content} if another user may have read it"
    )


def make_data_directory(path: Path) -> None:
    """Make the data directory of a broker, accessible to its owner only, if it does not exist.

    Raises `OptionError` when that fails, and for an existing directory that others may enter or its group may write to,
    unless a directory above it is closed to others.
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
        f"chmod 700 {path} (750 where readers of its group are on this machine), and start again. "
        "If it is the root of a volume of another user, use a directory in it"
    )


def _is_shut(path: Path) -> bool:
    """Whether only its owner can enter one of the directories above."""
    return any(not above.stat().st_mode & 0o011 for above in path.resolve().parents)

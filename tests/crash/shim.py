"""The shim (shim.c): its build, and its control at run time."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from enum import IntFlag
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

_FIELDS = (
    *("operations", "kill_at", "kill_torn", "kinds", "after", "count", "error", "torn", "failed"),
    *("slow", "slow_us", "clock_s"),
)
_PATH = 92
_SIZE = 4 * len(_FIELDS) + _PATH


class Kind(IntFlag):
    """Operations that can be made to fail. A full disk fails those that need room: WRITE, CREATE and NAME."""

    WRITE = 1
    SYNC = 2
    CREATE = 4
    NAME = 8
    REMOVE = 16
    READ = 32


ROOM = Kind.WRITE | Kind.CREATE | Kind.NAME
EVERYTHING = Kind(63)


def build(place: Path) -> Path:
    """Compile the shim into a directory. Raises `RuntimeError` without a compiler, or if it fails."""
    if COMPILER is None:
        raise RuntimeError("there is no C compiler; install gcc (apt-get install gcc libc6-dev)")
    library = place / "shim.so"
    command = [
        COMPILER,
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(SOURCE),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"the shim does not compile:\n{made.stderr}")
    return library


class Control:
    """The control of the shim of one process, in shared memory. Changes apply from its next operation on."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)

    def __getitem__(self, name: str) -> int:
        value: int = struct.unpack_from("<I", self._memory, 4 * _FIELDS.index(name))[0]
        return value

    def __setitem__(self, name: str, value: int) -> None:
        struct.pack_into("<I", self._memory, 4 * _FIELDS.index(name), value & 0xFFFFFFFF)

    def kill(self, number: int, *, torn: bool = False) -> None:
        """SIGKILL before the operation of this number, counted from the start; a write is half done then, if `torn`."""
        self["kill_torn"] = torn
        self["kill_at"] = number

    def fail(
        self, kinds: Kind, error: int, *, after: int = 0, count: int = 0xFFFFFFFF, path: str = ""
    ) -> None:
        """Make `count` operations fail with `error`, after `after` successful ones, on files with `path` in their
        names.
        """
        name = path.encode()
        assert len(name) < _PATH
        self["count"] = 0
        self._memory[4 * len(_FIELDS) : _SIZE] = name.ljust(_PATH, b"\0")
        self["error"], self["after"], self["torn"], self["kinds"] = error, after, 1, kinds
        self["count"] = count

    def slow(self, kinds: Kind, us: int | None) -> None:
        """Delay each of these operations by `us` microseconds; None: until they are not slow any more."""
        self["slow_us"] = 0xFFFF0000 if us is None else us
        self["slow"] = kinds

    def work(self) -> int:
        """End the failures; returns the number of failed operations."""
        self["count"] = 0
        return self["failed"]

    def close(self) -> None:
        self._memory.close()

"""The machine's memory, before something is measured. Linux only; elsewhere nothing is done.

A virtual machine may fetch a page from its host at the first touch, and give it back once it was free for a second or
two. A page of a new file costs several times as much then, and a process that gets pages that another one freed a
moment ago seems that much faster. So free memory is touched first, for all sides alike: the system keeps it as cache of
a file of holes, which it gives to the next process, as a machine that has been at work for a day gives the
cache of what it read last.

What a side has written and not synced is written by the system half a minute later, in another side's time. So it is
synced first, too.

And what a side is about to read is read once before. The files of several sides may be more than the memory holds, and
the system may take away pages that were not read for a minute: the disk would be measured.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psutil

BLOCK = 16 << 20
FETCHED_S = 0.01
"""A block that takes this long had to be fetched; the machine's own takes a third of it."""
ENOUGH = 1 << 30
"""So many octets in a row that had not: then what comes next has not, either."""


class Holes(Protocol):
    """A file of nothing, larger than the machine's memory."""

    def read(self) -> None:
        """The next block, which is not in memory."""

    def free(self) -> int:
        """Octets of free memory."""


class Memory:
    """Touches free memory. It looks at little of it as long as none had to be fetched."""

    def __init__(self, holes: Holes, most: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._holes = holes
        self._most = most
        self._clock = clock
        self._fetches = False

    def settle(self) -> int:
        """Until nothing is left that has to be fetched, or `most` octets were read: how many were. No more than a
        block beyond what is free: that would cost the system what it has read of the files to be measured.
        """
        free = self._holes.free()
        read = own = 0
        while read < min(self._most, free) and (own < ENOUGH or self._fetches):
            began = self._clock()
            self._holes.read()
            fetched = self._clock() - began >= FETCHED_S
            self._fetches = self._fetches or fetched
            own = 0 if fetched else own + BLOCK
            read += BLOCK
        return read


class SparseFile:
    """Holes without a name in `place`; they take no room on its disk."""

    def __init__(self, place: Path, size: int) -> None:
        self._file, name = tempfile.mkstemp(dir=place)
        Path(name).unlink()
        os.truncate(self._file, size)
        self._size = size
        self._block = bytearray(BLOCK)
        self._at = 0

    def read(self) -> None:
        """Round and round: where it begins again the system has forgotten it."""
        os.preadv(self._file, [self._block], self._at)
        self._at = (self._at + BLOCK) % self._size

    def free(self) -> int:
        """As the system says."""
        return int(psutil.virtual_memory().free)

    def close(self) -> None:
        """The system forgets what it had of it."""
        os.close(self._file)


_here: list[Memory] = []


@contextmanager
def touched(place: Path) -> Iterator[None]:
    """Within the block `settle` touches this machine's memory, by a file in `place`. All of it now: later the system
    would forget what is yet to be read, for it is older.
    """
    if sys.platform != "linux":
        yield
        return
    total = psutil.virtual_memory().total
    holes = SparseFile(place, 4 * total)
    _here.append(Memory(holes, total))
    settle()
    try:
        yield
    finally:
        _here.clear()
        holes.close()


def fetch(files: Iterable[Path]) -> None:
    """What is about to be read comes into memory; nothing outside of `touched`."""
    if not _here:
        return
    block = bytearray(BLOCK)
    for path in files:
        # A log may lose a segment meanwhile.
        with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
            while file.readinto(block):
                pass


def settle() -> None:
    """Before something is timed; nothing outside of `touched`."""
    for memory in _here:
        os.sync()
        memory.settle()

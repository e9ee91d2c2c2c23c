"""The machine's memory before a measurement. Linux only; on other systems nothing is done.

A virtual machine may fetch a page from its host at the first touch, and return it after one or two seconds without
use. A page of a new file then costs several times as much, and a process that gets recently freed pages seems faster
by that factor. So free memory is touched first, for all sides alike. The system keeps it as the cache of a file of
holes and gives it to the next process, as it does on a machine that has worked for a day.

Unsynced data of one side would be written by the system half a minute later, during another side's time. So it is
synced first.

The data that a side is about to read is read once before. The files of several sides may be larger than the memory,
and the system may drop pages that were not read for a minute: then the disk would be measured.
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
"""A block that takes this long had to be fetched from the host; one in the machine's own memory takes a third of it.
"""
ENOUGH = 1 << 30
"""After so many octets in a row without a fetch, the rest of the memory needs none either."""


class Holes(Protocol):
    """A file of holes, larger than the machine's memory."""

    def read(self) -> None:
        """Read the next block, which is not in memory."""

    def free(self) -> int:
        """Octets of free memory."""


class Memory:
    """Touches free memory. As long as no block had to be fetched, it reads only a few."""

    def __init__(self, holes: Holes, most: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._holes = holes
        self._most = most
        self._clock = clock
        self._fetches = False

    def settle(self) -> int:
        """Read until no block has to be fetched, or `most` octets were read; returns their number. It reads at most a
        block more than is free: more would evict the cached files that are to be measured.
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
    """An unnamed file of holes in `place`; it takes no space on the disk."""

    def __init__(self, place: Path, size: int) -> None:
        self._file, name = tempfile.mkstemp(dir=place)
        Path(name).unlink()
        os.truncate(self._file, size)
        self._size = size
        self._block = bytearray(BLOCK)
        self._at = 0

    def read(self) -> None:
        """Read in a circle: at the second round the system has dropped the first blocks."""
        os.preadv(self._file, [self._block], self._at)
        self._at = (self._at + BLOCK) % self._size

    def free(self) -> int:
        """The free memory that the system reports."""
        return int(psutil.virtual_memory().free)

    def close(self) -> None:
        """Have the system drop its cache of the file."""
        os.close(self._file)


_here: list[Memory] = []


@contextmanager
def touched(place: Path) -> Iterator[None]:
    """Within the block `settle` touches this machine's memory, by a file in `place`. At the start all of it is
    touched: later the system would drop older pages that are still to be read.
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
    """Read the files that are about to be read into memory; does nothing outside of `touched`."""
    if not _here:
        return
    block = bytearray(BLOCK)
    for path in files:
        # A log may lose a segment at the same time.
        with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
            while file.readinto(block):
                pass


def settle() -> None:
    """To be called before a timing; does nothing outside of `touched`."""
    for memory in _here:
        os.sync()
        memory.settle()

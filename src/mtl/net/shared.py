"""Memory that a broker lends to a writer on its machine, so that packs need not pass a socket (PROTOCOL.md 5.7).

The broker makes an anonymous memory file of fixed size and sends its path in /proc, which only processes of the same
user (or of root) can open. The broker opens no file that a writer names. A writer opens only a memory file with the
key of its lease.

The broker copies a pack before it checks the pack: the writer can change the memory at any time, also between a check
and a use. A pack that was checked in place and changed afterwards ended the broker's process by SIGSEGV.

The writer locks the memory file as long as its process has it open, and sets a mark in the memory. If the mark is
set and the lock is free, the writer was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path

from mtl.errors import Malformed
from mtl.limits import MAX_PACK, PACK_OVERHEAD
from mtl.net.limits import SHARED_MEMORY
from mtl.wire.control import SharedMemory
from mtl.wire.ranges import SHARED_FROM, Span

_NAME = "mtl-packs"
_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL")
"""Fix the size of the file: access to memory after its end would end the process by SIGBUS."""

_KEY = 32
"""Octets of the key at the beginning; the mark follows it."""
_IN_USE = 1
"""The mark that a writer sets once it holds the lock."""


class Lent:
    """The broker's side: memory for one lease, which lives until it is closed."""

    def __init__(self, size: int = SHARED_MEMORY) -> None:
        """Raises `OSError` where the system does not support such memory or has too little of it."""
        if not all(hasattr(fcntl, seal) for seal in _SEALS) or not hasattr(os, "memfd_create"):
            raise OSError("this system has no sealed memory files")
        key = os.urandom(_KEY // 2).hex()
        self._fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, size)
            os.pwrite(self._fd, key.encode(), 0)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _seals())
            self._octets = memoryview(mmap.mmap(self._fd, size, prot=mmap.PROT_READ))
        except OSError:
            os.close(self._fd)
            raise
        self.place = SharedMemory(file=f"/proc/{os.getpid()}/fd/{self._fd}", size=size, key=key)

    def octets(self, span: Span) -> bytes:
        """A copy of the octets of `span`. Malformed when `span` is outside the memory or larger than a pack."""
        if not SHARED_FROM <= span.offset <= span.offset + span.size <= len(self._octets):
            raise Malformed(f"{span.size} octets at {span.offset} of a shared memory of {len(self._octets)}")
        if span.size > MAX_PACK + PACK_OVERHEAD:
            raise Malformed(f"a pack of {span.size} octets")
        return self._octets[span.offset : span.offset + span.size].tobytes()

    def is_abandoned(self) -> bool:
        """Whether a writer has used the memory and its process has ended."""
        if self._octets[_KEY] != _IN_USE:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return True

    def close(self) -> None:
        """Close the memory file: writers cannot open it any more."""
        os.close(self._fd)


def borrow(place: SharedMemory) -> mmap.mmap | None:
    """The writer's side: the memory that a broker offers. None when this process cannot open it, because the broker is
    in another container or belongs to another user.
    """
    with contextlib.suppress(OSError, ValueError):
        # If the broker is in another container, the path is another file here: check it before opening, which may wait.
        if not str(Path(place.file).readlink()).startswith(f"/memfd:{_NAME}"):
            return None
        fd = os.open(place.file, os.O_RDWR | os.O_CLOEXEC)
        try:
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _seals() == _seals()
            known = os.pread(fd, len(place.key), 0) == place.key.encode()
            if sealed and known and os.fstat(fd).st_size == place.size > SHARED_FROM:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                memory = mmap.mmap(fd, place.size)  # mmap duplicates the descriptor, which keeps the lock
                memory[_KEY] = _IN_USE
                return memory
        finally:
            os.close(fd)
    return None


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

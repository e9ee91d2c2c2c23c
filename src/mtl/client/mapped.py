"""Octets of a file as memory that is not copied, where the system says beforehand whether they can be read.

Touching a page of a mapping that cannot be read ends the process by SIGBUS. So pages are brought in first, by a request
that fails as `read` does (MADV_POPULATE_READ, Linux 5.14), and whoever has no such system copies instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import pyarrow as pa

from mtl.limits import LOCAL_WINDOW
from mtl.wire.packs import ArrowBuffer

_MADV_POPULATE_READ = 22
"""Of <linux/mman.h>; Python's mmap knows no name for it, and would keep other threads waiting for the disk."""

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class MappedFile:
    """The open file `fd`, which becomes this one's to close, and the part of it that was mapped last: packs follow each
    other.

    What it gave out stays valid when it is closed. Each part that is in use costs a file descriptor.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._start = self._end = 0
        self._window: ArrowBuffer = None

    def octets(self, offset: int, size: int) -> ArrowBuffer:
        """`size` octets from `offset` on. OSError when they cannot be read, or not in this way; EOFError when the file
        ends before.
        """
        if not self._start <= offset <= offset + size <= self._end:
            self._map(offset, size)
        found = self._window.slice(offset - self._start, size)
        page = found.address % mmap.PAGESIZE
        if _madvise(found.address - page, size + page, _MADV_POPULATE_READ):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return found

    def _map(self, offset: int, size: int) -> None:
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        end = min(os.fstat(self.fd).st_size, max(start + LOCAL_WINDOW, offset + size))
        if end < offset + size:
            raise EOFError
        try:
            mapped = mmap.mmap(self.fd, end - start, prot=mmap.PROT_READ, offset=start)
        except ValueError as error:
            raise EOFError from error  # it was cut since we looked
        self._window = pa.py_buffer(mapped)
        self._start, self._end = start, end

    def close(self) -> None:
        """Close the file; what was given out stays."""
        os.close(self.fd)
        self._window, self._start, self._end = None, 0, 0

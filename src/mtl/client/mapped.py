"""Maps octets of a file into memory without a copy, on systems that can check first that they are readable.

Access to an unreadable page of a mapping ends the process by SIGBUS. So pages are loaded first, by a system call that
fails like `read` (MADV_POPULATE_READ, Linux 5.14); on other systems callers copy instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import pyarrow as pa

from mtl.client.limits import LOCAL_WINDOW
from mtl.wire.packs import ArrowBuffer

_MADV_POPULATE_READ = 22
"""From <linux/mman.h>. Python's mmap has no name for it, and its madvise would block other threads (the GIL)."""

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class MappedFile:
    """The open file `fd`, which this object closes, and the window of it that was mapped last: packs follow each other.

    Returned buffers stay valid after `close`. Each window in use takes a file descriptor.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._start = self._end = 0
        self._window: ArrowBuffer = None

    def octets(self, offset: int, size: int) -> ArrowBuffer:
        """`size` octets from `offset` on. OSError if they cannot be read, or the system lacks MADV_POPULATE_READ;
        EOFError if the file ends before.
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
            raise EOFError from error  # the file was truncated since fstat
        self._start = self._end = 0  # until the window is the other one, in case this is interrupted
        self._window = pa.py_buffer(mapped)
        self._start, self._end = start, end

    def close(self) -> None:
        """Close the file; returned buffers stay valid."""
        os.close(self.fd)
        self._window, self._start, self._end = None, 0, 0

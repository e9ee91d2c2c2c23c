"""Encodes packs into memory that a writer shares with a broker on its machine (PROTOCOL.md 5.7), instead of sending.

A pack keeps its space as long as it is referenced; the writer references it until it is confirmed. The lowest free
space is used first, so that few pages of memory are touched.
"""

from __future__ import annotations

import mmap
from bisect import insort
from collections import deque

import pyarrow as pa

from mtl.net.shared import borrow
from mtl.wire.control import SharedMemory
from mtl.wire.packs import ArrowBuffer, RecordBatch, batch_size, encode_batch_into
from mtl.wire.ranges import SHARED_FROM, Span

_ALIGNMENT = 64
"""Arrow's own alignment of memory."""


class Allocator:
    """The allocation of a memory. `free` may be called at any time, in any thread, by a finalizer."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin = begin
        self._end = end
        self._allocated: list[tuple[int, int]] = []
        self._freed: deque[int] = deque()

    def allocate(self, size: int) -> int | None:
        """Allocate the lowest free space of `size` octets, and return its start; None if there is none."""
        while self._freed:
            free = self._freed.popleft()
            self._allocated = [span for span in self._allocated if span[0] != free]
        begin = self._begin
        for start, end in self._allocated:
            if start - begin >= size:
                break
            begin = end
        after = begin + size + -size % _ALIGNMENT
        if after > self._end:
            return None
        insort(self._allocated, (begin, after))
        return begin

    def free(self, begin: int) -> None:
        """Free the space that begins at `begin`."""
        self._freed.append(begin)


class _Allocation:
    """Owns the space of one pack: frees it when it is deleted, and keeps the memory until then."""

    __slots__ = ("_allocator", "_begin", "_memory")

    def __init__(self, begin: int, allocator: Allocator, memory: mmap.mmap) -> None:
        self._begin = begin
        self._allocator = allocator
        self._memory = memory

    def __del__(self) -> None:
        self._allocator.free(self._begin)


class SharedPacks:
    """The memory of one lease. Not thread-safe, except `span`."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._view = memoryview(memory)
        self._address: int = pa.py_buffer(memory).address
        self._allocator = Allocator(SHARED_FROM, len(memory))

    @classmethod
    def of(cls, place: SharedMemory | None) -> SharedPacks | None:
        """The memory that a lease offers; None if it offers none, or this process cannot open it."""
        memory = borrow(place) if place is not None else None
        return cls(memory) if memory is not None else None

    def encode(self, batch: RecordBatch, max_pack: int) -> ArrowBuffer | None:
        """Encode a batch of SCHEMA as a pack in this memory; None if there is no room. Errors as `encode_batch`."""
        size = batch_size(batch)
        begin = self._allocator.allocate(size)
        if begin is None:
            return None
        kept = _Allocation(begin, self._allocator, self._memory)
        at, octets = encode_batch_into(self._view[begin : begin + size], batch, max_pack)
        return pa.foreign_buffer(self._address + begin + at, octets, kept)

    def span(self, body: object) -> Span | None:
        """The span of a body in this memory; None if it is elsewhere."""
        if not isinstance(body, pa.Buffer):
            return None
        offset = body.address - self._address
        return Span(offset, body.size) if 0 <= offset < len(self._view) else None

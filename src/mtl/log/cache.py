"""The memory of readers, bounded over all logs: indexes, and the bodies appended last. Any thread uses it."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

from mtl.log.limits import INDEX_CACHE_BYTES, TAIL_BYTES

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Owner(Protocol):
    """An owner of an index, which can be dropped and read again. Nothing is kept for one that is `removed`."""

    removed: bool

    def drop_index(self) -> None: ...


class ReadCache:
    """`tail_bytes`, `index_bytes`: octets, see limits."""

    def __init__(self, tail_bytes: int = TAIL_BYTES, index_bytes: int = INDEX_CACHE_BYTES) -> None:
        self._tail_limit = tail_bytes
        self._index_limit = index_bytes
        self._lock = threading.Lock()
        """Held for all but the tail, which only one thread changes."""
        self._indexes: OrderedDict[Owner, int] = OrderedDict()
        self._index_bytes = 0
        self._read: weakref.WeakValueDictionary[tuple[Owner, int], memoryview] = weakref.WeakValueDictionary()
        self._tail: OrderedDict[tuple[Hashable, int], Buffer] = OrderedDict()
        self._tail_bytes = 0

    def drop_owner(self, owner: Owner) -> None:
        """The file of an owner is removed, or not shown any more: drop its index."""
        with self._lock:
            self._forget_index(owner)

    # --- bodies that were read ------------------------------------------------------------------------------

    def read_body(self, owner: Owner, base: int) -> memoryview | None:
        """The body at sequence `base`, if it was read before and is still in use."""
        with self._lock:
            return self._read.get((owner, base))

    def share_body(self, owner: Owner, base: int, body: memoryview) -> memoryview:
        """Share a body that was read, for as long as it is in use. Returns another copy that is shared already."""
        with self._lock:
            return self._read.setdefault((owner, base), body)

    # --- indexes --------------------------------------------------------------------------------------------

    def keep_index(self, owner: Owner, size: int) -> None:
        """`owner` has loaded an index of `size` octets; the least recently used owners may have to drop theirs."""
        with self._lock:
            self._forget_index(owner)
            if owner.removed:
                owner.drop_index()
                return
            self._indexes[owner] = size
            self._index_bytes += size
            while self._index_bytes > self._index_limit and len(self._indexes) > 1:
                dropped, size = self._indexes.popitem(last=False)
                self._index_bytes -= size
                dropped.drop_index()

    def use_index(self, owner: Owner) -> None:
        with self._lock:
            if owner in self._indexes:
                self._indexes.move_to_end(owner)

    def forget_index(self, owner: Owner) -> None:
        with self._lock:
            self._forget_index(owner)

    def _forget_index(self, owner: Owner) -> None:
        self._index_bytes -= self._indexes.pop(owner, 0)

    # --- the tail -------------------------------------------------------------------------------------------

    def keep_body(self, owner: Hashable, base: int, body: Buffer) -> None:
        """Keep a body that `owner` just appended at sequence `base`, for readers at the end of the log."""
        size = memoryview(body).nbytes
        if size > self._tail_limit:
            return
        self._tail[owner, base] = body
        self._tail_bytes += size
        while self._tail_bytes > self._tail_limit:
            _, oldest = self._tail.popitem(last=False)
            self._tail_bytes -= memoryview(oldest).nbytes

    def body(self, owner: Hashable, base: int) -> Buffer | None:
        return self._tail.get((owner, base))

    def forget_bodies(self, owner: Hashable, start: int = 0) -> None:
        """Drop the bodies of `owner` from sequence `start` on."""
        for key in [key for key in self._tail if key[0] is owner and key[1] >= start]:
            self._tail_bytes -= memoryview(self._tail.pop(key)).nbytes

"""The memory of readers, bounded over all logs: mappings, indexes, and the bodies appended last.

Belongs to one thread, as all readers of one broker do.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

from mtl.log.files import Mapped
from mtl.log.limits import GHOST_BYTES, INDEX_CACHE_BYTES, MAPPED_SEGMENTS, TAIL_BYTES

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Droppable(Protocol):
    """An owner of an index, which can be dropped and read again."""

    def drop_index(self) -> None: ...


class ReadCache:
    """`mapped_segments`: mappings at a time; `tail_bytes`, `index_bytes`, `ghost_bytes`: octets, see limits."""

    def __init__(
        self,
        mapped_segments: int = MAPPED_SEGMENTS,
        tail_bytes: int = TAIL_BYTES,
        index_bytes: int = INDEX_CACHE_BYTES,
        ghost_limit: int = GHOST_BYTES,
    ) -> None:
        self._mapped_segments = mapped_segments
        self._tail_limit = tail_bytes
        self._index_limit = index_bytes
        self._ghost_limit = ghost_limit
        self._maps: OrderedDict[Hashable, tuple[Mapped, int]] = OrderedDict()
        self._lent: list[tuple[Hashable, weakref.ref[Mapped], int]] = []
        self._ghosts: list[tuple[weakref.ref[Mapped], int]] = []
        self._indexes: OrderedDict[Droppable, int] = OrderedDict()
        self._index_bytes = 0
        self._tail: OrderedDict[tuple[Hashable, int], Buffer] = OrderedDict()
        self._tail_bytes = 0

    # --- mappings -------------------------------------------------------------------------------------------

    @property
    def mapped_bytes(self) -> int:
        """Octets of the mappings that are kept."""
        return sum(length for _, length in self._maps.values())

    @property
    def ghost_bytes(self) -> int:
        """Octets of removed files whose space is not free, because a frame in flight refers to a mapping."""
        self._ghosts = [ghost for ghost in self._ghosts if ghost[0]() is not None]
        return sum(length for _, length in self._ghosts)

    @property
    def may_map(self) -> bool:
        return not self._ghosts or self.ghost_bytes < self._ghost_limit

    def mapping(self, key: Hashable) -> Mapped | None:
        found = self._maps.get(key)
        if found is None:
            return None
        self._maps.move_to_end(key)
        return found[0]

    def keep_mapping(self, key: Hashable, mapped: Mapped, length: int) -> None:
        self._maps[key] = mapped, length
        while len(self._maps) > self._mapped_segments:
            oldest, (evicted, size) = self._maps.popitem(last=False)
            self._lent = [lent for lent in self._lent if lent[1]() is not None]
            self._lent.append((oldest, weakref.ref(evicted), size))

    def drop_mapping(self, key: Hashable) -> None:
        """The file is removed: count its mapping as a ghost for as long as a frame refers to it."""
        found = self._maps.pop(key, None)
        if found is not None:
            self._lent.append((key, weakref.ref(found[0]), found[1]))
            del found
        self._ghosts += [(mapped, length) for owner, mapped, length in self._lent if owner is key]
        self._lent = [lent for lent in self._lent if lent[0] is not key]

    # --- indexes --------------------------------------------------------------------------------------------

    def keep_index(self, owner: Droppable, size: int) -> None:
        """`owner` has loaded an index of `size` octets; the least recently used owners may have to drop theirs."""
        self.forget_index(owner)
        self._indexes[owner] = size
        self._index_bytes += size
        while self._index_bytes > self._index_limit and len(self._indexes) > 1:
            dropped, size = self._indexes.popitem(last=False)
            self._index_bytes -= size
            dropped.drop_index()

    def use_index(self, owner: Droppable) -> None:
        if owner in self._indexes:
            self._indexes.move_to_end(owner)

    def forget_index(self, owner: Droppable) -> None:
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

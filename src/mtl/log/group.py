"""A group of chunks for the newest segment: written together, synced once, all or none of them kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mtl.log.change import ChunkRef
from mtl.log.chunk import ChunkPlace, NewChunk, encode
from mtl.log.files import write_fully
from mtl.log.recovery import Active
from mtl.log.segment import Entry

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ROOM = 32 << 10
"""Octets of zeros after a small group: room for about seventy contents of 100 octets that come one by one. A larger
room would enlarge every log with few contents."""

_SMALL = _ROOM // 8
"""Largest group, in octets, that is followed by zeros: after larger ones, zeros would be a good part of all writes."""

_PAGE = 4 << 10

WRITE_AHEAD = 1 << 20
"""Octets of a group at which the disk starts to write them: fewer would cause many small requests, more would delay the
first request."""


class Group:
    """Begins at the end of `active`, with sequence `first`; all chunks get the append time `time_us`.

    Nothing of the active segment's state changes before `add_to_index`. `sync`: it is synced before that.
    """

    def __init__(self, active: Active, first: int, time_us: int, *, sync: bool) -> None:
        self.active = active
        self.sync = sync
        self.first = self.next = first
        self.time_us = time_us
        self.start = self.end = active.index.length
        self.entries: list[Entry] = []
        self.refs: list[ChunkRef] = []
        self._waiting: list[Buffer] = []
        self._written = self.start

    def add(self, chunk: NewChunk) -> None:
        place = self._place()
        self._waiting += encode(chunk, place)
        self._count(place, chunk.count, chunk.size, len(chunk.runs), chunk.stored)

    def write_all(self, chunks: Iterable[NewChunk]) -> None:
        """Add all chunks of the group, and write them. OSError: as for `write`."""
        for chunk in chunks:
            self.add(chunk)
            self.write_ahead()
        self.write()

    def write_ahead(self) -> None:
        """Write the waiting chunks if they have WRITE_AHEAD octets: the disk starts before the group is complete."""
        at, waiting = self._written, self.end - self._written
        if waiting < WRITE_AHEAD:
            return
        self.write()
        if self.sync:
            self.active.file.begin_sync(at, waiting)

    def write(self) -> None:
        """Write the waiting chunks. OSError: the segment must be cut back to `start`."""
        waiting, self._waiting = self._waiting, []
        room = self._room()
        if room > self.end:
            waiting.append(bytes(room - self.end))
        write_fully(self.active.file, waiting, self._written)
        self._written = self.end
        self.active.room = max(self.active.room, room)

    def _room(self) -> int:
        """The new end of the file. After a small group there are zeros as room for the next ones: a sync within the
        file took 120 us, a sync of a growing file 190 us. Not after the first group, which may be the only one.
        """
        active = self.active
        large = self.end - self.start > _SMALL
        if large or self.end <= active.room or not len(active.index):
            return self.end
        return (self.end + _ROOM) // _PAGE * _PAGE

    def add_to_index(self) -> None:
        """Add the group to the index: it was written, and synced if necessary."""
        index = self.active.index
        for entry in self.entries:
            index.add(entry)

    def _place(self) -> ChunkPlace:
        active = self.active
        header = active.header
        return ChunkPlace(
            self.next - header.base, self.time_us - header.time, self.end, active.durable, header.salt
        )

    def _count(self, place: ChunkPlace, count: int, body: int, runs: int, stored: int) -> None:
        at = len(self.active.index) + len(self.entries)
        base = self.active.base
        self.refs.append(ChunkRef(self.next, count, self.time_us, body, stored, base, place.offset, at))
        self.end += stored
        self.next += count
        self.entries.append(Entry(place.offset, place.time, count, body, runs, self.end))

"""Chunks on their way into the newest segment: written together, synced once, kept all or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtl.log.change import ChunkRef
from mtl.log.chunk import NewChunk, Place, encode
from mtl.log.files import write_fully
from mtl.log.recovery import Active
from mtl.log.scan import Found
from mtl.log.segment import Entry

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ROOM = 32 << 10
"""Octets of zeros behind a small group: room for some seventy contents of 100 octets that come one by one. It is not
more, for a log that gets few is larger by as much."""

_SMALL = _ROOM // 8
"""What a group may have for that: more, and zeros would be a good part of all that is written."""

_PAGE = 4 << 10

WRITE_AHEAD = 1 << 20
"""What a group has before the disk begins with it: less would be many small requests, more would let it wait longer for
the first of them."""


class Group:
    """Begins at the end of `active`, with sequence `first`; all chunks get the append time `time_us`.

    Nothing of the active segment's state changes before `keep`. `sync`: it is synced before that.
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

    def add_copy(self, found: Found) -> None:
        """A chunk of a stage, without its runs: a stage's numbers mean nothing here."""
        self.add(NewChunk(found.header.contents, found.body()))

    def write_ahead(self) -> None:
        """Write what is waiting if it is much. The disk begins with it while the rest of the group is still to come."""
        at, waiting = self._written, self.end - self._written
        if waiting < WRITE_AHEAD:
            return
        self.write()
        if self.sync:
            self.active.file.begin_sync(at, waiting)

    def write(self) -> None:
        """Write what is waiting. OSError: the segment must be cut back to `start`."""
        waiting, self._waiting = self._waiting, []
        room = self._room()
        if room > self.end:
            waiting.append(bytes(room - self.end))
        write_fully(self.active.file, waiting, self._written)
        self._written = self.end
        self.active.room = max(self.active.room, room)

    def _room(self) -> int:
        """Where the file is to end. Behind a small group with zeros for those that follow: to sync what lies within a
        file took 120 us where a file that grew took 190. Not behind the first one, which may be the only one.
        """
        active = self.active
        large = self.end - self.start > _SMALL
        if large or self.end <= active.room or not len(active.index):
            return self.end
        return (self.end + _ROOM) // _PAGE * _PAGE

    def keep(self) -> None:
        """All of it is in the file, and synced if it has to be."""
        index = self.active.index
        for entry in self.entries:
            index.add(entry)

    def _place(self) -> Place:
        active = self.active
        header = active.header
        return Place(
            self.next - header.base, self.time_us - header.time, self.end, active.durable, header.salt
        )

    def _count(self, place: Place, count: int, body: int, runs: int, stored: int) -> None:
        at = len(self.active.index) + len(self.entries)
        base = self.active.base
        self.refs.append(ChunkRef(self.next, count, self.time_us, body, stored, base, place.offset, at))
        self.end += stored
        self.next += count
        self.entries.append(Entry(place.offset, place.time, count, body, runs, self.end))

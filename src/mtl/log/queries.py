"""Queries of the contents of a log, and their answers, as values.

A query is answered at once if everything it needs is in memory (`NotInMemory` otherwise), or by a `Snapshot`, which
reads the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from mtl.errors import StorageError
from mtl.log.change import ChunkRef

A_co = TypeVar("A_co", covariant=True)


class Asks(Generic[A_co]):
    """A query whose answer is an `A`."""

    __slots__ = ()


class NotInMemory(Exception):
    """The answer is not in memory: it has to be read."""


class Chunk(NamedTuple):
    """A chunk with its verified body, read-only, which stays valid after any change of the log. With a `place` it is
    the path of the file and the offset of the body in it instead, and `body` is empty.
    """

    ref: ChunkRef
    body: memoryview
    place: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Contents(Asks[tuple[Chunk, ...]]):
    """The chunks that hold [first, end): at most `most` chunks, and bodies up to the given octets, but at least one
    chunk.

    The answer is ascending and without gaps; it begins above `first` where retention removed
    contents, and is empty if none are left. With `place_from`, bodies of at least this number of octets are
    answered by their place.
    """

    first: int
    end: int
    octets: int
    most: int
    place_from: int | None = None


@dataclass(frozen=True, slots=True)
class ByTime(Asks[ChunkRef | None]):
    """The first chunk appended at or after `us` (µs since 1970); the clock is at `now_us` (stamps.py). None when
    all are older.
    """

    us: int
    now_us: int


@dataclass(frozen=True, slots=True)
class RangeFrom(Asks["Range"]):
    """The range from `start` on with at most the given contents and stored octets."""

    start: int
    contents: int | None = None
    octets: int | None = None


class Range(NamedTuple):
    """`end` is exclusive. A limit of octets rounds down to a whole chunk, but the chunk of the start is always within.
    `octets` are those of the chunks in the range, `time_us` the append time of the first one (None for no contents).
    """

    end: int
    octets: int
    time_us: int | None


@dataclass(frozen=True, slots=True)
class NewestTime(Asks[int | None]):
    """The append time (µs) of the newest content in the segment that begins at `base`, which
    `SegmentInfo.newest_time` has from then on. None when there is no such segment.
    """

    base: int


LogQuery: TypeAlias = Contents | ByTime | RangeFrom | NewestTime
Answer: TypeAlias = tuple[Chunk, ...] | ChunkRef | Range | int | None


def collect(
    query: Contents,
    earliest: int,
    find: Callable[[int], ChunkRef | None],
    read: Callable[[ChunkRef], Chunk],
) -> tuple[Chunk, ...]:
    """The answer to `Contents` of a log that begins at `earliest`. `find` gives the chunk that holds a sequence.

    An error after the first chunk ends the answer. The next query begins there, and has the error as its answer.
    """
    chunks: list[Chunk] = []
    octets = 0
    ref = find(max(query.first, earliest))
    while ref is not None and ref.base < query.end:
        octets += ref.size
        if chunks and (octets > query.octets or len(chunks) >= query.most):
            break
        try:
            chunks.append(read(ref))
            ref = find(ref.end)
        except StorageError:
            if not chunks:
                raise
            break
    return tuple(chunks)

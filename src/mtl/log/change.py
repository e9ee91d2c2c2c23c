"""Changes that a log's writer made durable, as immutable values. They are the only input of the log's reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from mtl.limits import SEGMENT_BYTES
from mtl.log.manifest import Epoch
from mtl.log.segment import Entry, SegmentHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

Durability = Literal["sync", "os"]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`segment_bytes`: octets at which a segment is sealed. `segment_age_s`: seconds after which one with contents
    is sealed too, None for never; without it retention by age never removes a slow log's contents. `durability`:
    "sync": an append returns when its contents are on the disk; "os": when the system has them; a crash of the
    machine may lose contents that were not synced yet.
    """

    segment_bytes: int = SEGMENT_BYTES
    segment_age_s: float | None = None
    durability: Durability = "sync"


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk of a log. `size`: octets of its body; `stored`: octets it takes in its file. `segment` (base), `offset`
    (octets) and `place` (in the index): where it is.
    """

    base: int
    count: int
    time_us: int
    size: int
    stored: int
    segment: int
    offset: int
    place: int

    @property
    def end(self) -> int:
        """The sequence after its last content."""
        return self.base + self.count


@dataclass(frozen=True, slots=True)
class StagePart:
    """One sealed segment of a stage: its path, contents, and octets."""

    path: str
    count: int
    bytes: int


class AdoptedSegment(NamedTuple):
    base: int
    contents: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Contents [first, next), in `chunks`, which take `bytes` octets. `new_headers`: of the segments begun for them.

    `bodies`: those of the chunks, for the reader's cache. `epoch`: the epoch that begins with these contents, None when
    they belong to the one before.
    """

    first: int
    next: int
    time_us: int
    chunks: tuple[ChunkRef, ...]
    bytes: int
    entries: tuple[Entry, ...]
    bodies: tuple[Buffer, ...]
    new_headers: tuple[SegmentHeader, ...] = ()
    epoch: Epoch | None = None


@dataclass(frozen=True, slots=True)
class Rolled:
    """The newest segment was sealed and others begun; none when there was nothing to seal."""

    new_headers: tuple[SegmentHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class Sealed:
    """The newest segment is complete; `next` is the sequence after it."""

    next: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A stage's segments are now contents [first, next) of the log, appended at `time_us`. `epoch` as in Appended."""

    first: int
    next: int
    time_us: int
    bytes: int
    segments: tuple[AdoptedSegment, ...]
    new_headers: tuple[SegmentHeader, ...]
    epoch: Epoch | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Contents from `next` on were removed, for the redo of a commit that no reader saw."""

    next: int
    new_headers: tuple[SegmentHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Segments wholly below `earliest` are removed. Not only the writer makes this value."""

    earliest: int


@dataclass(frozen=True, slots=True)
class Synced:
    """Durability "os": contents below `next` are durable."""

    next: int


Change: TypeAlias = Appended | Rolled | Sealed | Adopted | Cut | Trimmed | Synced

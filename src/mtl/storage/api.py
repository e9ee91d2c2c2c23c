"""The interface between the broker and a storage engine: actions and answers as values, and two protocols.

The core creates actions. The loop lets an engine perform them and returns every result by the action's `id`, in any
order. There are two guarantees. A log has at most one action under way at a time, besides any number of `Read`.
`Save` and `DropLogs` are performed in the order of their creation.

The answer to a failed action is its `StorageError`: no part of the action is stored that the broker may show. After
`LogStopped` the stored part is unknown, and the log accepts no contents until it is opened again. An engine also
answers with `LogStopped` when another broker has taken the log over: only contents that are certainly stored are
confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from mtl.errors import StorageError
from mtl.log.change import ChunkRef, LogOptions
from mtl.log.chunk import STAGE_WRITER, NewChunk, RunEntry
from mtl.log.manifest import History
from mtl.log.queries import (
    Answer,
    Asks,
    ByTime,
    Chunk,
    Contents,
    LogQuery,
    NewestTime,
    NotInMemory,
    Range,
    RangeFrom,
)
from mtl.log.retention import SegmentInfo
from mtl.storage.keys import LogKey
from mtl.storage.records import AnyRecord, RecordDamage, UserRecord
from mtl.wire.fields import Buffer

__all__ = [  # includes names of other modules that are part of this interface
    "STAGE_WRITER",
    "Answer",
    "Asks",
    "ByTime",
    "Chunk",
    "ChunkRef",
    "Contents",
    "History",
    "LogKey",
    "LogOptions",
    "LogQuery",
    "NewChunk",
    "NewestTime",
    "NotInMemory",
    "Range",
    "RangeFrom",
    "RunEntry",
    "SegmentInfo",
]

A_co = TypeVar("A_co", covariant=True)

# --- actions ------------------------------------------------------------------------------------------------


class Answered(Generic[A_co]):
    """An action with an `id`, whose result is an `A` or a `StorageError`."""

    __slots__ = ()


class Snapshot(Protocol):
    """A log at one moment, `earliest` included. The core only passes it on; the engine asks it, in any thread."""

    earliest: int

    def answer(self, query: LogQuery) -> Answer:
        """Read the answer. Raises `StorageError`."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A chunk to be appended that is yet to be packed: the bodies of plain contents, and their properties (None when
    none has any).
    """

    bodies: Sequence[Buffer]
    properties: Sequence[bytes] | None
    runs: tuple[RunEntry, ...]

    @property
    def count(self) -> int:
        """Contents."""
        return len(self.bodies)

    @property
    def size(self) -> int:
        """Octets of the bodies."""
        return sum(map(len, self.bodies))


@dataclass(frozen=True, slots=True)
class Prepare:
    """A large pack waits until its log is free: the engine may do preparations for it meanwhile. Not answered."""

    chunk: NewChunk


@dataclass(frozen=True, slots=True)
class CreateLog(Answered["LogView"]):
    """Make an empty log. Answer: its `LogView`. `owner` is kept with the log: the record that names it, from which
    a lost record can be restored (`records.encode_owner`). `share` is the user that it counts for: users take turns.
    """

    id: int
    log: LogKey
    options: LogOptions
    owner: bytes
    share: str = ""


@dataclass(frozen=True, slots=True)
class OpenLog(Answered["OpenedLog | None"]):
    """Open a log, also after a crash. Answer: an `OpenedLog`, or None for a staged log that was never made.

    `earliest` is that of the record, and the log of a resource keeps that record as its `owner`. With a `base` the log
    is cut back to there: a commit was interrupted, and no reader may see a part of that commit before it is repeated.
    """

    id: int
    log: LogKey
    options: LogOptions
    earliest: int | None
    base: int | None
    owner: bytes | None
    now_us: int


@dataclass(frozen=True, slots=True)
class Append(Answered["Changes"]):
    """Append one group, as durably as the options of the log say. Answer: `Changes`. Packs are kept as they are."""

    id: int
    log: LogKey
    drafts: Sequence[Draft | NewChunk]
    now_us: int


@dataclass(frozen=True, slots=True)
class Publish(Answered["Changes"]):
    """Put the contents of staged logs, in this order, at sequence `base` of `log`, durably. Answer: `Changes`. Fails
    unless they are `contents` in number.

    Repeatable: contents of an earlier attempt, at or above `base`, are removed first.
    """

    id: int
    log: LogKey
    base: int
    stages: Sequence[LogKey]
    contents: int
    now_us: int


@dataclass(frozen=True, slots=True)
class Trim(Answered["Changes"]):
    """Free the space of contents below `earliest`. Answer: `Changes`."""

    id: int
    log: LogKey
    earliest: int


@dataclass(frozen=True, slots=True)
class Roll(Answered["Changes"]):
    """Seal the newest segment because of its age. Answer: `Changes`."""

    id: int
    log: LogKey
    now_us: int


@dataclass(frozen=True, slots=True)
class Mark(Answered[bool]):
    """Record the end of an idle log durably. Answer: whether this was done."""

    id: int
    log: LogKey


@dataclass(frozen=True, slots=True)
class ForgetWriters(Answered["Changes"]):
    """Leave the numbers of these writers out of the log's table. Answer: `Changes`."""

    id: int
    log: LogKey
    writers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropLogs:
    """Remove these logs. Not answered; done again at the next start if it was not done."""

    logs: Sequence[LogKey]


@dataclass(frozen=True, slots=True)
class Save(Answered[None]):
    """Write these records and forget those, in one durable transaction. Answer: None."""

    id: int
    put: Sequence[AnyRecord]
    forget: Sequence[AnyRecord] = ()


@dataclass(frozen=True, slots=True)
class Read(Answered[Any]):
    """Answer a query about the contents of a log. Answer: that of the query.

    `snapshot` is the log when the query was asked. Reads never wait for other actions on the log. Contents
    that retention removed meanwhile cannot be read: the broker asks again when the log begins later than the snapshot.
    `share` is the user that asks: users take turns.
    """

    id: int
    log: LogKey
    snapshot: Snapshot
    query: LogQuery
    share: str = ""


WriterAction = Append | Publish | Trim | Roll | ForgetWriters
"""Actions that change an open log."""

LogAction = CreateLog | OpenLog | Mark | WriterAction
"""Actions on one log."""

AnsweredAction = LogAction | Save | Read
"""Actions that have an `id` and an answer."""

StorageAction = AnsweredAction | Prepare | DropLogs
"""Everything that an engine performs."""

# --- answers ------------------------------------------------------------------------------------------------

Change: TypeAlias = Any
"""A change that an action made to a log. Opaque: only the view of the same log can apply it."""

Changes = Sequence[Change]
"""For `LogView.apply`, in this order: the changes of an action, and before them those of the completed steps of actions
on this log that failed.
"""


class LogView(Protocol):
    """The broker's view of one log: contents [earliest, next). Belongs to the loop's thread, changes only there, by
    `apply` and `trim`, and never reads the disk.

    `bytes` is the room that the log takes, `last_time` the append time of its newest content in µs, `epoch` the id of
    this run's epoch, which begins with its first contents (None for a staged log). `history` are the epochs that have
    contents, ascending.
    """

    next: int
    earliest: int
    last_time: int
    bytes: int
    epoch: str | None

    @property
    def contents(self) -> int:
        """The number of contents."""

    @property
    def history(self) -> History:
        """See the class. Contents below the first epoch are older than the history."""

    def epoch_of(self, sequence: int) -> str | None:
        """The id of the epoch that appended a content; None when that is not known."""

    def tail(self, sequence: int) -> Chunk | None:
        """The chunk that holds `sequence`, if its body is in memory: contents that were appended a short time ago."""

    def place(self, chunk: Chunk) -> Chunk:
        """A chunk of the tail by its place. Asked only of an engine that has a `directory`."""

    def answer_from_memory(self, query: LogQuery) -> Answer:
        """The answer to a query. Raises `NotInMemory` when it has to be read (`Read`)."""

    def snapshot(self) -> Snapshot:
        """The log at this moment, for a `Read`."""

    def segments(self) -> Iterator[SegmentInfo]:
        """The parts that retention removes as a whole, oldest first."""

    def roll_due(self, too_old: Callable[[float], int], now_us: int) -> bool:
        """Whether a `Roll` is due, for contents that are to be removed by their age. `too_old` makes an age (s) the
        append time (µs) below which contents are older.
        """

    def apply(self, change: Change) -> None:
        """Take a change over; every change once, in order."""

    def trim(self, earliest: int) -> None:
        """Stop showing contents below `earliest`."""

    def close(self) -> None:
        """Release files and memory. Bodies that were read stay valid."""


OpenedLog = tuple[LogView, dict[int, int]]
"""A log that was opened, and its table of publishing numbers: writer id to the last number that is in the log."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Every record, and the unreadable ones."""

    records: Sequence[AnyRecord] = ()
    damages: Sequence[RecordDamage] = ()


class Seen(NamedTuple):
    """Changes without an action of the broker. `free` and `total` are octets for contents, `free` is None when it could
    not be measured. `users` are all users if another process changed one since the last measurement, otherwise None.
    """

    free: int | None
    total: int
    users: Sequence[UserRecord] | None


# --- the engine ---------------------------------------------------------------------------------------------


class Lane(NamedTuple):
    """A named group of `threads` threads that performs actions in order. With `together` all actions that wait are one
    batch, so that one group commit is enough.
    """

    name: str
    threads: int = 1
    together: bool = False


class Engine(Protocol):
    """A place for logs and records. `name` is for people; `directory` is where readers on this machine find the files
    that `LogView.place` names, None where there are none.
    """

    name: str
    directory: Path | None

    def restore(self) -> Restored:
        """Read the records; once, before anything else. Raises `StorageError`."""

    def lane(self, action: StorageAction) -> Lane:
        """The lane of an action. Which actions are performed at the same time follows from it."""

    def perform(self, actions: Sequence[StorageAction]) -> Sequence[object]:
        """Perform actions of one lane; blocks until all are done. The results in the same order, None for an action
        that is not answered. Called from several threads at once. Any exception is a bug.
        """

    def observe(self) -> Seen:
        """Return the changes from outside. Called on the lane of `Save`. Raises `StorageError`."""

    def close(self, closing: Callable[[LogKey], None]) -> dict[LogKey, StorageError]:
        """Make everything durable and release the engine's place. Returns the logs that may not be durable, and why;
        `closing` is called before each log.
        """

"""What the core asks of the world around it. The core only makes these; the loop (or a simulator) carries them out.

Sends are carried out in the order in which they were made. An action with an `id` is answered by one
`Broker.completed(id, result)`, in any order between logs; one log has at most one action at a time under way.

An action on a log is answered with the list of the log's changes, in order: its own, and before them those of the
completed steps of actions that failed. Or with the `StorageError` that it failed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mtl.broker.storage.records import AnyRecord
from mtl.log import ChunkRef, LogOptions, LogReader, NewChunk, RunEntry
from mtl.net.ports import Port
from mtl.protocol.sasl.scram import Verifier
from mtl.wire.commands import Buffer, Content

LogKey = str
"""Directory of a log below the data directory: `resources/<id>` or `stages/<stage>/<n>`."""


Peer = tuple[Port, bytes]
"""Where a data flow ends: the socket and the ROUTER identity on it."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time, as the loop read it: seconds that only grow, and microseconds since 1970 that may step forward or back.

    `boot_s` are seconds since the machine's boot that also count while it sleeps; None where `mono` does as well.
    """

    mono: float
    wall_us: int
    boot_s: float | None = None

    @property
    def since_boot(self) -> float:
        """What has passed since the boot, in seconds."""
        return self.mono if self.boot_s is None else self.boot_s


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a control request: the envelope as it came, then status and body."""

    envelope: tuple[bytes, ...]
    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Send one data command."""

    peer: Peer
    header: bytes
    body: Buffer


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send the contents first..last of a chunk to a reader, as one packed Content or unpacked one by one; or `told`, a
    packed Content that says where the chunk lies.

    The content sequence is the position, or with a `number` (of the first of them) a delivery number; the position
    travels in a property then, and `again` marks what may have been delivered before. When the peer's queue is full in
    between, the loop says so with `Broker.blocked(lease, sequence)`.
    """

    peer: Peer
    lease: str
    log: LogReader
    resource: str
    ref: ChunkRef
    first: int
    last: int
    packed: bool
    told: bool = False
    number: int | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Relay:
    """Send one content of the `test` profile; the loop gives it back when the peer's queue is full (`unsent`)."""

    peer: Peer
    lease: str
    content: Content


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
    """A large pack waits until its log is free: whatever can be done for it meanwhile may be done. Unanswered."""

    chunk: NewChunk


@dataclass(frozen=True, slots=True)
class CreateLog:
    """Make an empty log; answered with its `LogReader`. `owner` is kept with it: the record that names it, so that it
    can be made again (`records.encode_owner`).
    """

    id: int
    log: LogKey
    options: LogOptions
    owner: bytes


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Bring a log into order after whatever happened and open it; answered with its `LogReader` and its table of
    publishing numbers, or with None for a staged log that was never made.

    `earliest` is what its record says, and a resource's log keeps that record as its `owner`. With a `base` it is cut
    back to there: a commit was interrupted, and nobody is to see a part of it before it is done again.
    """

    id: int
    log: LogKey
    options: LogOptions
    earliest: int | None
    base: int | None
    owner: bytes | None
    now_us: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append one group, packs as they came among it, and sync it as the log's durability asks."""

    id: int
    log: LogKey
    drafts: Sequence[Draft | NewChunk]
    now_us: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Put the contents of staged logs, in this order, at sequence `base` of `log`. Fails unless they are `contents` in
    number.

    Repeatable: what an earlier attempt left at or above `base` is removed first.
    """

    id: int
    log: LogKey
    base: int
    stages: Sequence[LogKey]
    contents: int
    now_us: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Remove the segments below `earliest`."""

    id: int
    log: LogKey
    earliest: int


@dataclass(frozen=True, slots=True)
class Roll:
    """Seal the active segment because of its age."""

    id: int
    log: LogKey
    now_us: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Record where a log ends that has been idle, synced; answered with whether the disk took that."""

    id: int
    log: LogKey


@dataclass(frozen=True, slots=True)
class ForgetWriters:
    """Leave the numbers of these writers out of the log's table."""

    id: int
    log: LogKey
    writers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropLogs:
    """Close and remove these logs; unanswered, repeated at the next start if it did not get through."""

    logs: Sequence[LogKey]


@dataclass(frozen=True, slots=True)
class Save:
    """Write these records and forget those, in one durable transaction; answered with None."""

    id: int
    put: Sequence[AnyRecord]
    forget: Sequence[AnyRecord] = ()


@dataclass(frozen=True, slots=True)
class CheckPassword:
    """Find out whether a verifier is one of this password; answered with a bool, after milliseconds of work."""

    id: int
    password: str = field(repr=False)
    verifier: Verifier


WriterAction = Append | Publish | Trim | Roll | ForgetWriters
"""What changes a log that is there."""

LogAction = CreateLog | OpenLog | Mark | WriterAction
"""What is done to one log."""

Action = Reply | Send | Deliver | Relay | LogAction | Prepare | DropLogs | Save | CheckPassword

"""What the core asks of the world around it. The core only makes these; the loop (or a simulator) carries them out.

Sends are carried out in the order in which they were made. An action with an `id` is answered by one
`Broker.completed(id, result)`, in any order between logs; one log has at most one action at a time under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mtl.broker.records import AnyRecord
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
    """The time, as the loop read it: seconds that only grow, and microseconds since 1970 that may step back."""

    mono: float
    wall_us: int


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
    """Make an empty log; answered with its `LogReader`."""

    id: int
    log: LogKey
    options: LogOptions


@dataclass(frozen=True, slots=True)
class Append:
    """Append one group, packs as they came among it, and sync it as the log's durability asks; answered with the log's
    change.
    """

    id: int
    log: LogKey
    drafts: Sequence[Draft | NewChunk]
    now_us: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Put the contents of staged logs, in this order, at sequence `base` of `log`; answered with the log's change.

    Repeatable: what an earlier attempt left at or above `base` is removed first.
    """

    id: int
    log: LogKey
    base: int
    stages: Sequence[LogKey]
    now_us: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Remove the segments below `earliest`; answered with the log's change."""

    id: int
    log: LogKey
    earliest: int


@dataclass(frozen=True, slots=True)
class Roll:
    """Seal the active segment because of its age; answered with the log's change."""

    id: int
    log: LogKey
    now_us: int


@dataclass(frozen=True, slots=True)
class ForgetWriters:
    """Leave the numbers of these writers out of the log's table; answered with None."""

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


LogAction = CreateLog | Append | Publish | Trim | Roll | ForgetWriters
"""What is done to one log."""

Action = Reply | Send | Deliver | Relay | LogAction | Prepare | DropLogs | Save | CheckPassword

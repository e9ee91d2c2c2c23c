"""What the core asks of the world around it. The core only makes these; the loop (or a simulator) carries them out.

Sends are carried out in the order in which they were made. What is stored goes to the storage engine, whose actions and
answers are in `mtl.storage.api`. An action with an `id` is answered by one `Broker.completed(id, result)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mtl.net.ports import Port
from mtl.protocol.sasl.scram import Verifier
from mtl.storage.api import ChunkRef, LogView, StorageAction
from mtl.wire.commands import Buffer, Content

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
    log: LogView
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
class CheckPassword:
    """Find out whether a verifier is one of this password; answered with a bool, after milliseconds of work."""

    id: int
    password: str = field(repr=False)
    verifier: Verifier


Action = Reply | Send | Deliver | Relay | StorageAction | CheckPassword

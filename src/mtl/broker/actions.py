"""Actions: the core's requests to the loop. The core only creates them; the loop (or a simulator) carries them out.

Sends are carried out in the order in which they were made. Each has the `owner` for whom its octets count until they
are sent: a principal, or an empty name before a log-in. Requests to the disk go to the storage engine; its actions
and results are in `mtl.storage.api`. An action with an `id` is answered by one `Broker.completed(id, result)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mtl.net.ports import Port
from mtl.protocol.sasl.scram import Verifier
from mtl.storage.api import Answered, Chunk, StorageAction
from mtl.wire.commands import Content
from mtl.wire.fields import Buffer

Peer = tuple[Port, bytes]
"""The peer of a data flow: the socket, and the peer's ROUTER identity on it."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time, as the loop read it: `mono` in monotonic seconds, `wall_us` in microseconds since 1970, which may jump.

    `boot_s` are seconds since the machine's boot that also count while it sleeps; None where `mono` does so.
    """

    mono: float
    wall_us: int
    boot_s: float | None = None

    @property
    def since_boot(self) -> float:
        """Seconds since the machine's boot."""
        return self.mono if self.boot_s is None else self.boot_s


@dataclass(frozen=True, slots=True)
class SendReply:
    """Answer a control request: the envelope of the request, then status and body."""

    envelope: tuple[bytes, ...]
    frames: tuple[bytes, ...]
    owner: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send one data command."""

    peer: Peer
    header: bytes
    body: Buffer
    owner: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send the contents first..last of a chunk to a reader, as one packed Content or unpacked one by one. A chunk with
    a place is sent as a packed Content with that place instead of the octets.

    The content sequence is the position. With a `number` it is a delivery number, beginning with `number`; a property
    then has the position, and `again` marks contents that may have been delivered before. When the peer's queue becomes
    full the loop reports the first content that was not sent: `Broker.blocked(lease, sequence)`.
    """

    peer: Peer
    lease: str
    owner: str
    resource: str
    chunk: Chunk
    first: int
    last: int
    packed: bool
    number: int | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Relay:
    """Send one content of the `test` profile; the loop returns it when the peer's queue is full (`unsent`)."""

    peer: Peer
    lease: str
    owner: str
    content: Content


@dataclass(frozen=True, slots=True)
class CheckPassword(Answered[bool]):
    """Check a password against a verifier; answered after milliseconds of work."""

    id: int
    password: str = field(repr=False)
    verifier: Verifier


Action = SendReply | Send | Deliver | Relay | StorageAction | CheckPassword

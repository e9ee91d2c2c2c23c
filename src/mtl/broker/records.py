"""The low-rate state that outlives the broker: what kinds of records there are, and how they are kept as JSON.

Contents and publishing numbers live in the logs. Everything else that must survive a crash is one of these records,
written in transactions by the metadata store and read once, at the start.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from mtl.wire.control import Durability, Retention


class ResourceRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A resource. `log` names its directory; `earliest` is moved here, durably, before retention unlinks anything."""

    kind: ClassVar[str] = "resource"
    vhost: str
    name: str
    incarnation: str
    log: str
    durability: Durability = "sync"
    retention: Retention | None = None
    earliest: int = 1
    dead_letter: str | None = None
    max_deliveries: int | None = None

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return msgspec.json.encode([self.vhost, self.name]).decode()


class CursorRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A group's durable position: the next content it has not confirmed. `epoch` counts the holders it has had."""

    kind: ClassVar[str] = "cursor"
    vhost: str
    group: str
    resource: str
    incarnation: str
    position: int
    epoch: int = 0
    holder: str = ""

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return msgspec.json.encode([self.vhost, self.group, self.resource]).decode()


class LetterEntry(msgspec.Struct, frozen=True, array_like=True):
    """A content on its way to the dead letters: its number there is what tells, after a crash, whether it arrived."""

    sequence: int
    number: int
    reason: str
    deliveries: int


class QueueRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A queue: contents below `low` and those of `settled` (ends are exclusive) are settled.

    `id` is the writer of its dead letters, `buried` their last number. Contents below `ahead` may have been delivered;
    `deliveries` are the ended deliveries of single contents as pairs, where there were any.
    """

    kind: ClassVar[str] = "queue"
    vhost: str
    resource: str
    queue: str
    incarnation: str
    id: int
    low: int
    ahead: int
    settled: list[tuple[int, int]] = []
    deliveries: list[tuple[int, int]] = []
    letters: list[LetterEntry] = []
    buried: int = 0

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return msgspec.json.encode([self.vhost, self.resource, self.queue]).decode()


class WriterRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A writer's name: the number that stands for it in the logs, who writes under it, and how many did before."""

    kind: ClassVar[str] = "writer"
    vhost: str
    name: str
    id: int
    epoch: int
    holder: str = ""

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return msgspec.json.encode([self.vhost, self.name]).decode()


class StageRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A stage: contents that are durable and not yet visible. `incarnations` names its targets as they were."""

    kind: ClassVar[str] = "stage"
    vhost: str
    stage: str
    application: str
    version: int
    incarnations: dict[str, str]
    created_us: int
    sealed_us: int = 0

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return self.stage


class ApplicationRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """What an application committed last: the memory that makes a repeated Stage.Commit harmless."""

    kind: ClassVar[str] = "application"
    vhost: str
    application: str
    version: int
    query: str
    digest: dict[str, tuple[int, int]]
    """Per resource: the first sequence and the number of contents of that commit."""
    committed_us: int
    replays: int = 0

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return msgspec.json.encode([self.vhost, self.application]).decode()


class PublishEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """One resource's share of a commit: where it goes and the staged logs that go there, in order. With `truncate` it
    takes the place of everything before `base`.
    """

    resource: str
    incarnation: str
    base: int
    contents: int
    logs: list[str]
    truncate: bool = False


class PublishRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A commit past its commit point whose contents may not all be in place yet; redone at the start."""

    kind: ClassVar[str] = "publish"
    vhost: str
    application: str
    version: int
    stages: list[str]
    entries: list[PublishEntry]
    now_us: int

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return msgspec.json.encode([self.vhost, self.application]).decode()


class PasswordRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """What is kept of a password: what SCRAM-SHA-256 checks a proof with (RFC 5802, section 3), never the password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        """Without the keys: whoever guesses passwords could try them on these."""
        return f"PasswordRecord(iterations={self.iterations})"


class GrantRecord(msgspec.Struct, frozen=True, rename="kebab", order=True):
    """`right` (read, write or manage) on the resources of a virtual host whose whole names `pattern` matches (RE2)."""

    vhost: str
    right: str
    pattern: str


class UserRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A user: what proves who it is (a password, CURVE public keys in Z85), and what it may do."""

    kind: ClassVar[str] = "user"
    name: str
    password: PasswordRecord | None = None
    keys: tuple[str, ...] = ()
    grants: tuple[GrantRecord, ...] = ()

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return self.name


class SecretRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """Random octets of this data directory, made once: the verifiers of users that there are not come from them."""

    kind: ClassVar[str] = "secret"
    octets: bytes
    key: ClassVar[str] = "users"

    def __repr__(self) -> str:
        """Without the octets."""
        return "SecretRecord()"


class RunRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """How the last run of the broker ended: the boot it ran under, and whether it stopped cleanly."""

    kind: ClassVar[str] = "run"
    boot: str
    clean: bool
    key: ClassVar[str] = "last"


AnyRecord = (
    ResourceRecord
    | CursorRecord
    | QueueRecord
    | WriterRecord
    | StageRecord
    | ApplicationRecord
    | PublishRecord
    | UserRecord
    | SecretRecord
    | RunRecord
)

KINDS: dict[str, type[msgspec.Struct]] = {
    kind.kind: kind
    for kind in (
        ResourceRecord,
        CursorRecord,
        QueueRecord,
        WriterRecord,
        StageRecord,
        ApplicationRecord,
        PublishRecord,
        UserRecord,
        SecretRecord,
        RunRecord,
    )
}

"""The low-rate state that outlives the broker: what kinds of records there are, and how they are kept as JSON.

Contents and publishing numbers live in the logs. Everything else that must survive a crash is one of these records,
written in transactions by the metadata store and read once, at the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from mtl.wire.control import Durability, Retention

T = TypeVar("T")


def record_key(*names: str) -> str:
    """The key of a record that is known by several names."""
    return msgspec.json.encode(names).decode()


class ResourceRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A resource. `log` names its directory; `earliest` is moved here, durably, before retention unlinks anything.
    `owner` is the user who made it, and who has quotas; empty in older records.
    """

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
    owner: str = ""

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return record_key(self.vhost, self.name)


class CursorRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A group's durable position: the next content it has not confirmed. `epoch` counts the holders it has had,
    `log_epoch` is that of the log's content before `position`, as far as it is known.
    """

    kind: ClassVar[str] = "cursor"
    vhost: str
    group: str
    resource: str
    incarnation: str
    position: int
    epoch: int = 0
    holder: str = ""
    log_epoch: str | None = None

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return record_key(self.vhost, self.group, self.resource)


class LetterEntry(msgspec.Struct, frozen=True, array_like=True):
    """A content on its way to the dead letters: its number there is what tells, after a crash, whether it arrived."""

    sequence: int
    number: int
    reason: str
    deliveries: int


class QueueRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A queue: contents below `low` and those of `settled` (ends are exclusive) are settled.

    `id` is the writer of its dead letters, `buried` their last number. Contents below `ahead` may have been delivered;
    `deliveries` are the ended deliveries of single contents as pairs, where there were any. The log ended at `end` when
    this was written, with a content of `log_epoch`; 0 in records that are older than that.
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
    end: int = 0
    log_epoch: str | None = None

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return record_key(self.vhost, self.resource, self.queue)


class WriterRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A writer's name: the number that stands for it in the logs, who writes under it, and how many did before. `owner`
    is the user who was the first to use it; empty in older records.
    """

    kind: ClassVar[str] = "writer"
    vhost: str
    name: str
    id: int
    epoch: int
    holder: str = ""
    owner: str = ""

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return record_key(self.vhost, self.name)


class StageRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A stage: contents that are durable and not yet visible. `incarnations` names its targets as they were, `contents`
    says how many each had when the stage was sealed, `owner` is the user who opened it (older versions wrote neither).
    """

    kind: ClassVar[str] = "stage"
    vhost: str
    stage: str
    application: str
    version: int
    incarnations: dict[str, str]
    created_us: int
    sealed_us: int = 0
    contents: dict[str, int] = {}
    owner: str = ""

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
        return record_key(self.vhost, self.application)


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
        return record_key(self.vhost, self.application)


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
    """How a run of the broker ended. Nothing depends on it any more; what older versions wrote goes with the next
    start.
    """

    kind: ClassVar[str] = "run"
    boot: str
    clean: bool
    key: ClassVar[str] = "last"


class ClockRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """Where the clocks were when the broker last noted it: under `boot` of the machine, `counted_us` after it, the wall
    clock read `wall_us`. `jumps` are those of the wall clock forward: from what it read, to what it read next.
    What was stamped before `since_us` counts as stamped then (`broker.ages`).
    """

    kind: ClassVar[str] = "clock"
    boot: str
    counted_us: int
    wall_us: int
    jumps: list[tuple[int, int]] = []
    since_us: int = 0
    key: ClassVar[str] = "last"


class DroppedRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A log, or the logs of a stage, whose record was removed on purpose: saved in the transaction that removed the
    record, so that a start deletes nothing else. `place` is its directory, `resources/<id>` or `stages/<id>`.
    """

    kind: ClassVar[str] = "dropped"
    place: str

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return self.place


class StateRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """What all records together are: every transaction writes it again.

    `database` names this database, `generation` counts its transactions. `format` is that of the data directory, below
    the database's own while the logs are yet to follow. `totals` are per kind the number of rows and the sum of their
    checksums. `incomplete` are kinds of which records were lost, and why.
    """

    kind: ClassVar[str] = "state"
    database: str
    format: int
    generation: int = 0
    totals: dict[str, tuple[int, int]] = {}
    incomplete: dict[str, str] = {}
    key: ClassVar[str] = "records"


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
    | ClockRecord
    | DroppedRecord
    | StateRecord
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
        ClockRecord,
        DroppedRecord,
        StateRecord,
    )
}


class RecordDamage(NamedTuple):
    """A record that cannot be read. Without a `key` it is not known which of this kind it is, or how many there are;
    without a `kind` it may be any record.
    """

    kind: str | None
    key: str | None
    reason: str

    def __str__(self) -> str:
        what = f"record {self.kind} {self.key}" if self.key is not None else f"records of kind {self.kind}"
        return f"{what if self.kind is not None else 'records'}: {self.reason}"


DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()
}
_OWNER = msgspec.json.Decoder(tuple[str, msgspec.Raw])
"""Made here, in one thread: two threads that decode the same type for the first time end the process (msgspec 0.22)."""


def encode_owner(record: ResourceRecord | StageRecord) -> bytes:
    """The record that a log belongs to, as the log keeps it (`mtl.log.manifest`). What moves while the log is in use is
    left out: `earliest` is kept by the log itself, and a stage that is made again is sealed by its contents.
    """
    if isinstance(record, ResourceRecord):
        record = msgspec.structs.replace(record, earliest=1)
    else:
        record = msgspec.structs.replace(record, sealed_us=0, contents={})
    return msgspec.json.encode((record.kind, record))


def decode_owner(data: bytes) -> ResourceRecord | StageRecord:
    """Raises `msgspec.MsgspecError` for octets that are no such record."""
    kind, record = _OWNER.decode(data)
    named = ResourceRecord if kind == ResourceRecord.kind else StageRecord
    found: ResourceRecord | StageRecord = DECODERS[named.kind].decode(record)
    return found


def of_kind(records: Iterable[AnyRecord], kind: type[T]) -> list[T]:
    """The records of one kind, in their order."""
    return [record for record in records if isinstance(record, kind)]

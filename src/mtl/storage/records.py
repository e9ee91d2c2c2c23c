"""The records of the broker's low-rate durable state: their kinds, and their form in JSON.

Contents and publishing numbers are in the logs. All other state that must survive a crash is in these records, which
the metadata store writes in transactions and reads once, at the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from mtl.wire.control import Durability, Retention

T = TypeVar("T")


def record_key(*names: str) -> str:
    """The key of a record that is identified by several names."""
    return msgspec.json.encode(names).decode()


class ResourceRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A resource. `log` names its directory; `earliest` is moved here, durably, before retention unlinks anything.
    `owner` is the user that created it, whose quotas count it.
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
    """A group's durable position: the next content it has not confirmed. `epoch` counts its holders so far, `log_epoch`
    is that of the log's content before `position`, if it is known. `owner` is the user that created it, whose quotas
    count it.
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
    owner: str = ""

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return record_key(self.vhost, self.group, self.resource)


class LetterEntry(msgspec.Struct, frozen=True, array_like=True):
    """A content on its way to the dead letters. After a crash its number there shows whether it arrived."""

    sequence: int
    number: int
    reason: str
    deliveries: int


class QueueRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A queue: contents below `low` and those of `settled` (ends are exclusive) are settled.

    `id` is the writer of its dead letters, `buried` their last number. Contents below `ahead` may have been delivered;
    `deliveries` are pairs of content and number of its ended deliveries, if any. The log ended at `end` when this was
    written, with a content of `log_epoch`. `owner` is the user that created it, whose quotas count it.
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
    owner: str = ""

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return record_key(self.vhost, self.resource, self.queue)


class WriterRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A writer's name: its `id` in the logs, its present holder, and `epoch`, the number of holders so far. `owner` is
    the user that used it first.
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
    """A stage: contents that are durable and not yet visible. `incarnations` are those of its target resources,
    `contents` the number for each when the stage was sealed, `owner` is the user that opened it.
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
    """The last commit of an application, which makes a repeated Stage.Commit harmless. `owner` is the user that
    committed for it first, whose quotas count it.
    """

    kind: ClassVar[str] = "application"
    vhost: str
    application: str
    version: int
    query: str
    published: dict[str, tuple[int, int]] = msgspec.field(name="digest")
    """Per resource: the first sequence and the number of contents of that commit."""
    committed_us: int
    replays: int = 0
    digest: dict[str, str] = msgspec.field(name="content-digest", default_factory=dict)
    """The description of the contents that the commit gave, if it gave one."""
    owner: str = ""

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return record_key(self.vhost, self.application)


class PublishEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """One resource's share of a commit: the contents of the staged `logs`, in order, from `base` on. With `truncate`
    they replace all contents before `base`.
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
    """The stored form of a password: the values with which SCRAM-SHA-256 checks a proof (RFC 5802, section 3)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        """Without the keys, since passwords could be guessed with them."""
        return f"PasswordRecord(iterations={self.iterations})"


class GrantRecord(msgspec.Struct, frozen=True, rename="kebab", order=True):
    """`right` (read, write or manage) on the resources of a virtual host whose whole names `pattern` matches (RE2)."""

    vhost: str
    right: str
    pattern: str


class UserRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """A user: its credentials (a password, CURVE public keys in Z85), and its rights. `generation` counts the changes
    of the password that ended everything that was open under the former one.
    """

    kind: ClassVar[str] = "user"
    name: str
    password: PasswordRecord | None = None
    keys: tuple[str, ...] = ()
    grants: tuple[GrantRecord, ...] = ()
    generation: int = 0

    @property
    def key(self) -> str:
        """The record's key within its kind."""
        return self.name


class SecretRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """Random octets of this data directory, made once. The verifiers of unknown users are derived from them."""

    kind: ClassVar[str] = "secret"
    octets: bytes
    key: ClassVar[str] = "users"

    def __repr__(self) -> str:
        """Without the octets."""
        return "SecretRecord()"


class ClockRecord(msgspec.Struct, frozen=True, rename="kebab"):
    """The clocks at the time of this record: `counted_us` after the machine's boot `boot` the wall clock was at
    `wall_us`. `jumps` are jumps forward of the wall clock, from and to. Times before `since_us` count as `since_us`
    (`broker.writing.clock`).
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
    """The state of all records together; every transaction writes it again.

    `database` names this database, `generation` counts its transactions. `totals` are per kind the number of rows and
    the sum of their checksums. `incomplete` are kinds of which records were lost, and the reasons.
    """

    kind: ClassVar[str] = "state"
    database: str
    generation: int
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
        ClockRecord,
        DroppedRecord,
        StateRecord,
    )
}


class RecordDamage(NamedTuple):
    """A record that cannot be read. Without a `key` it may be any record of this kind, and more than one; without a
    `kind` it may be any record.
    """

    kind: str | None
    key: str | None
    reason: str

    def __str__(self) -> str:
        damaged = f"record {self.kind} {self.key}" if self.key is not None else f"records of kind {self.kind}"
        return f"{damaged if self.kind is not None else 'records'}: {self.reason}"


DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()
}
_OWNER = msgspec.json.Decoder(tuple[str, msgspec.Raw])
"""Made here, in one thread: two threads that decode the same type for the first time end the process (msgspec 0.22)."""


def encode_owner(record: ResourceRecord | StageRecord) -> bytes:
    """The record that a log belongs to, for the log's manifest (`mtl.log.manifest`). Members that change while the
    log is in use are left out: the log itself has `earliest`, and a restored stage is sealed by its contents.
    """
    if isinstance(record, ResourceRecord):
        record = msgspec.structs.replace(record, earliest=1)
    else:
        record = msgspec.structs.replace(record, sealed_us=0, contents={})
    return msgspec.json.encode((record.kind, record))


def decode_owner(data: bytes) -> ResourceRecord | StageRecord:
    """Raises `msgspec.MsgspecError` for octets that are not such a record."""
    kind, record = _OWNER.decode(data)
    named = ResourceRecord if kind == ResourceRecord.kind else StageRecord
    owner: ResourceRecord | StageRecord = DECODERS[named.kind].decode(record)
    return owner


def of_kind(records: Iterable[AnyRecord], kind: type[T]) -> list[T]:
    """The records of one kind, in order."""
    return [record for record in records if isinstance(record, kind)]

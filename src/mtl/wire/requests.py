"""What a client asks for on the control flow: one type per command, the connection class and those of our profiles.

`command` is the name on the wire, `replies` the type of each success reply by its status. Members follow the rules of
`replies`. A value that no request may have is a FieldError here and, decoded from a peer, a 400.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from mtl.errors import FieldError
from mtl.limits import MAX_PATTERN, MAX_QUEUE_DELIVERIES, MAX_RESOURCES_PER_LEASE, MAX_STAGES_PER_COMMIT
from mtl.wire import replies as r
from mtl.wire.fields import encode_short
from mtl.wire.replies import Body, Count, Durability, Name, Positive, Retention, Window, always

Names = Annotated[list[str], msgspec.Meta(max_length=MAX_RESOURCES_PER_LEASE)]
StageIds = Annotated[list[Name], msgspec.Meta(max_length=MAX_STAGES_PER_COMMIT)]
Pattern = Annotated[str, msgspec.Meta(max_length=MAX_PATTERN)]
Start = Literal["earliest", "latest", "group"] | Count


class Request(Body, frozen=True, kw_only=True):
    """Any request. `session` is the token of the 201, for brokers that gave one."""

    command: ClassVar[str]
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Ok}
    session: str | None = None


# --- class Connection (RFC 11 "Client Authentication" to "Requesting a Data Lease") -------------------------


class Protocol(Body, frozen=True, kw_only=True):
    """Which protocol the client speaks: anything else than MTL gets 400, another version 501 (PROTOCOL.md 2)."""

    name: str = always("MTL")
    version: int = always(1)


class Open(Request, frozen=True, kw_only=True):
    """Connection.Open, the first request: access to a virtual host, or to the default one (MTL-21..23)."""

    command: ClassVar[str] = "Connection.Open"
    replies: ClassVar[dict[int, type[r.Reply]]] = {201: r.Ready}
    protocol: Protocol
    virtual_host: str | None = None


class Authorize(Request, frozen=True, kw_only=True):
    """Connection.Authorize, one step of SASL: the mechanism and the BASE64 of its response (MTL-30)."""

    command: ClassVar[str] = "Connection.Authorize"
    replies: ClassVar[dict[int, type[r.Reply]]] = {201: r.Ready, 402: r.Challenged}
    mechanism: str
    response: str


class Profile(Request, frozen=True, kw_only=True):
    """Connection.Profile: the profile to work with, one of those in the 201; case-insensitive (MTL-35..39)."""

    command: ClassVar[str] = "Connection.Profile"
    profile: str


class Reader(Request, frozen=True, kw_only=True):
    """Connection.Reader: a lease to read `resources`; [] is any and all (MTL-42..47).

    `confirm` is "none" or "full"; anything else is kept, for the 501 that it deserves (MTL-49). The rest is the `log`
    profile's: contents [from_, until), at most `window` unconfirmed; `packed` asks for many contents in one; `group` is
    whose durable cursor Confirm moves: for the `holder` (the id of a driver), or not at all for a member, who names the
    holder's `epoch`. `incarnation` is the one the positions belong to. With `local`, the mark of the machine that asks,
    contents may be told by their place in the broker's files (PROTOCOL.md 5.6). In the `queue` profile `group` names
    the queue, and `from_` says where it begins when this is its first consumer.
    """

    command: ClassVar[str] = "Connection.Reader"
    replies: ClassVar[dict[int, type[r.Reply]]] = {202: r.DataLease}
    resources: Names
    confirm: str = always("none")
    from_: Start | None = msgspec.field(name="from", default=None)
    until: Count | None = None
    window: Window | None = None
    packed: bool = False
    group: Name | None = None
    holder: Name | None = None
    epoch: Count | None = None
    incarnation: str | None = None
    local: str | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(*self.resources, *_given(self.group))


class StageSpec(Body, frozen=True, kw_only=True):
    """The stage a writer fills: whose, for which version; with `id`, an earlier one that is to go on."""

    application: Name
    version: Count
    id: str | None = None


class Writer(Request, frozen=True, kw_only=True):
    """Connection.Writer: a lease to write to `resources`; [] is any and all (MTL-43..47).

    `writer` is the name under which publishing numbers are remembered across leases and restarts; with `stage` the
    contents stay invisible until Stage.Commit. `incarnations` are the ones the caller believes in, per resource.
    `holder` is who writes under the name: another one takes it over; one that comes back names the `epoch` it had.
    `local` is the mark of the caller's machine: packs may be put into shared memory if it is the broker's, too.
    """

    command: ClassVar[str] = "Connection.Writer"
    replies: ClassVar[dict[int, type[r.Reply]]] = {202: r.DataLease}
    resources: Names
    confirm: str = always("none")
    packed: bool = False
    writer: Name | None = None
    holder: Name | None = None
    epoch: Count | None = None
    stage: StageSpec | None = None
    incarnations: dict[str, str] | None = None
    local: str | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(*self.resources, *_given(self.writer))


class LeaseClose(Request, frozen=True, kw_only=True):
    """Lease.Close: end a lease; a stage is sealed by it."""

    command: ClassVar[str] = "Lease.Close"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.LeaseClosed}
    lease: str


# --- class Resource -----------------------------------------------------------------------------------------


class ResourceCreate(Request, frozen=True, kw_only=True):
    """Resource.Create: 409 "exists" when it is there, unless `exist_ok`.

    A content that a queue delivered `max_deliveries` times, or whose consumer rejected it, goes to `dead_letter`.
    """

    command: ClassVar[str] = "Resource.Create"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.ResourceCreated}
    resource: str
    durability: Durability = always("sync")
    retention: Retention | None = None
    exist_ok: bool = False
    dead_letter: Name | None = None
    max_deliveries: Annotated[int, msgspec.Meta(ge=1, le=MAX_QUEUE_DELIVERIES)] | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        groups = self.retention.groups if self.retention else ()
        _check_names(self.resource, *groups, *_given(self.dead_letter))
        if self.dead_letter == self.resource:
            raise FieldError("a resource cannot be its own dead letters")


class ResourceList(Request, frozen=True, kw_only=True):
    """Resource.List: all resources, or those whose whole name matches the regular expression."""

    command: ClassVar[str] = "Resource.List"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Resources}
    pattern: Pattern | None = None


class ResourceDescribe(Request, frozen=True, kw_only=True):
    """Resource.Describe: one, several, those that match a pattern, or (none of the three) all.

    A name that is missing is a 404 with the member `missing`. With `after` the answer waits, `wait` milliseconds at
    most, until a resource's next is above the one given here, or one appears that is not in it.
    """

    command: ClassVar[str] = "Resource.Describe"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Resources}
    resource: str | None = None
    resources: Names | None = None
    pattern: Pattern | None = None
    after: dict[str, Count] | None = None
    wait: Count = 0

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        if sum(member is not None for member in (self.resource, self.resources, self.pattern)) > 1:
            raise FieldError("resource, resources and pattern exclude each other")
        _check_names(*_given(self.resource), *(self.resources or ()))


class ResourceDelete(Request, frozen=True, kw_only=True):
    """Resource.Delete: the contents, cursors, leases and stages of a resource go with it."""

    command: ClassVar[str] = "Resource.Delete"
    resource: str
    incarnation: str | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.resource)


class ResourceLocate(Request, frozen=True, kw_only=True):
    """Resource.Locate: by `timestamp` (µs) the first content at or after it; or by `start` the end (exclusive) of what
    lies within `contents` and `bytes` of it, at least one chunk.
    """

    command: ClassVar[str] = "Resource.Locate"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Located}
    resource: str
    incarnation: str | None = None
    timestamp: Count | None = None
    start: Count | None = None
    contents: Positive | None = None
    bytes: Positive | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.resource)
        if (self.timestamp is None) == (self.start is None):
            raise FieldError("one of timestamp and start is needed, and only one")


# --- class Cursor -------------------------------------------------------------------------------------------


class CursorOpen(Request, frozen=True, kw_only=True):
    """Cursor.Open: make a group's durable position, or find it; either way it pins what it has not confirmed."""

    command: ClassVar[str] = "Cursor.Open"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.CursorOpened}
    group: str
    resource: str
    from_: Literal["earliest", "latest"] | Count = msgspec.field(name="from", default="earliest")
    incarnation: str | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.group, self.resource)


class CursorDescribe(Request, frozen=True, kw_only=True):
    """Cursor.Describe: the cursors of a group, of a resource, of both, or all."""

    command: ClassVar[str] = "Cursor.Describe"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Cursors}
    group: str | None = None
    resource: str | None = None


class CursorReset(Request, frozen=True, kw_only=True):
    """Cursor.Reset: move a cursor `to` a place, or to the first content at or after `timestamp` (µs); back, too.

    A cursor that is held is taken from its holder only with `force`.
    """

    command: ClassVar[str] = "Cursor.Reset"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.CursorWasReset}
    group: str
    resource: str
    to: Literal["earliest", "latest"] | Count | None = None
    timestamp: Count | None = None
    incarnation: str | None = None
    force: bool = False

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.group, self.resource)
        if (self.to is None) == (self.timestamp is None):
            raise FieldError("one of to and timestamp is needed, and only one")


class CursorDelete(Request, frozen=True, kw_only=True):
    """Cursor.Delete: forget the group's place in the resource."""

    command: ClassVar[str] = "Cursor.Delete"
    group: str
    resource: str
    incarnation: str | None = None


# --- class Queue --------------------------------------------------------------------------------------------


class QueueDescribe(Request, frozen=True, kw_only=True):
    """Queue.Describe: the queues of a name, of a resource, of both, or all."""

    command: ClassVar[str] = "Queue.Describe"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Queues}
    group: str | None = None
    resource: str | None = None


class QueueDelete(Request, frozen=True, kw_only=True):
    """Queue.Delete: forget what was settled; the leases of its consumers end. The contents stay in the resource."""

    command: ClassVar[str] = "Queue.Delete"
    group: str
    resource: str
    incarnation: str | None = None


# --- class Stage --------------------------------------------------------------------------------------------


class StageCommit(Request, frozen=True, kw_only=True):
    """Stage.Commit: publish the named stages in this order, atomically, once per (application, version).

    `query` says which query asks, for the protection against a reused application name. Other stages of the same
    version stay invisible and go. What was in the resources of `truncate` before goes in the same step.
    """

    command: ClassVar[str] = "Stage.Commit"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Committed}
    application: Name
    version: Count
    stages: StageIds
    query: str | None = None
    truncate: Names = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.application, *self.truncate)


class StageAbort(Request, frozen=True, kw_only=True):
    """Stage.Abort: throw the stages away; unknown and committed ones are left alone."""

    command: ClassVar[str] = "Stage.Abort"
    stages: StageIds


class StageDescribe(Request, frozen=True, kw_only=True):
    """Stage.Describe: the stages and what was committed last, of one application or all."""

    command: ClassVar[str] = "Stage.Describe"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Stages}
    application: str | None = None


class StageForget(Request, frozen=True, kw_only=True):
    """Stage.Forget: forget the version an application committed last, so that it may begin again."""

    command: ClassVar[str] = "Stage.Forget"
    application: str


def _given(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _check_names(*names: str) -> None:
    """Names that also travel as short strings, or are kept, have 1 to 255 octets and no control characters."""
    for name in names:
        if not name:
            raise FieldError("a name is empty")
        encode_short(name)


_CONNECTION = (Open, Authorize, Profile, Reader, Writer)
_PROFILES = (
    *(LeaseClose, ResourceCreate, ResourceList, ResourceDescribe, ResourceDelete, ResourceLocate),
    *(
        CursorOpen,
        CursorDescribe,
        CursorReset,
        CursorDelete,
        QueueDescribe,
        QueueDelete,
        StageCommit,
        StageAbort,
        StageDescribe,
        StageForget,
    ),
)

REQUESTS: dict[str, type[Request]] = {request.command.lower(): request for request in _CONNECTION + _PROFILES}
"""Every command that there is, by its name in lower case (MTL-19)."""

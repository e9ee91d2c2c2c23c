"""What a client asks for on the control flow: one type per command, the connection class and those of our profiles.

`command` is the name on the wire, `replies` the type of each success reply by its status. Members follow the rules of
`replies`. A value that no request may have is a FieldError here and, decoded from a peer, a 400.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from mtl.broker.queues.limits import MAX_QUEUE_DELIVERIES
from mtl.errors import FieldError
from mtl.limits import MAX_PATTERN, MAX_RESOURCES_PER_LEASE, MAX_SHORT_STRING, MAX_STAGES_PER_COMMIT
from mtl.wire import replies as r
from mtl.wire.fields import encode_short
from mtl.wire.replies import (
    Body,
    Count,
    Durability,
    LogEpoch,
    Name,
    Positive,
    Retention,
    Window,
    WrittenIn,
    always,
)

MAX_RESPONSE = 4_096
"""Characters of a SASL response: a SCRAM message is kept for each session that logs in; a password travels in one."""

MAX_RETENTION_GROUPS = 100
"""Groups that a resource waits for; kept with each resource, and compared with every cursor of it."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_SHORT_STRING)]
"""A text of a request. All have a bound: many are kept, and the others wait with their requests for the disk."""

Names = Annotated[list[Text], msgspec.Meta(max_length=MAX_RESOURCES_PER_LEASE)]
StageIds = Annotated[list[Name], msgspec.Meta(max_length=MAX_STAGES_PER_COMMIT)]
Pattern = Annotated[str, msgspec.Meta(max_length=MAX_PATTERN)]
Start = Literal["earliest", "latest", "group"] | Count


class Request(Body, frozen=True, kw_only=True):
    """Any request. `session` is the token of the 201, for brokers that gave one."""

    command: ClassVar[str]
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Ok}
    session: Text | None = None


# --- class Connection (RFC 11 "Client Authentication" to "Requesting a Data Lease") -------------------------


class Protocol(Body, frozen=True, kw_only=True):
    """Which protocol the client speaks: anything else than MTL gets 400, another version 501 (PROTOCOL.md 2)."""

    name: Text = always("MTL")
    version: int = always(1)


class Open(Request, frozen=True, kw_only=True):
    """Connection.Open, the first request: access to a virtual host, or to the default one (MTL-21..23)."""

    command: ClassVar[str] = "Connection.Open"
    replies: ClassVar[dict[int, type[r.Reply]]] = {201: r.Ready}
    protocol: Protocol
    virtual_host: Text | None = None


class Authorize(Request, frozen=True, kw_only=True):
    """Connection.Authorize, one step of SASL: the mechanism and the BASE64 of its response (MTL-30).

    `acting_as` is another user, whose rights the session is to have in place of those of the one that logs in.
    """

    command: ClassVar[str] = "Connection.Authorize"
    replies: ClassVar[dict[int, type[r.Reply]]] = {201: r.Ready, 402: r.Challenged}
    mechanism: Text
    response: Annotated[str, msgspec.Meta(max_length=MAX_RESPONSE)]
    acting_as: Name | None = None


class Profile(Request, frozen=True, kw_only=True):
    """Connection.Profile: the profile to work with, one of those in the 201; case-insensitive (MTL-35..39)."""

    command: ClassVar[str] = "Connection.Profile"
    profile: Text


class LeaseRequest(Request, frozen=True, kw_only=True):
    """What a Reader and a Writer have in common.

    `request_id` is an id that the client chose for this lease and repeats when it asks for it again: the lease that was
    granted before is replaced. With `binding` the Response to a Lease tells whether it was bound by it (PROTOCOL.md 3).
    """

    replies: ClassVar[dict[int, type[r.Reply]]] = {202: r.DataLease}
    resources: Names
    confirm: Text = always("none")
    packed: bool = False
    request_id: Name | None = None
    binding: bool = False


class Reader(LeaseRequest, frozen=True, kw_only=True):
    """Connection.Reader: a lease to read `resources`; [] is any and all (MTL-42..47).

    `confirm` is "none" or "full"; anything else is kept, for the 501 that it deserves (MTL-49). The rest is the `log`
    profile's: contents [from_, until), at most `window` unconfirmed; `packed` asks for many contents in one; `group` is
    whose durable cursor Confirm moves: for the `holder` (the id of a driver), or not at all for a member, who names the
    holder's `epoch`. `incarnation` is the one the positions belong to, `log_epoch` the epoch of the last content before
    `from_`: a log that does not contain it is another copy (PROTOCOL.md 5.1.1). With `local`, the mark of the machine
    that asks, contents may be told by their place in the broker's files (PROTOCOL.md 5.6). In the `queue` profile
    `group` names the queue, and `from_` says where it begins when this is its first consumer.
    """

    command: ClassVar[str] = "Connection.Reader"
    from_: Start | None = msgspec.field(name="from", default=None)
    until: Count | None = None
    window: Window | None = None
    group: Name | None = None
    holder: Name | None = None
    epoch: Count | None = None
    incarnation: Text | None = None
    log_epoch: LogEpoch | None = None
    local: Text | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(*self.resources, *_given(self.group, self.holder))
        _check_epoch(self.log_epoch, self.from_)


class StageSpec(Body, frozen=True, kw_only=True):
    """The stage a writer fills: whose, for which version; with `id`, an earlier one that is to go on."""

    application: Name
    version: Count
    id: Text | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.application)


class Writer(LeaseRequest, frozen=True, kw_only=True):
    """Connection.Writer: a lease to write to `resources`; [] is any and all (MTL-43..47).

    `writer` is the name under which publishing numbers are remembered across leases and restarts; with `stage` the
    contents stay invisible until Stage.Commit. `incarnations` are the ones the caller believes in, per resource.
    `holder` is who writes under the name: another one takes it over; one that comes back names the `epoch` it had.
    `log_epochs` are, per resource, the last ones of a 202 under which contents of this writer were confirmed that the
    broker did not have before.
    `local` is the mark of the caller's machine: packs may be put into shared memory if it is the broker's, too.
    """

    command: ClassVar[str] = "Connection.Writer"
    writer: Name | None = None
    holder: Name | None = None
    epoch: Count | None = None
    stage: StageSpec | None = None
    incarnations: dict[Text, Text] | None = None
    log_epochs: dict[Text, WrittenIn] | None = None
    local: Text | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(*self.resources, *_given(self.writer, self.holder))


class LeaseClose(Request, frozen=True, kw_only=True):
    """Lease.Close: end a lease; a stage is sealed by it."""

    command: ClassVar[str] = "Lease.Close"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.LeaseClosed}
    lease: Text


# --- class Resource -----------------------------------------------------------------------------------------


class ResourceCreate(Request, frozen=True, kw_only=True):
    """Resource.Create: 409 "exists" when it is there, unless `exist_ok`.

    A content that a queue delivered `max_deliveries` times, or whose consumer rejected it, goes to `dead_letter`.
    """

    command: ClassVar[str] = "Resource.Create"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.ResourceCreated}
    resource: Text
    durability: Durability = always("sync")
    retention: Retention | None = None
    exist_ok: bool = False
    dead_letter: Name | None = None
    max_deliveries: Annotated[int, msgspec.Meta(ge=1, le=MAX_QUEUE_DELIVERIES)] | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        groups = self.retention.groups if self.retention else ()
        if len(groups) > MAX_RETENTION_GROUPS:
            raise FieldError(f"retention waits for {len(groups)} groups, above {MAX_RETENTION_GROUPS}")
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
    most, until a resource's next is above the one given here, one appears that is not in it, one that is in it is not
    there (any more), or one has another incarnation than `incarnations` says. With `history`
    the descriptions have all epochs of their logs.
    """

    command: ClassVar[str] = "Resource.Describe"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Resources}
    resource: Text | None = None
    resources: Names | None = None
    pattern: Pattern | None = None
    after: dict[Text, Count] | None = None
    incarnations: dict[Text, Text] | None = None
    wait: Count = 0
    history: bool = False

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        if sum(member is not None for member in (self.resource, self.resources, self.pattern)) > 1:
            raise FieldError("resource, resources and pattern exclude each other")
        _check_names(*_given(self.resource), *(self.resources or ()))


class ResourceDelete(Request, frozen=True, kw_only=True):
    """Resource.Delete: the contents, cursors, leases and stages of a resource go with it."""

    command: ClassVar[str] = "Resource.Delete"
    resource: Text
    incarnation: Text | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.resource)


class ResourceLocate(Request, frozen=True, kw_only=True):
    """Resource.Locate: by `timestamp` (µs) the first content at or after it; or by `start` the end (exclusive) of what
    lies within `contents` and `bytes` of it, at least one chunk. `log_epoch` is that of the last content before
    `start`.
    """

    command: ClassVar[str] = "Resource.Locate"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Located}
    resource: Text
    incarnation: Text | None = None
    timestamp: Count | None = None
    start: Count | None = None
    log_epoch: LogEpoch | None = None
    contents: Positive | None = None
    bytes: Positive | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.resource)
        if (self.timestamp is None) == (self.start is None):
            raise FieldError("one of timestamp and start is needed, and only one")
        _check_epoch(self.log_epoch, self.start)


# --- class Cursor -------------------------------------------------------------------------------------------


class CursorOpen(Request, frozen=True, kw_only=True):
    """Cursor.Open: make a group's durable position, or find it; either way it pins what it has not confirmed.

    `log_epoch` is that of the last content before `from_`.
    """

    command: ClassVar[str] = "Cursor.Open"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.CursorOpened}
    group: Text
    resource: Text
    from_: Literal["earliest", "latest"] | Count = msgspec.field(name="from", default="earliest")
    log_epoch: LogEpoch | None = None
    incarnation: Text | None = None

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.group, self.resource)
        _check_epoch(self.log_epoch, self.from_)


class CursorDescribe(Request, frozen=True, kw_only=True):
    """Cursor.Describe: the cursors of a group, of a resource, of both, or all."""

    command: ClassVar[str] = "Cursor.Describe"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Cursors}
    group: Text | None = None
    resource: Text | None = None


class CursorReset(Request, frozen=True, kw_only=True):
    """Cursor.Reset: move a cursor `to` a place, or to the first content at or after `timestamp` (µs); back, too.

    A cursor that is held is taken from its holder only with `force`. `log_epoch` is that of the last content before
    `to`.
    """

    command: ClassVar[str] = "Cursor.Reset"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.CursorWasReset}
    group: Text
    resource: Text
    to: Literal["earliest", "latest"] | Count | None = None
    log_epoch: LogEpoch | None = None
    timestamp: Count | None = None
    incarnation: Text | None = None
    force: bool = False

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        _check_names(self.group, self.resource)
        if (self.to is None) == (self.timestamp is None):
            raise FieldError("one of to and timestamp is needed, and only one")
        _check_epoch(self.log_epoch, self.to)


class CursorDelete(Request, frozen=True, kw_only=True):
    """Cursor.Delete: forget the group's place in the resource."""

    command: ClassVar[str] = "Cursor.Delete"
    group: Text
    resource: Text
    incarnation: Text | None = None


# --- class Queue --------------------------------------------------------------------------------------------


class QueueDescribe(Request, frozen=True, kw_only=True):
    """Queue.Describe: the queues of a name, of a resource, of both, or all."""

    command: ClassVar[str] = "Queue.Describe"
    replies: ClassVar[dict[int, type[r.Reply]]] = {200: r.Queues}
    group: Text | None = None
    resource: Text | None = None


class QueueDelete(Request, frozen=True, kw_only=True):
    """Queue.Delete: forget what was settled; the leases of its consumers end. The contents stay in the resource."""

    command: ClassVar[str] = "Queue.Delete"
    group: Text
    resource: Text
    incarnation: Text | None = None


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
    query: Text | None = None
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
    application: Text | None = None


class StageForget(Request, frozen=True, kw_only=True):
    """Stage.Forget: forget the version an application committed last, so that it may begin again."""

    command: ClassVar[str] = "Stage.Forget"
    application: Text


def _given(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _check_epoch(epoch: str | None, position: object) -> None:
    """An epoch is that of the content before a position, so there has to be one."""
    if epoch is not None and not isinstance(position, int):
        raise FieldError("log-epoch is the epoch of a position: give the sequence, too")


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

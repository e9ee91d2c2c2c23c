"""The requests of the control flow: one type per command, of the class Connection and the profiles' classes.

`command` is the name on the wire, `replies` the type of each success reply by its status. Members follow the rules of
`mtl.wire.replies`. An invalid value is a FieldError in the client; in a request from a peer it gets a 400.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from mtl.errors import FieldError
from mtl.limits import MAX_RESOURCES_PER_LEASE, MAX_SHORT_STRING
from mtl.wire import replies as reply
from mtl.wire.fields import encode_short
from mtl.wire.limits import MAX_DIGEST, MAX_PATTERN, MAX_QUEUE_DELIVERIES, MAX_STAGES_PER_COMMIT
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
from mtl.wire.visible import unseen

MAX_RESPONSE = 4_096
"""Characters of a SASL response: a SCRAM message is kept for each session that logs in; PLAIN sends a password in one.
"""

MAX_RETENTION_GROUPS = 100
"""Groups that a resource's retention waits for; kept with each resource, and compared with each of its cursors."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_SHORT_STRING)]
"""A text of a request. All are bounded: many are stored, and the others are kept while their requests wait."""

Names = Annotated[list[Text], msgspec.Meta(max_length=MAX_RESOURCES_PER_LEASE)]
Continue = Annotated[list[Text], msgspec.Meta(max_length=8)]
"""The `continue` of the former page of a list, which the broker sealed (PROTOCOL.md 2.4): about 1,400 characters for a
place of three names."""

StageIds = Annotated[list[Name], msgspec.Meta(max_length=MAX_STAGES_PER_COMMIT)]
Digest = Annotated[dict[Text, Text], msgspec.Meta(max_length=MAX_DIGEST)]
Pattern = Annotated[str, msgspec.Meta(max_length=MAX_PATTERN)]
Start = Literal["earliest", "latest", "group"] | Count


class Request(Body, frozen=True, kw_only=True):
    """Any request. `session` is the token of the 201, for brokers that gave one."""

    command: ClassVar[str]
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.Ok}
    session: Text | None = None


# --- class Connection (RFC 11 "Client Authentication" to "Requesting a Data Lease") -------------------------


class Protocol(Body, frozen=True, kw_only=True):
    """The client's protocol: any other than MTL gets 400, another version 501 (PROTOCOL.md 2)."""

    name: Text = always("MTL")
    version: int = always(1)


class ConnectionOpen(Request, frozen=True, kw_only=True):
    """Connection.Open, the first request: access to a virtual host, or to the default one (MTL-21..23)."""

    command: ClassVar[str] = "Connection.Open"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {201: reply.Ready}
    protocol: Protocol
    virtual_host: Text | None = None


class ConnectionAuthorize(Request, frozen=True, kw_only=True):
    """Connection.Authorize, one step of SASL: the mechanism and the BASE64 of its response (MTL-30).

    `acting_as`: another user, whose rights the session gets instead of those of the user that logs in. `peer`: the
    address of the peer whose user and password a door checks, on a session that has logged in as the door.
    """

    command: ClassVar[str] = "Connection.Authorize"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {201: reply.Ready, 402: reply.Challenged}
    mechanism: Text
    response: Annotated[str, msgspec.Meta(max_length=MAX_RESPONSE)]
    acting_as: Name | None = None
    peer: Name | None = None


class ConnectionProfile(Request, frozen=True, kw_only=True):
    """Connection.Profile: the profile to work with, one of those in the 201; case-insensitive (MTL-35..39)."""

    command: ClassVar[str] = "Connection.Profile"
    profile: Text


class LeaseRequest(Request, frozen=True, kw_only=True):
    """The common members of ConnectionReader and ConnectionWriter.

    `request_id` is an id that the client chooses for this lease. A repeated request has the same one, and its lease
    replaces the former. With `binding` the Response to a Lease says whether that Lease bound it (PROTOCOL.md 3).
    """

    replies: ClassVar[dict[int, type[reply.Reply]]] = {202: reply.DataLease}
    resources: Names
    confirm: Text = always("none")
    packed: bool = False
    request_id: Name | None = None
    binding: bool = False


class HeldFrom(Body, frozen=True, kw_only=True):
    """The position from which on a resource is held: the next content to confirm, in an incarnation of the resource,
    and the epoch of the content before it.
    """

    from_: Positive = msgspec.field(name="from")
    incarnation: Text | None = None
    log_epoch: LogEpoch | None = None


class ConnectionReader(LeaseRequest, frozen=True, kw_only=True):
    """Connection.Reader: a lease to read `resources`; [] is any and all (MTL-42..47).

    `confirm` is "none" or "full"; any other value is accepted here and gets 501 (MTL-49). The other members are the
    `log` profile's:

    - the contents [`from_`, `until`), at most `window` of them unconfirmed; `packed` asks for packs;
    - `group` with `holder` (the id of a driver): its Confirms move the durable cursor of the group; with the holder's
      `epoch` the reader is a member, whose Confirms do not;
    - `incarnation` of the positions, and `log_epoch`, the epoch of the last content before `from_`: a log without it is
      another copy (PROTOCOL.md 5.1.1);
    - `local`, the mark of the client's machine: if it is the broker's, Contents may have places in the broker's files
      (PROTOCOL.md 5.6);
    - `positions`: the lease only holds the resources, any number of them, each from its position on (PROTOCOL.md 5.3).

    In the `queue` profile `group` names the queue, and `from_` is where it begins if this is its first consumer.
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
    positions: Annotated[dict[Text, HeldFrom], msgspec.Meta(max_length=MAX_RESOURCES_PER_LEASE)] | None = None

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        _check_new_names(*self.resources, *_without_none(self.group, self.holder))
        _check_epoch(self.log_epoch, self.from_)
        if self.positions is not None and (
            not self.resources or set(self.resources) != self.positions.keys()
        ):
            raise FieldError("positions are needed for all of the resources, and for no others")
        if self.positions is not None and self.holder is None:
            raise FieldError("positions are those of a holder: give its id, too")


class StageSpec(Body, frozen=True, kw_only=True):
    """The stage that a writer fills: its application and version; with `id`, an existing stage to continue."""

    application: Name
    version: Count
    id: Text | None = None

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        _check_new_names(self.application)


class ConnectionWriter(LeaseRequest, frozen=True, kw_only=True):
    """Connection.Writer: a lease to write to `resources`; [] is any and all (MTL-43..47).

    `writer` is the name under which publishing numbers are kept across leases and restarts; with `stage` the contents
    stay invisible until Stage.Commit. `incarnations` are those that the client knows, per resource. `holder` identifies
    the client that writes under the name: another holder takes the name over; one that returns has its former `epoch`.
    `log_epochs` are, per resource, those of the last 202 under which new contents of this writer were confirmed.
    """

    command: ClassVar[str] = "Connection.Writer"
    writer: Name | None = None
    holder: Name | None = None
    epoch: Count | None = None
    stage: StageSpec | None = None
    incarnations: dict[Text, Text] | None = None
    log_epochs: dict[Text, WrittenIn] | None = None

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        _check_new_names(*self.resources, *_without_none(self.writer, self.holder))


class LeaseClose(Request, frozen=True, kw_only=True):
    """Lease.Close: end a lease; a stage is sealed by it."""

    command: ClassVar[str] = "Lease.Close"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.LeaseClosed}
    lease: Text


# --- class Resource -----------------------------------------------------------------------------------------


class ResourceCreate(Request, frozen=True, kw_only=True):
    """Resource.Create: 409 "exists" when the resource exists, unless `exist_ok`.

    A content that a queue delivered `max_deliveries` times, or whose consumer rejected it, goes to `dead_letter`.
    """

    command: ClassVar[str] = "Resource.Create"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.ResourceCreated}
    resource: Text
    durability: Durability = always("sync")
    retention: Retention | None = None
    exist_ok: bool = False
    dead_letter: Name | None = None
    max_deliveries: Annotated[int, msgspec.Meta(ge=1, le=MAX_QUEUE_DELIVERIES)] | None = None

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        groups = self.retention.groups if self.retention else ()
        if len(groups) > MAX_RETENTION_GROUPS:
            raise FieldError(f"retention waits for {len(groups)} groups, above {MAX_RETENTION_GROUPS}")
        _check_new_names(self.resource, *groups, *_without_none(self.dead_letter))
        if self.dead_letter == self.resource:
            raise FieldError("a resource cannot be its own dead-letter resource")


class ListRequest(Request, frozen=True, kw_only=True):
    """A request whose answer is a list in pages; `continue_` is that of the page before (PROTOCOL.md 2.4)."""

    continue_: Continue | None = msgspec.field(name="continue", default=None)


class ResourceList(ListRequest, frozen=True, kw_only=True):
    """Resource.List: all resources, or those whose whole name matches the regular expression."""

    command: ClassVar[str] = "Resource.List"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.DescriptionList}
    pattern: Pattern | None = None


class ResourceDescribe(ListRequest, frozen=True, kw_only=True):
    """Resource.Describe: one, several, those that match a pattern, or (none of the three) all.

    - A missing name is a 404 with the member `missing`; with `missing_ok` it is left out.
    - With `since`, the `state` of an earlier answer, only the resources that have changed since then are described. The
      reply waits, at most `wait` milliseconds, until there is one.
    - With `history` the descriptions have all epochs of their logs.
    """

    command: ClassVar[str] = "Resource.Describe"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.DescriptionList}
    resource: Text | None = None
    resources: Names | None = None
    pattern: Pattern | None = None
    missing_ok: bool = False
    since: Text | None = None
    wait: Count = 0
    history: bool = False

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        if sum(member is not None for member in (self.resource, self.resources, self.pattern)) > 1:
            raise FieldError("resource, resources and pattern exclude each other")
        _check_names(*_without_none(self.resource), *(self.resources or ()))


class ResourceDelete(Request, frozen=True, kw_only=True):
    """Resource.Delete: delete a resource with its contents, cursors, leases and stages."""

    command: ClassVar[str] = "Resource.Delete"
    resource: Text
    incarnation: Text | None = None

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        _check_names(self.resource)


class ResourceLocate(Request, frozen=True, kw_only=True):
    """Resource.Locate: by `timestamp` (µs) the first content at or after it; or by `start` the end (exclusive) of the
    range from there on of at most `contents` and `bytes`, but at least one chunk. `log_epoch` is that of the last
    content before `start`.
    """

    command: ClassVar[str] = "Resource.Locate"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.Located}
    resource: Text
    incarnation: Text | None = None
    timestamp: Count | None = None
    start: Count | None = None
    log_epoch: LogEpoch | None = None
    contents: Positive | None = None
    bytes: Positive | None = None

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        _check_names(self.resource)
        if (self.timestamp is None) == (self.start is None):
            raise FieldError("one of timestamp and start is needed, and only one")
        _check_epoch(self.log_epoch, self.start)


# --- class Cursor -------------------------------------------------------------------------------------------


class CursorOpen(Request, frozen=True, kw_only=True):
    """Cursor.Open: create a group's cursor, unless it exists. It pins the contents that the group has not confirmed.

    `log_epoch` is that of the last content before `from_`.
    """

    command: ClassVar[str] = "Cursor.Open"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.CursorOpened}
    group: Text
    resource: Text
    from_: Literal["earliest", "latest"] | Count = msgspec.field(name="from", default="earliest")
    log_epoch: LogEpoch | None = None
    incarnation: Text | None = None

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        _check_new_names(self.group, self.resource)
        _check_epoch(self.log_epoch, self.from_)


class CursorDescribe(ListRequest, frozen=True, kw_only=True):
    """Cursor.Describe: the cursors of a group, of a resource, of both, or all."""

    command: ClassVar[str] = "Cursor.Describe"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.CursorList}
    group: Text | None = None
    resource: Text | None = None


class CursorReset(Request, frozen=True, kw_only=True):
    """Cursor.Reset: move a cursor, also back, `to` a position or to the first content at or after `timestamp` (µs).

    A cursor with a live holder is moved only with `force`, which fences the holder. `log_epoch` is that of the last
    content before `to`.
    """

    command: ClassVar[str] = "Cursor.Reset"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.CursorWasReset}
    group: Text
    resource: Text
    to: Literal["earliest", "latest"] | Count | None = None
    log_epoch: LogEpoch | None = None
    timestamp: Count | None = None
    incarnation: Text | None = None
    force: bool = False

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        _check_names(self.group, self.resource)
        if (self.to is None) == (self.timestamp is None):
            raise FieldError("one of to and timestamp is needed, and only one")
        _check_epoch(self.log_epoch, self.to)


class CursorDelete(Request, frozen=True, kw_only=True):
    """Cursor.Delete: delete the group's cursor in the resource."""

    command: ClassVar[str] = "Cursor.Delete"
    group: Text
    resource: Text
    incarnation: Text | None = None


# --- class Queue --------------------------------------------------------------------------------------------


class QueueDescribe(ListRequest, frozen=True, kw_only=True):
    """Queue.Describe: the queues of a name, of a resource, of both, or all."""

    command: ClassVar[str] = "Queue.Describe"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.QueueList}
    group: Text | None = None
    resource: Text | None = None


class QueueDelete(Request, frozen=True, kw_only=True):
    """Queue.Delete: delete a queue and end the leases of its consumers. The contents stay in the resource."""

    command: ClassVar[str] = "Queue.Delete"
    group: Text
    resource: Text
    incarnation: Text | None = None


# --- class Stage --------------------------------------------------------------------------------------------


class StageCommit(Request, frozen=True, kw_only=True):
    """Stage.Commit: publish the named stages in this order, atomically, once per (application, version).

    `query` identifies the query, as a protection against a reused application name. Other stages of the same version
    stay invisible and are removed. Former contents of the resources in `truncate` are removed in the same step.
    `digest` describes the contents by named values, which a repetition has to match (PROTOCOL.md 5.5).
    """

    command: ClassVar[str] = "Stage.Commit"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.Committed}
    application: Name
    version: Count
    stages: StageIds
    query: Text | None = None
    truncate: Names = msgspec.field(default_factory=list)
    digest: Digest = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the rules that the types cannot express."""
        _check_new_names(self.application, *self.truncate)


class StageAbort(Request, frozen=True, kw_only=True):
    """Stage.Abort: remove the stages; unknown and committed ones are ignored."""

    command: ClassVar[str] = "Stage.Abort"
    stages: StageIds


class StageDescribe(ListRequest, frozen=True, kw_only=True):
    """Stage.Describe: the stages and the last commits of one application or all; or one `stage`."""

    command: ClassVar[str] = "Stage.Describe"
    replies: ClassVar[dict[int, type[reply.Reply]]] = {200: reply.StageList}
    application: Text | None = None
    stage: Text | None = None


class StageForget(Request, frozen=True, kw_only=True):
    """Stage.Forget: forget the version an application committed last, so that it may begin again."""

    command: ClassVar[str] = "Stage.Forget"
    application: Text


def _without_none(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _check_epoch(epoch: str | None, position: object) -> None:
    """An epoch is that of the content before a position, so the position is needed."""
    if epoch is not None and not isinstance(position, int):
        raise FieldError("log-epoch is the epoch of a position: give the sequence, too")


def _check_names(*names: str) -> None:
    """Names that are also sent as short strings, or stored, have 1 to 255 octets and no control characters."""
    for name in names:
        if not name:
            raise FieldError("a name is empty")
        encode_short(name)


def _check_new_names(*names: str) -> None:
    """Names that the request may create have visible characters only: no two names may look the same."""
    _check_names(*names)
    for name in names:
        hidden = unseen(name)
        if hidden is not None:
            raise FieldError(f"the name {name!r} has the invisible character {hidden}; leave it out")


CONNECTION = (ConnectionOpen, ConnectionAuthorize, ConnectionProfile, ConnectionReader, ConnectionWriter)
"""The RFC's own class."""
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

REQUESTS: dict[str, type[Request]] = {request.command.lower(): request for request in CONNECTION + _PROFILES}
"""All commands, by their names in lower case (MTL-19)."""

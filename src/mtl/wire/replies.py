"""The broker's replies on the control flow: one type per reply, and the members that requests share with them.

Members are kebab-case in JSON. They are absent when they are None, False or 0, unless their default is `always(...)`: a
granted member must be visible in the reply (the echo is the only negotiation).
Unknown members are ignored (MTL-09). Positions are sequences: 64 bits, from 1; `next` and `until` are exclusive.
"""

from __future__ import annotations

from copy import copy
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec

from mtl.errors import DataLoss, Refused
from mtl.limits import MAX_SHORT_STRING

T = TypeVar("T")

I64_MAX = (1 << 63) - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
"""A position, a number of contents or octets, or a time in µs since 1970 (UTC)."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=I64_MAX)]

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
"""A TCP port; 0 where the transport has none."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SHORT_STRING)]
"""A name. Requests check the octets and printability of names that are also sent as short strings."""


LogEpoch = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}\.[0-9a-f]{8}$")]
"""The id of an epoch of a log (PROTOCOL.md 5.1.1)."""

Epochs = tuple[tuple[Count, LogEpoch], ...]
"""Epochs of a log, ascending: the first sequence and the id of each."""

WrittenIn = tuple[Annotated[str, msgspec.Meta(max_length=MAX_SHORT_STRING)], LogEpoch]
"""The incarnation of a resource, and the epoch of its log to which a writer's contents belong."""


def always(value: T) -> T:
    """A default that is sent (msgspec omits only plain defaults)."""
    default: T = msgspec.field(default_factory=lambda: copy(value))
    return default


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One JSON object of the control flow."""


# --- members ------------------------------------------------------------------------------------------------


class Retention(Body, frozen=True, kw_only=True):
    """The retention policy of a resource. Contents are removed, oldest first, as soon as one of bytes, age and contents
    is exceeded.

    Contents that one of the `groups` has not confirmed are kept, unless `hard_bytes` is exceeded. None means no limit;
    `age` is in seconds.
    """

    bytes: Positive | None = None
    age: Annotated[float, msgspec.Meta(gt=0)] | None = None
    contents: Positive | None = None
    groups: tuple[Name, ...] = ()
    hard_bytes: Positive | None = None


LOCAL_KEY = "local-key"
"""The file of a broker's directory whose content proves that two processes see the same directory (PROTOCOL.md 5.6)."""


class LocalFiles(Body, frozen=True, kw_only=True):
    """The broker's files, for a client on the same machine (PROTOCOL.md 5.6).

    `key` is the content of the file LOCAL_KEY in `directory`: a client that reads it there sees the same files.
    """

    directory: str
    key: str


class Window(Body, frozen=True, kw_only=True):
    """Limits of the contents that were sent to a reader and not confirmed: contents, and stored octets."""

    contents: Positive | None = None
    bytes: Positive | None = None


class Description(Body, frozen=True, kw_only=True):
    """A resource: it has contents [earliest, next), `bytes` octets on disk, written between the two times (µs).

    `dead_letter` and `max_deliveries` are for its queues, where they are not the defaults. `trouble` says why it is
    stopped, or why its last contents were not stored. `log_epoch` is that of the last content, and `history` has all
    epochs of the log, if requested. While the broker cannot open the log, the positions, `bytes` and `contents` are
    absent.
    """

    resource: str
    incarnation: str
    known_earliest: Count | None = msgspec.field(default=None, name="earliest")
    known_next: Count | None = msgspec.field(default=None, name="next")
    log_epoch: str | None = None
    history: Epochs | None = None
    bytes: Count | None = None
    contents: Count | None = None
    oldest_time: int | None = None
    newest_time: int | None = None
    durability: str = always("sync")
    retention: Retention | None = None
    state: str = always("serving")
    trouble: str | None = None
    dead_letter: str | None = None
    max_deliveries: int | None = None

    @property
    def earliest(self) -> int:
        """The sequence of the first content. Raises `Refused` 503 `storage` while it is not known."""
        return self._position(self.known_earliest)

    @property
    def next(self) -> int:
        """The sequence of the next content. Raises as `earliest`."""
        return self._position(self.known_next)

    def _position(self, position: int | None) -> int:
        if position is None:
            raise Refused(
                503,
                "storage",
                f"the contents of resource {self.resource!r} are not known: {self.trouble}; the broker tries again by "
                "itself, unless the log is damaged",
            )
        return position


class Lost(Body, frozen=True, kw_only=True):
    """Contents [first, end) that a group had confirmed and that are not in the log any more (PROTOCOL.md 5.1.1)."""

    first: int
    end: int


class Unheld(Body, frozen=True, kw_only=True):
    """Why a resource is not held: the status, reason and message of a refusal, and the lost range for `data-loss`."""

    status: int
    reason: str
    message: str
    first: int | None = None
    end: int | None = None
    resume: int | None = msgspec.field(name="from", default=None)

    @classmethod
    def of(cls, refused: Refused) -> Unheld:
        """The refusal of one resource."""
        members = refused.members if isinstance(refused, DataLoss) else {}
        return cls(
            status=refused.status,
            reason=refused.reason,
            message=refused.message,
            first=members.get("first"),
            end=members.get("end"),
            resume=members.get("from"),
        )

    def error(self, resource: str) -> Refused:
        """The refusal as an error."""
        if self.reason == "data-loss" and self.first is not None and self.end is not None:
            return DataLoss(resource, self.first, self.end, self.message, resume=self.resume)
        return Refused(self.status, self.reason, self.message)


class CursorInfo(Body, frozen=True, kw_only=True):
    """A group's cursor in a resource: `position` is the next content that the group has not confirmed, `behind` the
    number of contents from there on.

    `bytes_behind` are the stored octets of these, `seconds_behind` is the age of the oldest one. `held`: a live lease
    holds the cursor, that of `holder`; `epoch` counts its holders so far. `log_epoch` is that of the last content
    before `position`; `lost` is present when the log does not contain that position any more. `next` and the three
    `behind` members are absent while the broker cannot open the resource's log.
    """

    group: str
    resource: str
    incarnation: str
    position: Count
    next: Count | None = None
    behind: int | None = None
    bytes_behind: int | None = None
    seconds_behind: float | None = None
    held: bool = always(False)
    holder: str | None = None
    epoch: int = always(0)
    log_epoch: str | None = None
    lost: Lost | None = None


class QueueInfo(Body, frozen=True, kw_only=True):
    """A queue (`group`) of a resource: all contents below `position` are settled.

    Of the `unsettled` contents before `next` some are `ready`, `delivered` to one of the `consumers`, or `delayed`
    after a Reject. `dead` counts all contents that were moved to the resource `dead_letter` so far.
    `next`, `unsettled` and `ready` are absent while the broker cannot open the resource's log.
    """

    group: str
    resource: str
    incarnation: str
    position: Count
    next: Count | None = None
    unsettled: int | None = None
    ready: int | None = None
    delivered: int = always(0)
    delayed: int = always(0)
    dead: int = always(0)
    consumers: int = always(0)
    dead_letter: str
    max_deliveries: int


class StageSealed(Body, frozen=True, kw_only=True):
    """A sealed stage: its public id, the contents for each resource, and their octets on disk."""

    stage: str
    contents: dict[str, int] = always({})
    bytes: int = always(0)


class StageInfo(Body, frozen=True, kw_only=True):
    """A stage as Stage.Describe shows it: durable contents that no reader sees; `created` and `expires` in µs.

    `trouble` is the reason why it takes no contents, or why its last contents were not stored.
    """

    stage: str
    application: str
    version: int
    state: str = always("open")
    contents: dict[str, int] = always({})
    bytes: int = always(0)
    created: int | None = None
    expires: int | None = None
    trouble: str | None = None


class Published(Body, frozen=True, kw_only=True):
    """The contents that a commit added to one resource: [first, first + contents)."""

    first: Count
    contents: Count


class ApplicationInfo(Body, frozen=True, kw_only=True):
    """The last commit of an application, `committed` in µs; `replays` counts the commits that it repeated so far, and
    `omitted` further resources, which do not fit a reply.
    """

    application: str
    version: int
    digest: dict[str, str] = msgspec.field(default_factory=dict)
    query: str | None = None
    resources: dict[str, Published] = always({})
    omitted: int | None = None
    committed: int | None = None
    replays: int = always(0)


# --- replies ------------------------------------------------------------------------------------------------


class Reply(Body, frozen=True, kw_only=True):
    """Any reply. `status` is text for people; programs use the three digits, the `code` of the class."""

    code: ClassVar[int] = 200
    status: str = always("OK")


class Ok(Reply, frozen=True, kw_only=True):
    """200 without members of its own (MTL-37)."""


class Ready(Reply, frozen=True, kw_only=True):
    """201: authenticated, or authentication is not needed (MTL-26, 31).

    `session` is a token that later requests carry, `boot` changes when the broker restarts, `max_content` and
    `max_pack` are octets, `heartbeat` the broker's Ping interval in seconds. A server that implements only the
    RFC sends none of them. `user`: the client may use the names of groups, queues, writers and applications that begin
    with it and a dot without a grant; absent where the client may use all. `acting_as` is that of the Authorize, if it
    was applied.
    """

    code: ClassVar[int] = 201
    status: str = always("Ready")
    profiles: list[str]
    session: str | None = None
    user: str | None = None
    acting_as: str | None = None
    boot: str | None = None
    max_content: Positive | None = None
    max_pack: Positive | None = None
    heartbeat: Seconds | None = None


class Unauthorized(Reply, frozen=True, kw_only=True):
    """401, at any time: authenticate, or authenticate again, by one of `mechanisms` (MTL-27, 28)."""

    code: ClassVar[int] = 401
    status: str = always("Unauthorized")
    mechanisms: list[str]


class Challenged(Reply, frozen=True, kw_only=True):
    """402: the next step of SASL; `challenge` is BASE64 (MTL-32)."""

    code: ClassVar[int] = 402
    status: str = always("Challenged")
    mechanism: str
    challenge: str


class DataLease(Reply, frozen=True, kw_only=True):
    """202: the lease, and everything that was granted with it (MTL-48).

    The data socket is at `port` of the control socket's host, or at `endpoint` where there is no port. With
    `shared_socket` it is the control socket, so the client uses the endpoint that it has for this one. For readers:
    `from_` and `until` as resolved, the `window`, the resource's `earliest` and `next`; with a group its `epoch` and
    `position`; `local` when Contents may have the place of a pack; the `history` of the log's epochs, from that of the
    last content before `from_` up to the one of this run of the broker. For consumers of queues: the queue's name as
    `group`. For writers: the `last` publishing number per resource, the `epoch` of the name, the public id of the
    `stage`, and in `log_epochs`, per resource, the epoch that their contents will have. For holders of several
    resources: those that are `held`, each with its epoch of the holding, and the `unheld` ones. `binding` when the
    Response to a Lease says whether that Lease bound it. An RFC server sends status, port and lease only; a member that
    is not echoed is not granted.
    """

    code: ClassVar[int] = 202
    status: str = always("Data Lease")
    port: Port
    lease: str
    endpoint: str | None = None
    shared_socket: bool = False
    packed: bool = always(False)
    binding: bool = False
    from_: Count | None = msgspec.field(name="from", default=None)
    until: Count | None = None
    window: Window | None = None
    incarnation: str | None = None
    incarnations: dict[str, str] | None = None
    earliest: Count | None = None
    next: Count | None = None
    position: Count | None = None
    history: Epochs | None = None
    local: LocalFiles | None = None
    last: dict[str, Count] | None = None
    log_epochs: dict[str, WrittenIn] | None = None
    epoch: Count | None = None
    stage: str | None = None
    group: str | None = None
    held: dict[str, int] | None = None
    unheld: dict[str, Unheld] | None = None
    max_content: Positive | None = None
    max_pack: Positive | None = None
    heartbeat: Seconds | None = None


class LeaseClosed(Reply, frozen=True, kw_only=True):
    """200 to Lease.Close; with the sealed stage when the lease was that of a stage."""

    stage: StageSealed | None = None


class ResourceCreated(Reply, frozen=True, kw_only=True):
    """200 to Resource.Create."""

    resource: Description


class Listed(Reply, frozen=True, kw_only=True):
    """200 with a page of a list. `continue_` is present if there may be further entries: the same request with this
    member gets the next page (PROTOCOL.md 2.4).
    """

    continue_: list[str] | None = msgspec.field(name="continue", default=None)


class DescriptionList(Listed, frozen=True, kw_only=True):
    """200 to Resource.List and Resource.Describe; sorted by name.

    `state` stands for the state of all resources at this answer. `removed` is present in an answer to `since` that has
    only changes: the resources that do not exist any more.
    """

    resources: list[Description]
    state: str | None = None
    removed: list[str] | None = None


class Located(Reply, frozen=True, kw_only=True):
    """200 to Resource.Locate.

    By time: the first content at or after it, with its chunk's append time (µs); without one `match` is False and
    `sequence` is the resource's `next`. By range: `sequence` is the end, exclusive; `bytes` are the stored octets up to
    there and `timestamp` is the append time of the first content, None at the end of the resource. `log_epoch` is that
    of the last content before `sequence`.
    """

    sequence: Count
    log_epoch: str | None = None
    timestamp: int | None = None
    match: bool = always(True)
    bytes: int | None = None


class CursorOpened(Reply, frozen=True, kw_only=True):
    """200 to Cursor.Open: the group's position, the epoch of the last content before it, and whether this request
    created the cursor.
    """

    position: Count
    log_epoch: str | None = None
    created: bool = always(False)
    incarnation: str | None = None


class CursorWasReset(Reply, frozen=True, kw_only=True):
    """200 to Cursor.Reset: the group's new position, the epoch of the last content before it, and the position `before`
    the reset.
    """

    position: Count
    log_epoch: str | None = None
    before: Count
    incarnation: str | None = None


class CursorList(Listed, frozen=True, kw_only=True):
    """200 to Cursor.Describe."""

    cursors: list[CursorInfo]


class QueueList(Listed, frozen=True, kw_only=True):
    """200 to Queue.Describe; sorted by resource and name."""

    queues: list[QueueInfo]


class Committed(Reply, frozen=True, kw_only=True):
    """200 to Stage.Commit: the published contents, now or (`already`) by an earlier commit of the same version.

    `digest` is that of the first request with this version. `omitted` is the number of further resources, which do not
    fit a reply.
    """

    already: bool = always(False)
    resources: dict[str, Published] = always({})
    omitted: int | None = None
    digest: dict[str, str] = msgspec.field(default_factory=dict)


class StageList(Listed, frozen=True, kw_only=True):
    """200 to Stage.Describe."""

    stages: list[StageInfo]
    applications: list[ApplicationInfo]


Durability = Literal["sync", "os"]
"""The place of contents when they are confirmed: "sync": on the disk, "os": with the operating system."""

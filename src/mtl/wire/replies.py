"""What the broker answers on the control flow: one type per reply, and the members that requests share with them.

Members are kebab-case in JSON and absent when they are None, False or 0, unless `always` says that they are sent
nevertheless: a member that is granted must be seen to be granted (the echo is the only negotiation).
Unknown members are ignored (MTL-09). Positions are sequences: 64 bits, from 1; `next` and `until` are exclusive.
"""

from __future__ import annotations

from copy import copy
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec

from mtl.errors import Refused
from mtl.limits import MAX_SHORT_STRING

T = TypeVar("T")

I64_MAX = (1 << 63) - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
"""A position, a number of contents or octets, or a time in µs since 1970 (UTC)."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=I64_MAX)]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SHORT_STRING)]
"""A name. Those that also travel as short strings are checked for octets and printability by their request."""


LogEpoch = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}\.[0-9a-f]{8}$")]
"""The id of an epoch of a log (PROTOCOL.md 5.1.1)."""

Epochs = tuple[tuple[int, str], ...]
"""Epochs of a log, ascending: the first sequence and the id of each."""

WrittenIn = tuple[Annotated[str, msgspec.Meta(max_length=MAX_SHORT_STRING)], LogEpoch]
"""The incarnation of a resource, and the epoch of its log that a writer's contents are of."""


def always(value: T) -> T:
    """A default that is sent although it is one (msgspec omits only plain defaults)."""
    default: T = msgspec.field(default_factory=lambda: copy(value))
    return default


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One JSON object of the control flow."""


# --- members ------------------------------------------------------------------------------------------------


class Retention(Body, frozen=True, kw_only=True):
    """What a resource keeps. Contents go, oldest first, as soon as ANY of bytes, age and contents is exceeded.

    `groups` hold back what they have not confirmed, up to `hard_bytes`, which always wins. None means no limit;
    `age` is in seconds.
    """

    bytes: Positive | None = None
    age: Annotated[float, msgspec.Meta(gt=0)] | None = None
    contents: Positive | None = None
    groups: tuple[Name, ...] = ()
    hard_bytes: Positive | None = None


LOCAL_KEY = "local-key"
"""The file of a broker's directory whose contents prove that two processes see the same one (PROTOCOL.md 5.6)."""


class LocalFiles(Body, frozen=True, kw_only=True):
    """Where a broker's files are on the machine that it shares with the client (PROTOCOL.md 5.6).

    `key` is what the file LOCAL_KEY of the `directory` holds: a client that reads it there sees the same files.
    """

    directory: str
    key: str


class SharedMemory(Body, frozen=True, kw_only=True):
    """Memory for a writer's packs on the machine that it shares with the broker (PROTOCOL.md 5.7).

    `file` is where the broker's process has it open, `size` its octets; it begins with `key`.
    """

    file: str
    size: int
    key: str


class Window(Body, frozen=True, kw_only=True):
    """How much may be on its way to a reader and not confirmed: contents, and octets as they are stored."""

    contents: Positive | None = None
    bytes: Positive | None = None


class Description(Body, frozen=True, kw_only=True):
    """A resource: contents [earliest, next) are there, `bytes` octets on disk, written between the two times (µs).

    `dead_letter` and `max_deliveries` are for its queues, where they are not the defaults. `trouble` says why it is
    stopped, or why what came last was not kept. `log_epoch` is that of the last content, and `history` has all epochs
    of the log, where they were asked for. While the broker cannot open its log nobody knows what it holds: the
    positions, `bytes` and `contents` are absent then.
    """

    resource: str
    incarnation: str
    known_earliest: int | None = msgspec.field(default=None, name="earliest")
    known_next: int | None = msgspec.field(default=None, name="next")
    log_epoch: str | None = None
    history: Epochs | None = None
    bytes: int | None = None
    contents: int | None = None
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
        """The first content that is there. Raises `Refused` 503 `storage` where it is not known; it may be later."""
        return self._known(self.known_earliest)

    @property
    def next(self) -> int:
        """The sequence of the content that comes next. Raises as `earliest`."""
        return self._known(self.known_next)

    def _known(self, position: int | None) -> int:
        if position is None:
            raise Refused(
                503,
                "storage",
                f"what resource {self.resource!r} holds is not known: {self.trouble}; the broker tries again by "
                "itself, unless the log is damaged",
            )
        return position


class Lost(Body, frozen=True, kw_only=True):
    """Contents [first, end) that a group had confirmed, and that are not in the log any more (PROTOCOL.md 5.1.1)."""

    first: int
    end: int


class CursorInfo(Body, frozen=True, kw_only=True):
    """A group's place in a resource: `position` is the next content it has not confirmed, `behind` those ahead.

    `bytes_behind` are the stored octets of those that are still kept, `seconds_behind` the age of the oldest of them.
    `held` says that a live lease holds it, `holder` whose, and `epoch` counts the holders it has had. `log_epoch` is
    that of the last content before `position`; `lost` is there when the log does not contain that position any more.
    `next` and what is behind are absent while the broker cannot open the resource's log.
    """

    group: str
    resource: str
    incarnation: str
    position: int
    next: int | None = None
    behind: int | None = None
    bytes_behind: int | None = None
    seconds_behind: float | None = None
    held: bool = always(False)
    holder: str | None = None
    epoch: int = always(0)
    log_epoch: str | None = None
    lost: Lost | None = None


class QueueInfo(Body, frozen=True, kw_only=True):
    """A queue (`group`) of a resource: below `position` everything is settled.

    Of the `unsettled` contents before `next` some are `ready`, `delivered` to one of the `consumers`, or `delayed`
    after a Reject. `dead` counts those that ever went to the resource `dead_letter`, for one after `max_deliveries`.
    `next`, `unsettled` and `ready` are absent while the broker cannot open the resource's log.
    """

    group: str
    resource: str
    incarnation: str
    position: int
    next: int | None = None
    unsettled: int | None = None
    ready: int | None = None
    delivered: int = always(0)
    delayed: int = always(0)
    dead: int = always(0)
    consumers: int = always(0)
    dead_letter: str
    max_deliveries: int


class Sealed(Body, frozen=True, kw_only=True):
    """A stage that takes no more: its public id, the contents for each resource, and their octets on disk."""

    stage: str
    contents: dict[str, int] = always({})
    bytes: int = always(0)


class StageInfo(Body, frozen=True, kw_only=True):
    """A stage as Stage.Describe shows it: durable contents that no reader sees; `created` and `expires` in µs.

    `trouble` says why it takes nothing, or why what came last was not kept.
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
    """What a commit put into one resource: contents [first, first + contents)."""

    first: int
    contents: int


class ApplicationInfo(Body, frozen=True, kw_only=True):
    """What an application committed last, `committed` in µs; `replays` is how often it repeated a commit, that or an
    earlier one.
    """

    application: str
    version: int
    digest: str | None = None
    query: str | None = None
    resources: dict[str, Published] = always({})
    committed: int | None = None
    replays: int = always(0)


# --- replies ------------------------------------------------------------------------------------------------


class Reply(Body, frozen=True, kw_only=True):
    """Any reply. `status` is text for people; programs go by the three digits, which the class knows as `code`."""

    code: ClassVar[int] = 200
    status: str = always("OK")


class Ok(Reply, frozen=True, kw_only=True):
    """200 without anything to tell (MTL-37)."""


class Ready(Reply, frozen=True, kw_only=True):
    """201: authenticated, or no need to be (MTL-26, 31).

    `session` is a token that later requests carry, `boot` changes when the broker restarts, `max_content` and
    `max_pack` are octets, `heartbeat` the broker's Ping interval in seconds. A server that only knows the RFC sends
    none of them. `user` is whose names of groups, queues, writers and applications the client may use without a grant:
    those that begin with it and a dot. It is absent where the client may use all.
    `acting_as` repeats the Authorize's where it was done.
    """

    code: ClassVar[int] = 201
    status: str = always("Ready")
    profiles: list[str]
    session: str | None = None
    user: str | None = None
    acting_as: str | None = None
    boot: str | None = None
    max_content: int | None = None
    max_pack: int | None = None
    heartbeat: float | None = None


class Unauthorized(Reply, frozen=True, kw_only=True):
    """401: authenticate by one of `mechanisms`, now or again; at any time (MTL-27, 28)."""

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

    The data socket is at `port` of the host that was asked, or at `endpoint` where there is no port. For readers:
    `from_` and `until` as resolved, the `window`, the resource's `earliest` and `next`; with a group its `epoch` and
    `position`; `local` when packs may be told by their place; the `history` of the log's epochs, from that of the last
    content before `from_` up to the one of this run of the broker. For consumers of queues: the queue's name as
    `group`. For writers: the `last` publishing number per resource, the `epoch` of the name, the public id of the
    `stage`, `memory` that they may put packs in, per resource in `log_epochs` the epoch that their contents will have.
    `binding` when the Response to a Lease tells whether it was bound by it. An RFC server sends status, port and lease
    only; what it does not echo it did not grant.
    """

    code: ClassVar[int] = 202
    status: str = always("Data Lease")
    port: int
    lease: str
    endpoint: str | None = None
    packed: bool = always(False)
    binding: bool = False
    from_: int | None = msgspec.field(name="from", default=None)
    until: int | None = None
    window: Window | None = None
    incarnation: str | None = None
    incarnations: dict[str, str] | None = None
    earliest: int | None = None
    next: int | None = None
    position: int | None = None
    history: Epochs | None = None
    local: LocalFiles | None = None
    memory: SharedMemory | None = None
    last: dict[str, int] | None = None
    log_epochs: dict[str, WrittenIn] | None = None
    epoch: int | None = None
    stage: str | None = None
    group: str | None = None
    max_content: int | None = None
    max_pack: int | None = None
    heartbeat: float | None = None


class LeaseClosed(Reply, frozen=True, kw_only=True):
    """200 to Lease.Close; with what was sealed when the lease was a stage's."""

    stage: Sealed | None = None


class ResourceCreated(Reply, frozen=True, kw_only=True):
    """200 to Resource.Create."""

    resource: Description


class Resources(Reply, frozen=True, kw_only=True):
    """200 to Resource.List and Resource.Describe; sorted by name."""

    resources: list[Description]


class Located(Reply, frozen=True, kw_only=True):
    """200 to Resource.Locate.

    By time: the first content at or after it, its chunk's append time (µs); `match` is False and `sequence` is `next`
    when there is none. By range: `sequence` is the end, exclusive; `bytes` are the stored octets up to there and
    `timestamp` is the append time of the first content, None at the end of the resource. `log_epoch` is that of the
    last content before `sequence`.
    """

    sequence: int
    log_epoch: str | None = None
    timestamp: int | None = None
    match: bool = always(True)
    bytes: int | None = None


class CursorOpened(Reply, frozen=True, kw_only=True):
    """200 to Cursor.Open: where the group stands, with the epoch of the last content before, and whether it was made
    just now.
    """

    position: int
    log_epoch: str | None = None
    created: bool = always(False)
    incarnation: str | None = None


class CursorWasReset(Reply, frozen=True, kw_only=True):
    """200 to Cursor.Reset: where the group stands now, with the epoch of the last content before that, and where it
    stood `before`.
    """

    position: int
    log_epoch: str | None = None
    before: int
    incarnation: str | None = None


class Cursors(Reply, frozen=True, kw_only=True):
    """200 to Cursor.Describe."""

    cursors: list[CursorInfo]


class Queues(Reply, frozen=True, kw_only=True):
    """200 to Queue.Describe; sorted by resource and name."""

    queues: list[QueueInfo]


class Committed(Reply, frozen=True, kw_only=True):
    """200 to Stage.Commit: what was published, now or (`already`) by an earlier commit of the same version.

    `digest` says in one string how much went where, so that a replay with other contents is noticed.
    """

    already: bool = always(False)
    resources: dict[str, Published] = always({})
    digest: str = always("")


class Stages(Reply, frozen=True, kw_only=True):
    """200 to Stage.Describe."""

    stages: list[StageInfo]
    applications: list[ApplicationInfo]


Durability = Literal["sync", "os"]
"""What Confirm promises: "sync" is on the disk, "os" is with the operating system."""

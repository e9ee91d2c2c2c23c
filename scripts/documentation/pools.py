"""The tables of what peers can fill: everything in the broker and its doors that grows by what peers do, and its share.

The quotas come from `QUOTAS`, the pools of the doors from `DOOR_POOLS`, all numbers from the modules of limits.
`SHARED` has the broker's pools without a quota, `SINGLE` the bounds of one object, which no peer shares with others.
Together they have every bound of these modules.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final, NamedTuple

from mtl.broker import limits as broker
from mtl.broker.queues import limits as queues
from mtl.broker.quotas.quotas import DEFAULTS, QUOTAS, highest, total_of
from mtl.doors import limits as doors
from mtl.doors.pools import DOOR_POOLS
from mtl.net import limits as net
from mtl.net import open_connections, pace

MODULES: Final[dict[str, ModuleType]] = {
    "broker": broker,
    "queues": queues,
    "net": net,
    "connections": open_connections,
    "pace": pace,
    "doors": doors,
}


class Pool(NamedTuple):
    """A row. `bounds` are names of limits as `module.NAME`; the texts say who can fill the pool, whose share it counts
    against, and what other users see when it is full.
    """

    name: str
    bounds: tuple[str, ...]
    filled_by: str
    share: str
    others: str


SHARED: Final = (
    Pool(
        "open connections",
        ("connections.CONNECTIONS_OPEN",),
        "any peer",
        "its address",
        "peers at other addresses connect",
    ),
    Pool(
        "silent connections",
        ("net.SILENT_CONNECTIONS",),
        "any peer",
        "its address: the oldest ones of the address with the most end",
        "connect, and send their first message at once",
    ),
    Pool(
        "new connections",
        ("pace.CONNECTION_BURST", "pace.CONNECTIONS_PER_S"),
        "any peer",
        "its address",
        "peers at other addresses connect",
    ),
    Pool(
        "counted addresses",
        ("pace.PACED_SOURCES",),
        "peers at many addresses",
        "none: the longest unused entry leaves",
        "an address that was forgotten may connect at the full rate again",
    ),
    Pool(
        "sessions before a log-in",
        ("broker.MAX_SESSIONS",),
        "any peer",
        "none: sessions without a log-in leave first, the longest silent ones before others",
        "a peer that is about to log in opens a session again; sessions of users stay",
    ),
    Pool(
        "wrong passwords",
        ("broker.MAX_FAILED_LOGINS",),
        "any peer",
        "its address and the user; names without a user have a table of their own",
        "the oldest count ends early",
    ),
    Pool(
        "waiting password checks",
        ("broker.MAX_PASSWORD_CHECKS", "broker.MAX_PASSWORD_CHECKS_ADDRESS"),
        "any peer that uses PLAIN",
        "its address; addresses take turns",
        "one check of each other address comes first; SCRAM and keys need none",
    ),
    Pool(
        "contents that are not synced yet",
        ("broker.INBOUND_OCTETS",),
        "writers",
        "the user that sent them; a part is left for others",
        "nothing; when all users together have filled it, contents come back (Reject with recycle) and are sent again",
    ),
    Pool(
        "connections whose unsent octets are known",
        ("net.PEERS_KNOWN",),
        "any peer",
        "none: the oldest entry leaves",
        "nothing: the octets of a forgotten connection still count for its user",
    ),
    Pool(
        "groups of contents that wait for the disk",
        (),
        "writers to many resources",
        "the user that created the resource; users take turns",
        "one group of each other user comes first",
    ),
    Pool(
        "new logs that wait for the disk",
        (),
        "users that create resources or fill stages",
        "the user; users take turns",
        "one log of each other user comes first",
    ),
    Pool(
        "changes of records that wait for the disk",
        ("broker.ACTIONS_TOGETHER",),
        "users that create, delete, commit or move cursors",
        "none: all that wait are one transaction",
        "a change waits for one transaction of others",
    ),
    Pool(
        "reads that wait for the disk",
        (),
        "readers, and Describes of resources whose oldest content is not in memory",
        "the user; users take turns, and a lease has one at a time",
        "one read of each other user comes first",
    ),
    Pool(
        "remembered changes of resources",
        ("broker.MAX_CHANGES",),
        "users that create and delete resources",
        "none: the oldest change leaves; the quota of resources bounds the present ones",
        "a Describe with an old state is answered in full, in pages",
    ),
    Pool(
        "remembered comparisons of names with rights and patterns",
        ("broker.MAX_RIGHTS_REMEMBERED", "broker.MAX_MATCHES_REMEMBERED"),
        "users that name many names",
        "none: a cache",
        "a comparison is computed again, some microseconds each",
    ),
)
"""The broker's pools without a quota: `QUOTAS` has the others, `DOOR_POOLS` those of the doors."""

SINGLE: Final[dict[str, str]] = {
    "broker.MAX_PATTERN_COST": "a pattern",
    "broker.MAX_PATTERN_WORK": "one step of a list by pattern",
    "broker.MAX_LEASES_PER_SESSION": "a session",
    "broker.AUTHENTICATION_ATTEMPTS": "a session",
    "broker.FAILED_LOGINS": "a user at an address",
    "broker.MAX_PAGE": "an answer",
    "broker.PAGE_OCTETS": "an answer",
    "broker.MAX_PAGE_SCANNED": "an answer",
    "broker.MAX_UNCONFIRMED": "a writing lease",
    "broker.GROUP_OCTETS": "a group commit",
    "broker.MAX_WINDOW_CONTENTS": "a reading lease",
    "broker.MAX_WINDOW_OCTETS": "a reading lease",
    "broker.TURN_OCTETS": "a turn of a reader",
    "broker.TURN_SENDS": "a turn of a reader",
    "broker.TURN_CONTENTS": "a turn of a reader",
    "broker.FANOUT_RING_OCTETS": "a reading lease of the profile test",
    "broker.SEND_BACKLOG": "a connection",
    "queues.QUEUE_RANGES": "a queue",
    "queues.QUEUE_RETURNED": "a queue",
    "queues.QUEUE_OUTSTANDING": "a queue",
    "queues.QUEUE_AHEAD": "a queue",
    "queues.MAX_QUEUE_WINDOW_CONTENTS": "a consumer",
    "queues.QUEUE_BURY": "a queue, at each check",
    "queues.DEAD_LETTER_CHAIN": "Resource.Create",
    "net.CONTROL_HWM": "a connection",
    "net.CONTROL_WAITING": "a connection",
    "net.PACKED_HWM": "a connection",
    "net.PLAIN_WAITING": "a connection",
    "net.BURST_HEADERS": "a read of a socket",
    "net.BURST_BODIES": "a read of a socket",
    "net.DRAIN_MESSAGES": "a read of a socket",
    "net.QUEUED_OCTETS": "a connection",
    "net.GROUP": "a connection",
    "doors.DOOR_WRITER_OCTETS": "a writer of a door",
    "doors.DOOR_RUN_CONTENTS": "a turn of a peer",
    "doors.DOOR_RUN_OCTETS": "a turn of a peer",
    "doors.DOOR_READER_CONTENTS": "a subscription",
    "doors.DOOR_READER_OCTETS": "a subscription",
    "doors.DOOR_READER_LEAST": "a subscription of an owner with many",
    "doors.DOOR_ARRIVING_FREE": "a connection",
    "doors.DOOR_ARRIVING_STEP": "a connection",
}
"""Bounds of one object, which only its owner fills; the number of objects is bounded by a quota or a pool."""

NOT_FILLED: Final = frozenset({
    "broker.MARKS_AT_ONCE",
    "broker.SESSIONS_LEAVING",
    "broker.PASSWORD_CHECKS_AT_ONCE",
    "broker.WINDOW_CONTENTS",
    "broker.WINDOW_OCTETS",
    "broker.PREPARED",
    "broker.LOOP_COMMIT",
    "broker.MEMORY_RETURNED",
    "queues.DEFAULT_QUEUE",
    "queues.QUEUE_LOOK",
    "queues.QUEUE_DELIVERIES",
    "net.MAX_SOCKETS",
    "net.ZERO_COPY",
    "net.VIEWED",
    "net.MESSAGE_OVERHEAD",
    "net.DESCRIPTORS",
    "net.OTHER_FILES",
    "doors.DOOR_SESSIONS",
})  # fmt: skip
"""Defaults, and numbers that no peer reaches."""


def quotas() -> str:
    """A row for each quota: what it counts, its default, its highest value, and the total of all users."""
    lines = [
        "| pool | quota | of a user, by default | at most | of all users | limit |",
        "|---|---|---|---|---|---|",
    ]
    for quota, terms in QUOTAS.items():
        total, most = total_of(quota), highest(quota)
        cells = [
            terms.unit,
            f"`{quota.value}`",
            f"{DEFAULTS[quota]:,}",
            "any number" if most is None else f"{most:,}",
            "the disk" if total is None else f"{total:,}",
            "" if terms.total is None else f"`{terms.total}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shared() -> str:
    """A row for each pool without a quota."""
    lines = [
        "| pool | limit | filled by | counts against | others, when it is full |",
        "|---|---|---|---|---|",
    ]
    for pool in SHARED:
        limits = ", ".join(f"`{bound.partition('.')[2]}` = {number(bound)}" for bound in pool.bounds)
        lines.append(f"| {pool.name} | {limits} | {pool.filled_by} | {pool.share} | {pool.others} |")
    return "\n".join(lines)


def doors_pools() -> str:
    """A row for each pool of the doors."""
    lines = [
        "| pool | doors | limit of all | share | counts against | others, when an owner has its share |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {pool.unit} | {pool.place} | {_named(pool.total)} | {_named(pool.share) or 'a quarter'} | {pool.owner} "
        f"| {pool.others} |"
        for pool in DOOR_POOLS.values()
    ]
    return "\n".join(lines)


def _named(names: str) -> str:
    """Names of limits with their values; of options, and words, as they are."""
    return ", ".join(
        f"`{name}` = {number(f'doors.{name}')}"
        if name.isupper()
        else f"`{name}`"
        if name.partition(".")[0] in {"max-sessions", "quotas"}
        else name
        for name in names.split(", ")
    )


def single() -> str:
    """A row for each bound of one object."""
    lines = ["| bound of | limit | value |", "|---|---|---|"]
    by_object = sorted(SINGLE.items(), key=lambda item: item[1])
    lines += [f"| {of} | `{bound.partition('.')[2]}` | {number(bound)} |" for bound, of in by_object]
    return "\n".join(lines)


def number(bound: str) -> str:
    """The value of a limit, as `module.NAME`."""
    module, _, name = bound.partition(".")
    return (
        f"{getattr(MODULES[module], name):,g}"
        if name.endswith("_S")
        else f"{getattr(MODULES[module], name):,}"
    )


def unnamed() -> list[str]:
    """The limits that no table names: all numbers of the modules but times, and of the doors those of all doors."""
    named = {bound for pool in SHARED for bound in pool.bounds} | SINGLE.keys() | NOT_FILLED
    named |= {f"broker.{terms.total}" for terms in QUOTAS.values()}
    named |= {
        f"doors.{name}" for pool in DOOR_POOLS.values() for name in f"{pool.total}, {pool.share}".split(", ")
    }
    return [
        f"{module}.{name}"
        for module, limits in MODULES.items()
        for name in vars(limits)
        if name.isupper()
        and not name.startswith(("MAX_CONTENT", "_"))
        and not name.endswith(("_S", "_MS"))
        and (module != "doors" or name.startswith("DOOR_"))
        and f"{module}.{name}" not in named
    ]

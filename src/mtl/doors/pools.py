"""Pools: what all peers of a door share, each with a total and with a share for each of its owners.

The shape is that of the broker's quotas (`mtl.broker.quotas`). The owner is a peer's user. A door without users knows
only addresses: beyond this machine the address is the owner. On a door for this machine only, all peers have the same
address, so there each connection is an owner.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from mtl.doors import limits
from mtl.doors.budget import Budget
from mtl.doors.failure_log import FailureLog, PeerAddress
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.unsent import Unsent, Windows
from mtl.shares import Uses, default_share, highest_share
from mtl.wire.control import OVERLOADED, QUOTA


class DoorQuota(StrEnum):
    """The pools whose shares the configuration can set, by their names there."""

    SESSIONS = "sessions"
    SUBSCRIPTIONS = "subscriptions"
    INBOUND_OCTETS = "inbound-octets"


class DoorPool(NamedTuple):
    """A row of the table. `total` is the name of the bound of all peers: in `mtl.doors.limits`, or an option of the
    door. `share` is the name of an owner's bound, empty for a quarter of the total. `owner` says whose share a use
    counts for, and `others` what the other peers see when an owner has its whole share. `unit` and `remedy` are parts
    of a refusal.
    """

    place: str
    unit: str
    total: str
    share: str
    owner: str
    others: str
    remedy: str = ""


_USER: Final = "the user; without users the address, or on loopback the connection"

DOOR_POOLS: Final[Mapping[str, DoorPool]] = {
    "log-ins": DoorPool(
        "all doors",
        "connections that have not logged in",
        "DOOR_PENDING",
        "DOOR_PENDING_ADDRESS",
        "the address",
        "nothing: the oldest connection of the address is closed, and every one after DOOR_LOGIN_S",
    ),
    "password checks": DoorPool(
        "doors on WebSocket",
        "password checks at the broker at once",
        "DOOR_LOGINS",
        "DOOR_LOGINS_ADDRESS",
        "the address",
        "nothing: further checks of the address wait",
    ),
    "users": DoorPool(
        "all doors",
        "users with a connection to the broker",
        "DOOR_USERS",
        "one each",
        "the user",
        "nothing: the longest idle connection is closed; a further user is refused when all are busy",
    ),
    DoorQuota.SESSIONS: DoorPool(
        "all doors",
        "sessions",
        "max-sessions",
        "quotas.sessions",
        _USER,
        "nothing: further sessions of the owner are refused",
        "end some",
    ),
    DoorQuota.SUBSCRIPTIONS: DoorPool(
        "all doors",
        "subscriptions",
        "DOOR_SUBSCRIPTIONS",
        "quotas.subscriptions",
        _USER,
        "nothing: further subscriptions of the owner are refused",
        "end some",
    ),
    DoorQuota.INBOUND_OCTETS: DoorPool(
        "all doors",
        "octets that the broker has not confirmed",
        "DOOR_INBOUND",
        "quotas.inbound-octets",
        _USER,
        "nothing: the door reads no more contents from the peers of the owner",
    ),
    "incomplete messages": DoorPool(
        "doors on TCP and WebSocket",
        "octets reserved for large messages, from their begin until they are processed",
        "DOOR_ARRIVING",
        "",
        _USER,
        "nothing: the owner's further large messages wait in their sockets",
    ),
    "slow subscriptions": DoorPool(
        "all doors",
        "octets that subscriptions have taken and their peers have not received",
        "DOOR_UNSENT",
        "",
        _USER,
        "nothing: the owner's subscription that has waited longest is ended",
    ),
    "unhandled octets": DoorPool(
        "mc0",
        "octets of messages that were read and wait for their turn",
        "MC0_UNHANDLED",
        "",
        _USER,
        "a delay of MC0_STALL_S at most: a peer that makes no progress is disconnected",
        "wait for answers before sending more",
    ),
    "unsent octets": DoorPool(
        "mc0",
        "octets of messages that wait to be sent",
        "MC0_UNSENT",
        "",
        _USER,
        "nothing: the contents for the peers of the owner wait in the broker's log",
    ),
    "absent peers": DoorPool(
        "mc0",
        "remembered identities of silent peers",
        "MC0_ABSENT",
        "",
        "the user; without users the address",
        "nothing: the oldest identity of the owner is forgotten",
    ),
    "waiting connections": DoorPool(
        "mbws",
        "failed connections that wait for their clients, in the door and in mbws.connections",
        "MBWS_RETAINED",
        "",
        "the user; without users each connection is its own",
        "nothing: the oldest connection of the owner is forgotten",
    ),
    "writers": DoorPool(
        "all doors",
        "resources with an open writer",
        "DOOR_WRITERS",
        "all of it",
        "the user: each has its own; without users there is one for all",
        "without users one more request for a resource whose writer was closed",
    ),
    "failure lines": DoorPool(
        "all doors",
        "lines on failed subscriptions",
        "DOOR_FAILURES, DOOR_FAILURES_PER_S",
        "all of it",
        "the user at its address: each has its own",
        "nothing: the next line says how many were left out",
    ),
}
"""Everything that the peers of a door share. The bounds of one connection are in `mtl.doors.limits` only."""


def total_of(quota: DoorQuota, max_sessions: int) -> int:
    """The bound of all peers of a door."""
    if quota is DoorQuota.SESSIONS:
        return max_sessions
    total: int = getattr(limits, DOOR_POOLS[quota].total)
    return total


def shares_of(quotas: Mapping[DoorQuota, int], max_sessions: int) -> dict[DoorQuota, int]:
    """The share of an owner in each pool: as configured, or the default. ValueError for one that leaves no reserve."""
    shares = {}
    for quota in DoorQuota:
        total = total_of(quota, max_sessions)
        share = quotas.get(quota, default_share(total))
        if not 1 <= share <= highest_share(total):
            raise ValueError(
                f"quotas.{quota} = {share} is not from 1 to {highest_share(total)}: a quarter of the {total} stays for "
                "the other users"
            )
        shares[quota] = share
    return shares


class CountedPool:
    """The uses of one quantity, with their refusals."""

    def __init__(self, quota: DoorQuota, total: int, share: int) -> None:
        self._quota = quota
        self._total = total
        self._share = share
        self._uses = Uses()

    @property
    def used(self) -> int:
        """The uses of all owners together."""
        return self._uses.used

    def take(self, owner: str) -> None:
        """Count one more use. Raises `DoorRefusal` 403 when the owner has its whole share, 503 when the total is used
        up. The texts do not name the owner: a user may not know the addresses that it shares.
        """
        terms = DOOR_POOLS[self._quota]
        of_owner = self._uses.of(owner)
        if of_owner >= self._share:
            raise DoorRefusal(
                403,
                QUOTA,
                f"you have {of_owner} {terms.unit} at this door, and its limit {terms.share} is {self._share}: "
                f"{terms.remedy}, or have the administrator raise it",
            )
        if self.used >= self._total:
            raise DoorRefusal(
                503,
                OVERLOADED,
                f"this door has {self.used} {terms.unit}, and its limit {terms.total} is {self._total}: "
                "try again later",
            )
        self._uses.add(owner)

    def free(self, owner: str) -> None:
        """A use has ended."""
        self._uses.remove(owner)


class Shares:
    """The pools of one door. `local`: the door is reachable from this machine only."""

    def __init__(
        self, max_sessions: int, quotas: Mapping[DoorQuota, int] | None = None, *, local: bool = True
    ) -> None:
        shares = shares_of(quotas or {}, max_sessions)
        self.sessions, self.subscriptions = (
            CountedPool(quota, total_of(quota, max_sessions), shares[quota])
            for quota in (DoorQuota.SESSIONS, DoorQuota.SUBSCRIPTIONS)
        )
        inbound = DoorQuota.INBOUND_OCTETS
        self.inbound = Budget(total_of(inbound, max_sessions), shares[inbound])
        self.arriving = Budget(limits.DOOR_ARRIVING, default_share(limits.DOOR_ARRIVING))
        share = default_share(limits.DOOR_UNSENT)
        self.unsent = Unsent(limits.DOOR_UNSENT, share)
        self.windows = Windows(share, limits.DOOR_READER_LEAST, limits.DOOR_READER_OCTETS)
        self.failures = FailureLog(time.monotonic)
        self._local = local

    def owner(self, peer: PeerAddress) -> str:
        """The owner of a peer's uses."""
        if peer.user is not None:
            return peer.user
        return f"{peer.address}:{peer.port or peer.number}" if self._local else peer.address

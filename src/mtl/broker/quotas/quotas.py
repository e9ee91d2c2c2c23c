"""Quotas: bounds on the broker's resources that one user may use, so that enough is left for the others.
PROTOCOL.md 2.2.

They hold for users with grants. A principal that has all rights without a grant (in a broker without users) has
only the bounds of `limits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from mtl.broker import limits as broker_limits
from mtl.errors import Refused
from mtl.shares import default_share, highest_share
from mtl.wire.control import QUOTA


class Quota(StrEnum):
    """The quantities that are counted for each user, by their names in the configuration."""

    SESSIONS = "sessions"
    LEASES = "leases"
    LEASED_NAMES = "leased-names"
    REQUESTS = "requests"
    WAITS = "waits"
    WAITING_NAMES = "waiting-names"
    WAITING_PATTERNS = "waiting-patterns"
    RESOURCES = "resources"
    CURSORS = "cursors"
    QUEUES = "queues"
    APPLICATIONS = "applications"
    WRITER_NAMES = "writer-names"
    STAGES = "stages"
    STAGE_BYTES = "stage-bytes"
    STORED_BYTES = "stored-bytes"
    UNSENT_BYTES = "unsent-bytes"
    UNSENT_ANSWER_BYTES = "unsent-answer-bytes"
    WAITING_COMMANDS = "waiting-commands"
    FANOUT_BYTES = "fanout-bytes"


class QuotaTerms(NamedTuple):
    """A row of the table. `total` is the name of the bound of all users together in `mtl.broker.limits` (None: the disk
    is the bound), `unit` and `remedy` are parts of a refusal, `default` is the quota of a user where it is no share of
    the total.
    """

    total: str | None
    unit: str
    remedy: str
    default: int | None = None


QUOTAS: Final[Mapping[Quota, QuotaTerms]] = {
    Quota.SESSIONS: QuotaTerms(
        "MAX_SESSIONS", "sessions", "repeat the token of the 201 instead of opening new ones"
    ),
    Quota.LEASES: QuotaTerms("MAX_LEASES", "leases", "close some with Lease.Close, or let them expire"),
    Quota.LEASED_NAMES: QuotaTerms(
        "MAX_LEASED_NAMES",
        "resources named in leases",
        "close leases, or ask for any and all resources instead",
    ),
    Quota.REQUESTS: QuotaTerms(
        "MAX_REQUESTS", "requests that are not answered yet", "wait for their answers"
    ),
    Quota.WAITS: QuotaTerms("MAX_WAITERS", "requests that wait for changes", "ask without wait"),
    Quota.WAITING_NAMES: QuotaTerms(
        "MAX_WAITING_NAMES",
        "names in requests that wait for changes",
        "ask without wait, or for fewer resources",
    ),
    Quota.WAITING_PATTERNS: QuotaTerms(
        "MAX_WAITING_PATTERNS",
        "different patterns in requests that wait for changes",
        "ask without wait, or with fewer patterns",
    ),
    Quota.RESOURCES: QuotaTerms("MAX_RESOURCES", "resources", "delete some"),
    Quota.CURSORS: QuotaTerms("MAX_CURSORS", "cursors", "delete unneeded ones (mtl cursors delete)"),
    Quota.QUEUES: QuotaTerms("MAX_QUEUES", "queues", "delete unneeded ones"),
    Quota.APPLICATIONS: QuotaTerms(
        "MAX_APPLICATIONS", "applications", "forget those of ended queries (mtl stages forget)"
    ),
    Quota.WRITER_NAMES: QuotaTerms(
        "MAX_WRITER_NAMES", "writer names", "use fewer names; a name is forgotten a day after its last use"
    ),
    Quota.STAGES: QuotaTerms("MAX_STAGES", "stages", "commit or abort some (mtl stages)"),
    # Some hours of a query at 10 MB/s whose driver never commits.
    Quota.STAGE_BYTES: QuotaTerms(None, "octets in stages", "commit or abort some (mtl stages)", 256 << 30),
    # More than most disks have: only the administrator knows how to share the disk.
    Quota.STORED_BYTES: QuotaTerms(
        None,
        "octets in the resources that it created",
        "delete some, or let retention remove more contents",
        4 << 40,
    ),
    # Above these no request is refused: readers wait, replies are dropped, flows end, rings drop their oldest contents.
    Quota.UNSENT_BYTES: QuotaTerms("UNSENT_OCTETS", "octets of contents that are not sent yet", "read them"),
    Quota.UNSENT_ANSWER_BYTES: QuotaTerms(
        "UNSENT_ANSWER_OCTETS", "octets of replies and commands that are not sent yet", "read them"
    ),
    Quota.WAITING_COMMANDS: QuotaTerms(
        "MAX_WAITING_COMMANDS", "commands that wait for room in the queue of their peer", "read them"
    ),
    Quota.FANOUT_BYTES: QuotaTerms(
        "FANOUT_OCTETS", "octets that wait for readers of the profile test", "read them"
    ),
}


def total_of(quota: Quota) -> int | None:
    """The bound of all users together; None where the disk is the bound."""
    name = QUOTAS[quota].total
    return None if name is None else getattr(broker_limits, name)


def _default(quota: Quota, terms: QuotaTerms) -> int:
    total = total_of(quota)
    share = None if total is None else default_share(total)
    default = terms.default if share is None else share
    assert default is not None, "a quota has a total or a default"
    return default


def highest(quota: Quota) -> int | None:
    """The highest quota that a user may have; None where the disk is the bound."""
    total = total_of(quota)
    return None if total is None else highest_share(total)


DEFAULTS: Final[dict[Quota, int]] = {quota: _default(quota, terms) for quota, terms in QUOTAS.items()}
"""The quotas of a user that the configuration does not mention."""


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """[quotas] of broker.toml: the quotas of every user, and other values for single users."""

    of_every_user: Mapping[Quota, int] = field(default_factory=lambda: DEFAULTS)
    users: Mapping[str, Mapping[Quota, int]] = field(default_factory=dict)


class Quotas:
    """The quota of each user. `is_unlimited` says whether a principal has no quotas."""

    def __init__(self, settings: QuotaSettings, is_unlimited: Callable[[str], bool]) -> None:
        self._settings = settings
        self._is_unlimited = is_unlimited

    def owner(self, principal: str) -> str:
        """The user whose quota counts the objects that this principal creates; empty for a principal without
        quotas.
        """
        return "" if self._is_unlimited(principal) else principal

    def limit(self, principal: str, quota: Quota) -> int | None:
        """The quota of this principal; None if it has none."""
        if not self.owner(principal):
            return None
        return self._settings.users.get(principal, {}).get(quota, self._settings.of_every_user[quota])

    def share(self, principal: str, quota: Quota) -> int | None:
        """The same; all clients that have not logged in have the quota of one user together."""
        return self.limit(principal, quota) if principal else self._settings.of_every_user[quota]

    def check(self, principal: str, quota: Quota, used: int, more: int = 1) -> None:
        """Raises `Refused` 403 if the sum of `used` and `more` is above the quota."""
        limit = self.limit(principal, quota)
        if limit is not None and used + more > limit:
            terms = QUOTAS[quota]
            raise Refused(
                403,
                QUOTA,
                f"user {principal!r} has {used} {terms.unit}, and its quota {quota} is {limit}: {terms.remedy}, or "
                "have the administrator raise it in [quotas]",
                quota=quota.value,
                limit=limit,
                used=used,
            )

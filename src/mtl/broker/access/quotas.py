"""Quotas: how much of the broker one user may have, so that it cannot use up what all share. PROTOCOL.md 2.2.

They hold for users with grants. Whoever may do everything without a grant (a broker without users) has the bounds of
`limits` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mtl.errors import Refused
from mtl.wire.control import QUOTA


class Quota(StrEnum):
    """What is counted for each user, by its name in the configuration."""

    SESSIONS = "sessions"
    LEASES = "leases"
    WAITS = "waits"
    WRITER_NAMES = "writer-names"
    STAGES = "stages"
    STAGE_BYTES = "stage-bytes"
    STORED_BYTES = "stored-bytes"


DEFAULTS: Final[dict[Quota, int]] = {
    # Half of what the broker has for all (limits.MAX_...): a Spark driver has one of each for each resource of a group.
    Quota.SESSIONS: 10_000,
    Quota.LEASES: 10_000,
    # A quarter: one user that goes wrong leaves the others enough.
    Quota.WAITS: 2_500,
    Quota.WRITER_NAMES: 250_000,
    Quota.STAGES: 25_000,
    # Some hours of a query at 10 MB/s whose driver never commits.
    Quota.STAGE_BYTES: 256 << 30,
    # More than most disks have: it is the administrator who knows how the disk is to be shared.
    Quota.STORED_BYTES: 4 << 40,
}
"""What each user may have where the configuration does not say."""

_WHAT: Final[dict[Quota, tuple[str, str]]] = {
    Quota.SESSIONS: ("sessions", "repeat the token of the 201 instead of opening new ones"),
    Quota.LEASES: ("leases", "close some with Lease.Close, or let them expire"),
    Quota.WAITS: ("requests that wait for news", "ask without wait"),
    Quota.WRITER_NAMES: ("writer names", "write under fewer names; one goes a day after its last use"),
    Quota.STAGES: ("stages", "commit or abort some (mtl stages)"),
    Quota.STAGE_BYTES: ("octets in stages", "commit or abort some (mtl stages)"),
    Quota.STORED_BYTES: ("octets in the resources that it made", "delete some, or let retention take more"),
}
"""What the numbers count, and the way out."""


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """[quotas] of broker.toml: what every user may have, and what single users may have instead."""

    everybody: Mapping[Quota, int] = field(default_factory=lambda: DEFAULTS)
    users: Mapping[str, Mapping[Quota, int]] = field(default_factory=dict)


class Quotas:
    """What each user may have. `is_unlimited` tells who has no quotas."""

    def __init__(self, settings: QuotaSettings, is_unlimited: Callable[[str], bool]) -> None:
        self._settings = settings
        self._is_unlimited = is_unlimited

    def owner(self, principal: str) -> str:
        """Whom something that this principal makes is counted for; empty for nobody."""
        return "" if self._is_unlimited(principal) else principal

    def limit(self, principal: str, quota: Quota) -> int | None:
        """The most that this principal may have; None where it has no quota."""
        if not self.owner(principal):
            return None
        return self._settings.users.get(principal, {}).get(quota, self._settings.everybody[quota])

    def check(self, principal: str, quota: Quota, used: int, more: int = 1) -> None:
        """Raises `Refused` 403 when so much more is above the quota."""
        limit = self.limit(principal, quota)
        if limit is not None and used + more > limit:
            what, way_out = _WHAT[quota]
            raise Refused(
                403,
                QUOTA,
                f"user {principal!r} has {used} {what}, and its quota {quota} is {limit}: {way_out}, or have the "
                "administrator raise it in [quotas]",
                quota=quota.value,
                limit=limit,
                used=used,
            )

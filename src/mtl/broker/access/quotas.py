"""Quotas: bounds on the broker's resources that one user may use, so that enough is left for the others.
PROTOCOL.md 2.2.

They hold for users with grants. A principal that has all rights without a grant (in a broker without users) has
only the bounds of `limits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mtl.errors import Refused
from mtl.wire.control import QUOTA


class Quota(StrEnum):
    """The quantities that are counted for each user, by their names in the configuration."""

    SESSIONS = "sessions"
    LEASES = "leases"
    WAITS = "waits"
    WRITER_NAMES = "writer-names"
    STAGES = "stages"
    STAGE_BYTES = "stage-bytes"
    STORED_BYTES = "stored-bytes"


DEFAULTS: Final[dict[Quota, int]] = {
    # Half of the broker's total (limits.MAX_...): a Spark driver has one of each for each resource of a group.
    Quota.SESSIONS: 10_000,
    Quota.LEASES: 10_000,
    # A quarter of the total: one faulty user leaves the others enough.
    Quota.WAITS: 2_500,
    Quota.WRITER_NAMES: 250_000,
    Quota.STAGES: 25_000,
    # Some hours of a query at 10 MB/s whose driver never commits.
    Quota.STAGE_BYTES: 256 << 30,
    # More than most disks have: only the administrator knows how to share the disk.
    Quota.STORED_BYTES: 4 << 40,
}
"""The quotas of a user that the configuration does not mention."""

_UNITS: Final[dict[Quota, tuple[str, str]]] = {
    Quota.SESSIONS: ("sessions", "repeat the token of the 201 instead of opening new ones"),
    Quota.LEASES: ("leases", "close some with Lease.Close, or let them expire"),
    Quota.WAITS: ("requests that wait for changes", "ask without wait"),
    Quota.WRITER_NAMES: (
        "writer names",
        "use fewer names; a name is forgotten a day after its last use",
    ),
    Quota.STAGES: ("stages", "commit or abort some (mtl stages)"),
    Quota.STAGE_BYTES: ("octets in stages", "commit or abort some (mtl stages)"),
    Quota.STORED_BYTES: (
        "octets in the resources that it created",
        "delete some, or let retention remove more contents",
    ),
}
"""The unit of each quota, and the remedy for its error message."""


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

    def check(self, principal: str, quota: Quota, used: int, more: int = 1) -> None:
        """Raises `Refused` 403 if the sum of `used` and `more` is above the quota."""
        limit = self.limit(principal, quota)
        if limit is not None and used + more > limit:
            unit, remedy = _UNITS[quota]
            raise Refused(
                403,
                QUOTA,
                f"user {principal!r} has {used} {unit}, and its quota {quota} is {limit}: {remedy}, or have the "
                "administrator raise it in [quotas]",
                quota=quota.value,
                limit=limit,
                used=used,
            )

"""Pools: what all users share, such as the leases of a broker, counted in all and for each user.

A pool has a total, because the broker's memory is bounded, and a quota for each user, which leaves a reserve for the
others: no single user can fill it (`quotas.QUOTAS`).
"""

from __future__ import annotations

from mtl.broker.quotas.quotas import QUOTAS, Quota, Quotas, total_of
from mtl.errors import Refused
from mtl.shares import Uses
from mtl.wire.control import OVERLOADED


class Pool(Uses):
    """The uses of one quantity. `owner` is the principal that a use counts for (`Quotas.owner`)."""

    def __init__(self, quotas: Quotas, quota: Quota) -> None:
        super().__init__()
        self._quotas = quotas
        self._quota = quota

    def check(self, principal: str, more: int = 1) -> None:
        """Raises `Refused` 403 when the principal would be above its quota, 503 when all together would be above the
        total.
        """
        self._quotas.check(principal, self._quota, self.of(self._quotas.owner(principal)), more)
        total = total_of(self._quota)
        if total is not None and more > 0 and self.used + more > total:
            terms = QUOTAS[self._quota]
            raise Refused(
                503,
                OVERLOADED,
                f"the broker has {self.used} {terms.unit}, and its limit {terms.total} is {total}: {terms.remedy}",
            )

    def excess(self, principal: str) -> int:
        """By how much the principal is above its quota, or all together above the total; at most 0 if neither."""
        share, total = self._quotas.share(principal, self._quota), total_of(self._quota)
        assert total is not None, "a quota whose bound is the disk is not a pool"
        over = self.used - total
        return over if share is None else max(over, self.of(principal) - share)

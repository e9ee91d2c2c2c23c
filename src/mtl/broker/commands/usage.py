"""Disk usage of users: octets in their stages, and in the resources that they made; and the quotas on both.

It is summed up periodically, since it grows with every content and shrinks with retention. A user above a quota gets no
further writing lease that would add to it, and the leases that do are ended (PROTOCOL.md 2.2).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sized

from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.stages.stages import Stages
from mtl.broker.writing.resource import Resource
from mtl.broker.writing.resources import Resources
from mtl.broker.writing.writers import WriterLease
from mtl.errors import Refused

log = logging.getLogger("mtl.broker")

USAGE_CHECK_S = 5.0
"""Seconds between two sums, in which a user may write more than its quota."""


class Usage:
    """Octets by owner, as of the last sum."""

    def __init__(
        self,
        outbox: Outbox,
        users: Sized,
        quotas: Quotas,
        leases: Leases,
        resources: Resources,
        stages: Stages,
    ) -> None:
        self._users = users
        self._outbox = outbox
        self._quotas = quotas
        self._leases = leases
        self._resources = resources
        self._stages = stages
        self._over: dict[tuple[str, Quota], Refused] = {}

    def enforce(self) -> None:
        """Sum up, and end the leases that add to usage above a quota. Without users there are no quotas."""
        if not self._users:
            self._over = {}
            return
        stored: Counter[str] = Counter()
        for resource in self._resources:
            if resource.record.owner and resource.log is not None:
                stored[resource.record.owner] += resource.log.bytes
        before, self._over = self._over, {}
        for quota, used in ((Quota.STORED_BYTES, stored), (Quota.STAGE_BYTES, self._stages.octets())):
            for owner, octets in used.items():
                self._judge(owner, quota, octets)
        for key, refused in self._over.items():
            if key not in before:
                log.warning("%s", refused.message)
        if self._over:
            self._end_leases()

    def _judge(self, owner: str, quota: Quota, octets: int) -> None:
        try:
            self._quotas.check(owner, quota, octets, 0)
        except Refused as refused:
            self._over[owner, quota] = refused

    def _end_leases(self) -> None:
        for lease in self._leases:
            if isinstance(lease, WriterLease):
                try:
                    self._check_lease(lease)
                except Refused as refused:
                    self._leases.end(lease)
                    self._outbox.audit.ended(lease.terms, f"quota {refused.members['quota']}")

    def _check_lease(self, lease: WriterLease) -> None:
        if lease.stage is not None:
            self.check_stage(lease.terms.principal)
            return
        terms = lease.terms
        resources = (self._resources.find(terms.vhost, name) for name in {*terms.resources, *lease.intakes})
        self.check_resources([r for r in resources if r is not None])
        if not terms.resources:
            self.check_any(terms.principal)

    def check_stage(self, principal: str) -> None:
        """Raises `Refused` 403 when this principal is above its quota of stages."""
        self._check(principal, Quota.STAGE_BYTES)

    def check_resources(self, resources: Iterable[Resource]) -> None:
        """Raises `Refused` 403 when the maker of one of these is above its quota."""
        for resource in resources:
            self._check(resource.record.owner, Quota.STORED_BYTES)

    def check_any(self, principal: str) -> None:
        """Raises `Refused` 403 when this principal is above its quota, so that it gets no lease of "any and all"."""
        self._check(principal, Quota.STORED_BYTES)

    def _check(self, owner: str, quota: Quota) -> None:
        refused = self._over.get((owner, quota))
        if refused is not None:
            raise refused

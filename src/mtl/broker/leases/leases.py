"""Leases: the unguessable tokens that bind a control request to a data flow, and their expiry.

PROTOCOL.md 3. A bound lease lives while frames of its flow arrive, and for `unbound_s` after it was unbound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from mtl.broker import limits as broker_limits
from mtl.broker.leases.lease import Lease, RequestKey
from mtl.broker.outbox import Outbox
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.errors import Refused
from mtl.protocol import states
from mtl.shares import Uses
from mtl.wire import commands
from mtl.wire.control import OVERLOADED


class Leases:
    """Every live lease by its token."""

    def __init__(
        self, outbox: Outbox, random: Callable[[int], bytes], unbound_s: float, quotas: Quotas
    ) -> None:
        self._outbox = outbox
        self._random = random
        self._unbound_s = unbound_s
        self._quotas = quotas
        self._by_token: dict[str, Lease] = {}
        self._ending: dict[str, Callable[[], None]] = {}
        self._unbinding: dict[str, Callable[[], None]] = {}
        self._of_session = Uses()
        self._pool, self._names = Pool(quotas, Quota.LEASES), Pool(quotas, Quota.LEASED_NAMES)
        self._requested: dict[RequestKey, Lease] = {}
        """The live leases whose clients gave them an id."""

    def token(self) -> str:
        """A new bearer token of 128 random bits (PROTOCOL.md 3)."""
        return self._random(16).hex()

    def admit(self, session: str, principal: str, names: int, repeats: RequestKey | None) -> None:
        """Raises `Refused` 503 if the session or the broker has no room for another lease with this number of
        names, 403 above the principal's quotas. A lease that replaces another (`repeats`) is not counted as a
        further one.
        """
        former = self._requested.get(repeats) if repeats is not None else None
        self._pool.check(principal, int(former is None))
        self._names.check(principal, names - (len(former.terms.resources) if former is not None else 0))
        if former is None and self._of_session.of(session) >= broker_limits.MAX_LEASES_PER_SESSION:
            raise Refused(
                503,
                OVERLOADED,
                f"this session has {broker_limits.MAX_LEASES_PER_SESSION} leases, which is the limit; close some with "
                "Lease.Close, or let them expire",
            )

    def in_use(self, session: str) -> bool:
        """Whether a session has live leases."""
        return self._of_session.of(session) > 0

    def grant(
        self, lease: Lease, ended: Callable[[], None], unbound: Callable[[], None] | None = None
    ) -> None:
        """Keep a lease. `ended` is called once, when the lease is closed, fenced, revoked or expired; `unbound`
        every time it is unbound from a data flow. An earlier lease of the same request ends: no client uses it,
        because its 202 was lost or its client has dropped it.
        """
        repeats = lease.terms.repeats
        if repeats is not None:
            former = self._requested.get(repeats)
            if former is not None:
                self.end(former)
            self._requested[repeats] = lease
        self._by_token[lease.terms.token] = lease
        owner = self._quotas.owner(lease.terms.principal)
        self._pool.add(owner)
        self._names.add(owner, len(lease.terms.resources))
        self._of_session.add(lease.terms.session)
        self._ending[lease.terms.token] = ended
        if unbound is not None:
            self._unbinding[lease.terms.token] = unbound

    def find(self, token: str) -> Lease | None:
        """The live lease with this token."""
        return self._by_token.get(token)

    def end(self, lease: Lease) -> None:
        """End a lease: unbind its flow and call the grant's `ended`. Ending twice is harmless."""
        if self._by_token.pop(lease.terms.token, None) is None:
            return
        if lease.terms.repeats is not None:
            self._requested.pop(lease.terms.repeats, None)
        owner = self._quotas.owner(lease.terms.principal)
        self._pool.remove(owner)
        self._names.remove(owner, len(lease.terms.resources))
        self._of_session.remove(lease.terms.session)
        self.unbind(lease)
        self._unbinding.pop(lease.terms.token, None)
        self._ending.pop(lease.terms.token)()

    def end_token(self, token: str) -> None:
        """End the lease with this token, if it lives."""
        lease = self.find(token)
        if lease is not None:
            self.end(lease)

    def fail(self, lease: Lease) -> None:
        """End a lease whose contents cannot be read. The client's request for another lease is refused with the
        reason.
        """
        if lease.flow is not None and lease.terms.binding:
            lease.flow.send(commands.Response(states.LEASE_ENDED, states.FORBIDDEN))
        self.end(lease)

    def unbind(self, lease: Lease) -> None:
        """Unbind a lease from its flow; further frames of the flow for this lease are dropped."""
        flow, lease.flow = lease.flow, None
        if flow is not None:
            flow.lost(lease)
            lease.terms.unbound_at = self._outbox.now.mono
            unbound = self._unbinding.get(lease.terms.token)
            if unbound is not None:
                unbound()

    def end_sessions(self, sessions: Collection[str]) -> None:
        """End the leases of sessions that have another principal now, or none."""
        for lease in self if sessions else ():
            if lease.terms.session in sessions:
                self.end(lease)

    def expire(self) -> None:
        """End the leases that were unbound for longer than `unbound_s`."""
        horizon = self._outbox.now.mono - self._unbound_s
        for lease in [x for x in self._by_token.values() if x.flow is None and x.terms.unbound_at < horizon]:
            self.end(lease)

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._by_token.values()))

    def __len__(self) -> int:
        return len(self._by_token)

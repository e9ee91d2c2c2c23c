"""What every grant of a lease has in common, and Lease.Close. Readers and writers have a file each beside this one.

PROTOCOL.md 5.2: every 202 echoes what was granted. A grant that needs the disk (a cursor, a writer's name, a
stage, a resource made by its name) is answered when that is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mtl import limits
from mtl.broker.accounts import Accounts, Changes, Right
from mtl.broker.consumers import QueueLease
from mtl.broker.leases import Leases, LeaseTerms
from mtl.broker.outbox import Outbox
from mtl.broker.resources import unknown
from mtl.broker.sessions import Session
from mtl.broker.stages import Stages
from mtl.broker.writers import WriterLease
from mtl.errors import Refused
from mtl.profiles import Profile
from mtl.wire import control as w

Answer = Callable[[w.Reply | Refused], None]


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the data sockets are: TCP ports, and endpoints where there is no port (ipc, inproc)."""

    packed: int
    plain: int
    packed_endpoint: str | None = None
    plain_endpoint: str | None = None


class Granting:
    """Terms, the echo of a 202, and the end of a lease."""

    def __init__(
        self,
        outbox: Outbox,
        accounts: Accounts,
        leases: Leases,
        stages: Stages,
        ports: Ports,
        heartbeat_s: float,
    ) -> None:
        self._outbox = outbox
        self._accounts = accounts
        self._leases = leases
        self._stages = stages
        self._ports = ports
        self._heartbeat_s = heartbeat_s

    def admit(self, session: Session, profile: Profile, request: w.Reader | w.Writer) -> None:
        """Raises `Refused` 501 for a confirmation model that the profile lacks (MTL-49), 503 for too many leases."""
        confirm = request.confirm
        if confirm not in profile.confirms:
            supported = " and ".join(sorted(profile.confirms))
            raise Refused(
                501, w.UNSUPPORTED, f'profile "{profile.name}" supports confirm {supported}, not {confirm!r}'
            )
        self._leases.admit(session.token, len(request.resources))

    def terms(
        self, session: Session, profile: Profile, right: Right, resources: tuple[str, ...], confirm: str
    ) -> LeaseTerms:
        """The terms of a lease that is granted now."""
        principal, vhost, key = session.principal, session.vhost, session.origin.key
        rights = frozenset({right})
        return LeaseTerms(
            self._leases.token(),
            session.token,
            principal,
            vhost,
            profile,
            resources,
            confirm,
            self._outbox.now.mono,
            right,
            lambda name: self._accounts.may(principal, vhost, rights, [name])[0],
            key,
            self._accounts.owner(key),
        )

    def revoke(self, changes: Changes) -> None:
        """Users or grants changed: end the leases that would not be granted any more. One of "any and all" ends with
        every change of its principal's grants, since nobody knows what it has in hand.
        """
        for lease in self._leases:
            terms = lease.terms
            stays = (
                self._accounts.exists(terms.principal)
                and self._accounts.owner(terms.key) == terms.owner
                and all(map(terms.allows, terms.resources))
                and (terms.resources or terms.principal not in changes.grants)
            )
            if not stays:
                self._leases.end(lease)

    def data_lease(self, terms: LeaseTerms, packed: bool, **granted: object) -> w.DataLease:
        """The 202. Members of DataLease by name; None is left out."""
        ports = self._ports
        port, endpoint = (
            (ports.packed, ports.packed_endpoint) if packed else (ports.plain, ports.plain_endpoint)
        )
        echo = {name: value for name, value in granted.items() if value is not None}
        return w.DataLease(
            port=port,
            endpoint=endpoint,
            lease=terms.token,
            packed=packed,
            max_content=limits.MAX_CONTENT,
            max_pack=limits.MAX_PACK,
            heartbeat=self._heartbeat_s,
            **echo,  # type: ignore[arg-type]  # members of DataLease, by name
        )

    def close(self, session: Session, request: w.LeaseClose, answer: Answer) -> None:
        """Lease.Close: ends a lease; a stage is sealed. Whoever knows the token may, for a client's session may have
        been forgotten and opened again since.
        """
        lease = self._leases.find(request.lease)
        sealed = self._stages.sealed_by(request.lease)
        if lease is None and sealed is not None:
            answer(w.LeaseClosed(stage=sealed))
            return
        if lease is None or (lease.terms.vhost, lease.terms.principal) != (session.vhost, session.principal):
            raise Refused(404, w.UNKNOWN_LEASE, "no such lease: it was closed, expired or is somebody else's")
        if isinstance(lease, WriterLease) and lease.stage is not None:
            self._seal(lease, lease.stage, answer)
            return
        if isinstance(lease, QueueLease):
            lease.closing = True
        self._leases.end(lease)
        answer(w.LeaseClosed())

    def _seal(self, lease: WriterLease, name: str, answer: Answer) -> None:
        stage = self._stages.find(lease.terms.vhost, name)
        if stage is None:  # thrown away meanwhile
            self._leases.end(lease)
            answer(w.LeaseClosed())
            return
        if lease.closing:
            raise Refused(503, w.OVERLOADED, "the lease is being closed; ask again")

        def sealed(outcome: w.Sealed | Refused) -> None:
            if isinstance(outcome, Refused):
                lease.closing = False
                answer(outcome)
                return
            self._leases.end(lease)
            answer(w.LeaseClosed(stage=outcome))

        self._stages.seal(stage, lease.terms.token, sealed)
        lease.closing = True


def answering(answer: Answer, work: Callable[[], None]) -> None:
    """Do the rest of a request whose method has returned: a `Refused` it raises is the answer."""
    try:
        work()
    except Refused as e:
        answer(e)


def granted_window(asked: w.Window | None, most: int) -> tuple[int, int]:
    """Contents and stored octets that may be unconfirmed: what was asked for, within bounds (PROTOCOL.md 5.2)."""
    window = asked or w.Window()
    return (
        min(window.contents or limits.WINDOW_CONTENTS, most),
        min(window.bytes or limits.WINDOW_OCTETS, limits.MAX_WINDOW_OCTETS),
    )


def check_fixed(profile: Profile, names: list[str]) -> None:
    """Raises `Refused` 404 for names that a profile with fixed resources does not have."""
    missing = [n for n in names if n not in profile.fixed_resources]
    if missing:
        raise unknown(*missing)

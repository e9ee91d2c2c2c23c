"""The common part of all grants of leases, and Lease.Close. The `granting_*` files grant readers, writers and queues.

PROTOCOL.md 5.2: every 202 echoes the granted terms. A grant that needs the disk (a cursor, a writer's name, a stage, a
resource made by its name) is answered when it is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.access.accounts import Accounts, Changes
from mtl.broker.access.caller import Caller
from mtl.broker.commands.authorization import Authorization
from mtl.broker.leases.lease import Lease, LeaseTerms, request_key
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.queues.queue import QueueLease
from mtl.broker.stages.stages import Stages
from mtl.broker.writing.free_space import FreeSpace
from mtl.broker.writing.resources import unknown
from mtl.broker.writing.writers import WriterLease
from mtl.errors import Refused, StorageError
from mtl.profiles import Profile
from mtl.wire import control


@dataclass(frozen=True, slots=True)
class Ports:
    """The data sockets: TCP ports, and endpoints where there is no port (ipc, inproc)."""

    packed: int
    plain: int
    packed_endpoint: str | None = None
    plain_endpoint: str | None = None
    shared: bool = False
    """Whether both are the control socket."""


class Granting:
    """Terms, the echo of a 202, and the end of a lease."""

    def __init__(
        self,
        outbox: Outbox,
        accounts: Accounts,
        authorization: Authorization,
        free_space: FreeSpace,
        leases: Leases,
        stages: Stages,
        ports: Ports,
        heartbeat_s: float,
        principal_of: Callable[[str], str | None],
    ) -> None:
        self._outbox = outbox
        self._accounts = accounts
        self._authorization = authorization
        self._free_space = free_space
        self._leases = leases
        self._stages = stages
        self._ports = ports
        self._heartbeat_s = heartbeat_s
        self._principal_of = principal_of

    def admit(
        self, caller: Caller, profile: Profile, request: control.ConnectionReader | control.ConnectionWriter
    ) -> None:
        """Raises `Refused` 501 for a confirmation model that the profile lacks (MTL-49), 503 for too many leases and,
        for a writer, too little room on the disk, 403 for too many leases of this user.
        """
        confirm = request.confirm
        if confirm not in profile.confirms:
            supported = " and ".join(sorted(profile.confirms))
            raise Refused(
                501,
                control.UNSUPPORTED,
                f'profile "{profile.name}" supports confirm {supported}, not {confirm!r}',
            )
        if profile.durable and isinstance(request, control.ConnectionWriter):
            self._free_space.check()
        repeats = request_key(caller.vhost, caller.principal, caller.key, request.request_id)
        self._leases.admit(caller.session, caller.principal, len(set(request.resources)), repeats)

    def terms(
        self, caller: Caller, profile: Profile, request: control.ConnectionReader | control.ConnectionWriter
    ) -> LeaseTerms:
        """The terms of a lease that is granted now."""
        return LeaseTerms(
            self._leases.token(),
            caller.session,
            caller.principal,
            caller.vhost,
            profile,
            tuple(dict.fromkeys(request.resources)),
            request.confirm,
            self._outbox.now.mono,
            self._authorization.needs(caller, request),
            self._authorization.extent(caller, request),
            caller.key,
            self._accounts.owner(caller.key),
            request.request_id,
            request.binding,
        )

    def end_writers(self) -> None:
        """End the leases of durable writers on a low disk. Requests for other ones are refused with the reason."""
        for lease in self._leases:
            if isinstance(lease, WriterLease) and lease.terms.profile.durable:
                self._leases.end(lease)

    def revoke(self, changes: Changes) -> None:
        """Users or grants changed: end the leases that would not be granted any more. A lease of "any and all" ends
        with every change of its principal's grants, since the resources that it uses are not known.
        """
        for lease in self._leases:
            terms = lease.terms
            unknown_extent = not terms.resources and terms.principal in changes.grants
            if unknown_extent or self._refusal(terms) is not None:
                self._leases.end(lease)
                self._outbox.audit.ended(terms, "its user has lost the right")
            elif terms.principal in changes.ended:
                self._leases.end(lease)
                self._outbox.audit.ended(terms, "its user has another password")

    def _refusal(self, terms: LeaseTerms) -> Refused | None:
        """The reason why these terms would not be granted now, or None."""
        if not self._accounts.exists(terms.principal) or self._accounts.owner(terms.key) != terms.owner:
            return Refused(
                403,
                control.NOT_AUTHORIZED,
                f"user {terms.principal!r} or its key was removed while the request waited",
            )
        try:
            self._authorization.check_needs(terms.principal, terms.vhost, terms.needs)
        except Refused as refused:
            return refused
        return None

    def grant(
        self, lease: Lease, ended: Callable[[], None], unbound: Callable[[], None] | None = None
    ) -> None:
        """Grant a lease. Raises `Refused` 403, and grants nothing, when the request is not permitted any more: while it
        waited for the disk its user may have been removed, lost a right or got other leases, or its session may have
        got another principal.
        """
        terms = lease.terms
        if self._principal_of(terms.session) not in {None, terms.principal}:
            raise Refused(
                403,
                control.NOT_AUTHORIZED,
                "the session changed to another user meanwhile; send the request again",
            )
        refusal = self._refusal(terms)
        if refusal is not None:
            raise refusal
        self._leases.admit(terms.session, terms.principal, len(terms.resources), terms.repeats)
        self._leases.grant(lease, ended, unbound)

    def data_lease(self, terms: LeaseTerms, packed: bool, **granted: object) -> control.DataLease:
        """The 202, with members of DataLease by name; those that are None are left out."""
        ports = self._ports
        port, endpoint = (
            (ports.packed, ports.packed_endpoint) if packed else (ports.plain, ports.plain_endpoint)
        )
        echo = {name: value for name, value in granted.items() if value is not None}
        return control.DataLease(
            port=port,
            endpoint=endpoint,
            shared_socket=ports.shared,
            lease=terms.token,
            packed=packed,
            binding=terms.binding,
            max_content=limits.MAX_CONTENT,
            max_pack=limits.MAX_PACK,
            heartbeat=self._heartbeat_s,
            **echo,  # type: ignore[arg-type]  # members of DataLease, by name
        )

    async def close(self, caller: Caller, request: control.LeaseClose) -> control.LeaseClosed:
        """Lease.Close: end a lease, and seal its stage. The token is sufficient, because the client's session may
        have been forgotten and opened again meanwhile.
        """
        lease = self._leases.find(request.lease)
        sealed = self._stages.sealed_by(request.lease)
        if lease is None and sealed is not None:
            return control.LeaseClosed(stage=sealed)
        if lease is None or (lease.terms.vhost, lease.terms.principal) != (caller.vhost, caller.principal):
            raise Refused(
                404,
                control.UNKNOWN_LEASE,
                "unknown lease: it was closed, has expired, or belongs to another session",
            )
        if isinstance(lease, WriterLease) and lease.stage is not None:
            sealed = await self._seal(lease, lease.stage)
        if isinstance(lease, QueueLease):
            lease.closing = True
        self._leases.end(lease)
        return control.LeaseClosed(stage=sealed)

    async def _seal(self, lease: WriterLease, name: str) -> control.StageSealed | None:
        stage = self._stages.find(lease.terms.vhost, name)
        if stage is None:  # discarded meanwhile
            return None
        if lease.closing:
            raise Refused(503, control.OVERLOADED, "the lease is being closed; send the request again")
        lease.closing = True
        try:
            return await self._stages.seal(stage, lease.terms.token)
        except (Refused, StorageError):
            lease.closing = False
            raise


def granted_window(requested: control.Window | None, most: int) -> tuple[int, int]:
    """The contents and the stored octets that may be unconfirmed: the requested ones, within bounds (PROTOCOL.md
    5.2).
    """
    window = requested or control.Window()
    return (
        min(window.contents or broker_limits.WINDOW_CONTENTS, most),
        min(window.bytes or broker_limits.WINDOW_OCTETS, broker_limits.MAX_WINDOW_OCTETS),
    )


def check_fixed(profile: Profile, names: list[str]) -> None:
    """Raises `Refused` 404 for names that a profile with fixed resources does not have."""
    missing = [n for n in names if n not in profile.fixed_resources]
    if missing:
        raise unknown(*missing)

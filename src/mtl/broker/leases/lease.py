"""A lease: its terms, and the data flow to which it is bound. The kinds of lease derive from `Lease`.

PROTOCOL.md 3. `reading.readers`, `reading.fanout`, `queues.queue` and `writing.writers` define the kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mtl.broker import actions
from mtl.broker.access.accounts import Need
from mtl.profiles import Profile
from mtl.wire import commands

RequestKey = tuple[str, str, str, str]
"""(virtual host, principal, CURVE key, the id that the client gave a lease)."""


@dataclass(slots=True)
class LeaseTerms:
    """The terms of a lease. `resources` empty means any and all (MTL-46) that the principal has the rights to
    (`allows`). `needs` are the rights that the request needed; `unbound_at` is when the lease was granted or lost its
    data flow. `key` is the CURVE key of the client that asked, `owner` the user that owned the key. `request_id` is the
    id that the client gave this lease, if any. With `binding` the Response to a Lease command says whether that command
    bound the lease.
    """

    token: str
    session: str
    principal: str
    vhost: str
    profile: Profile
    resources: tuple[str, ...]
    confirm: str
    unbound_at: float
    needs: tuple[Need, ...]
    allows: Callable[[str], bool]
    key: str = ""
    owner: str | None = None
    request_id: str | None = None
    binding: bool = False

    @property
    def repeats(self) -> RequestKey | None:
        """The key that repeated requests for this lease share; None for a lease without an id."""
        return request_key(self.vhost, self.principal, self.key, self.request_id)

    def covers(self, resource: str) -> bool:
        """Whether the lease's request named `resource` (MTL-69, MTL-74)."""
        return resource in self.resources if self.resources else self.allows(resource)


def request_key(vhost: str, principal: str, key: str, request_id: str | None) -> RequestKey | None:
    """The key that the requests for one lease share; None for a lease without an id."""
    return None if request_id is None else (vhost, principal, key, request_id)


class Flow(Protocol):
    """The interface of a connection's data flow to its leases."""

    peer: actions.Peer

    def send(self, command: commands.Command) -> None:
        """Send a command that is not a reader's content."""

    def lost(self, lease: Lease) -> None:
        """A lease was unbound from this flow."""


class Lease:
    """One granted lease. `flow` is the data flow to which it is bound, `packed` whether it uses packs."""

    def __init__(self, terms: LeaseTerms, *, packed: bool = False) -> None:
        self.terms = terms
        self.packed = packed
        self.flow: Flow | None = None

    @property
    def group_position(self) -> int | None:
        """The position of the group that this lease holds; None for a lease that holds none."""
        return None

    def part(self, resource: str) -> Lease | None:  # noqa: ARG002 only a lease of several resources has parts
        """The lease to which a Confirm for `resource` belongs; this one, unless it has parts."""
        return self

    def without(self, resource: str) -> bool:  # noqa: ARG002 see part
        """A resource is deleted: whether the lease continues without it."""
        return False

    def rebound(self, flow: Flow) -> None:
        """A new data flow presented the lease."""
        self.flow = flow

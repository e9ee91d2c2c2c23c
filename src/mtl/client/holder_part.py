"""The loop's part of a holder of several resources: one lease, and the positions from which on it holds them.

PROTOCOL.md 5.3. It reads nothing. `mtl.client.holder` is the application's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mtl.client.control import Channel, Done, Outcome
from mtl.client.flow import ClientFlow
from mtl.client.loop import Loop, do_nothing
from mtl.errors import MtlError, NotGranted, Refused
from mtl.wire import commands, control
from mtl.wire.fields import Buffer


class HeldPosition(NamedTuple):
    """A position in a resource: the next content to confirm, the incarnation of the resource, and the epoch of the
    content before it.
    """

    next: int
    incarnation: str | None = None
    log_epoch: str | None = None


class HolderPart:
    """The user of `flow`; see the module."""

    def __init__(
        self,
        loop: Loop,
        channel: Channel,
        positions: Mapping[str, HeldPosition],
        group: str | None,
        holder: str,
    ) -> None:
        self.positions = dict(positions)
        self.held: Mapping[str, int] = {}
        """The resources that are held, with the epoch of the group's holding."""
        self.unheld: dict[str, Refused] = {}
        """Why others are not: they were refused with a lease."""
        self.listener: Callable[[], None] = do_nothing
        self.lease: control.DataLease | None = None
        self.error: MtlError | None = None
        self.flow = ClientFlow(loop, channel, self)
        self._group = group
        self._holder = holder
        self._endpoint = channel.settings.endpoint
        self._confirmed: dict[str, None] = {}
        self._waiting: list[Done] = []
        self._adding: list[Done] = []

    # --- for the application's side -------------------------------------------------------------------------

    def add(self, positions: Mapping[str, HeldPosition], done: Done) -> None:
        """Hold more resources, or the same ones from other positions; `done` gets the new lease or the error."""
        if self.error is not None:
            done(self.error)
            return
        for name, position in positions.items():
            self.positions[name] = position
            self.unheld.pop(name, None)
            self._confirmed.pop(name, None)
        self._adding.append(done)
        self.flow.restart(release=False)

    def forget(self, resource: str) -> None:
        """Leave a resource out of the next lease."""
        self.positions.pop(resource, None)
        self.unheld.pop(resource, None)

    def confirm(self, resource: str, sequence: int, log_epoch: str | None) -> None:
        """Confirm up to `sequence`, a content of `log_epoch`. Ignored for a resource that is not held."""
        position = self.positions.get(resource)
        if position is not None and sequence + 1 >= position.next:
            self.positions[resource] = HeldPosition(sequence + 1, position.incarnation, log_epoch)
            self._confirmed[resource] = None
            self.flow.send(commands.Confirm(sequence, multiple=True, resource=resource))

    def ping(self, done: Done) -> None:
        """Ping the broker; `done` gets an answer or the error of the lease."""
        if self.error is not None:
            done(self.error)
            return

        def ponged(_position: int | None) -> None:
            if done in self._waiting:
                self._waiting.remove(done)
                done(control.Ok())

        self._waiting.append(done)
        self.flow.ping(ponged)

    def close(self, then: Done, *, within: float) -> None:
        """End the lease, in `within` seconds at most."""
        self.flow.close(then, within=within)

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> control.ConnectionReader:
        """The request for a lease that holds all resources from their present positions on."""
        return control.ConnectionReader(
            resources=list(self.positions),
            confirm="full",
            group=self._group,
            holder=self._holder,
            positions={
                name: control.HeldFrom(from_=next_, incarnation=incarnation, log_epoch=log_epoch)
                for name, (next_, incarnation, log_epoch) in self.positions.items()
            },
            request_id=self.flow.id,
            binding=True,
        )

    def granted(self, lease: control.DataLease) -> None:
        """Note the resources that are held."""
        if lease.held is None:
            raise NotGranted(self._endpoint, "held")
        self.held = lease.held
        for name, unheld in (lease.unheld or {}).items():
            self.unheld[name] = unheld.error(name)
        self.positions = {name: at for name, at in self.positions.items() if name in lease.held}
        self.lease = lease
        adding, self._adding = self._adding, []
        for done in adding:
            done(lease)
        self.listener()

    def refused(self, error: Refused) -> Refused | None:
        """A refusal is final."""
        return error

    def bound(self) -> None:
        """Repeat the last Confirms, which may have been lost with the old connection."""
        for name in self._confirmed:
            if name in self.positions:
                self.flow.send(commands.Confirm(self.positions[name].next - 1, multiple=True, resource=name))

    def command(self, command: commands.Content | commands.Confirm | commands.Reject) -> None:
        """Nothing was summoned."""

    def answered(self, request: commands.Summon | commands.Dismiss, ok: bool) -> None:
        """Nothing was summoned."""

    def contents(self, like: commands.Content, first: int, bodies: Sequence[Buffer]) -> int:  # noqa: ARG002 nothing was summoned
        """Nothing was summoned."""
        return 0

    def drained(self) -> None:
        """Nothing has to be done."""

    def writable(self) -> None:
        """Confirms wait in the flow."""

    def proven(self) -> None:
        """Confirms are repeated after a loss."""

    def down(self) -> None:
        """The flow makes a new connection."""

    def failed(self, error: MtlError) -> None:
        """The lease has ended, with the error for everything that waits."""
        if self.error is None:
            self.error = error
        waiting: list[Callable[[Outcome], None]] = [*self._waiting, *self._adding]
        self._waiting, self._adding = [], []
        for done in waiting:
            done(error)
        self.listener()

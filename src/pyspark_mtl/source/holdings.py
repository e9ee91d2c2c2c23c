"""The holdings of a query's driver: leases that hold many resources each, so that the number of connections, and the
cost of planning, do not grow with every resource (PROTOCOL.md 5.3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from mtl.errors import Refused
from mtl.limits import MAX_RESOURCES_PER_LEASE
from pyspark_mtl.source.offsets import Position

if TYPE_CHECKING:
    from mtl.client.connection import Connection
    from mtl.client.holder import Holder


class Holdings:
    """Holds resources with few leases. `broker` is called for each lease, `holder` is the driver's id."""

    def __init__(
        self, broker: Callable[[], Connection], group: str | None, holder: Callable[[], str]
    ) -> None:
        self._broker = broker
        self._group = group
        self._holder = holder
        self._leases: list[Holder] = []
        self._of: dict[str, Holder] = {}
        self._incarnations: dict[str, str] = {}

    def incarnation(self, resource: str) -> str | None:
        """The incarnation of a resource that is held; None for one that is not. After a restart of the broker a
        resource may not be held any more.
        """
        lease = self._of.get(resource)
        return self._incarnations[resource] if lease is not None and resource in lease.held else None

    def holding_epoch(self, resource: str) -> int | None:
        """The epoch of the holding, for its members; None without a group."""
        lease = self._of.get(resource)
        return None if self._group is None or lease is None else lease.held.get(resource)

    def hold(self, positions: Mapping[str, Position]) -> dict[str, Refused]:
        """Hold resources from these positions on, unless they are held in this incarnation. Returns the refusals."""
        missing = {name: at for name, at in positions.items() if self.incarnation(name) != at.incarnation}
        refused: dict[str, Refused] = {}
        for lease, chosen in self._divided(missing):
            refused |= self._add(lease, chosen)
        return refused

    def confirm(self, positions: Mapping[str, Position]) -> None:
        """Confirm the contents of held resources before these positions. On return the broker has processed them.
        Raises Fenced if another driver took over.
        """
        leases = {}
        for name, at in positions.items():
            lease = leases[id(self._of[name])] = self._of[name]
            lease.confirm(name, at.next - 1, log_epoch=at.epoch)
        for lease in leases.values():
            lease.ping()

    def forget(self, resources: Collection[str]) -> None:
        """Do not hold these resources any more: they were deleted."""
        for name in resources:
            lease = self._of.pop(name, None)
            if lease is not None:
                lease.forget(name)

    def close(self) -> None:
        """End the leases."""
        leases, self._leases = self._leases, []
        self._of.clear()
        for lease in leases:
            lease.close()

    def _divided(self, positions: Mapping[str, Position]) -> list[tuple[Holder | None, dict[str, Position]]]:
        """The lease for each of these resources; None for a new one. A resource stays with its lease."""
        if not positions:
            return []
        of_lease: dict[int | None, dict[str, Position]] = defaultdict(dict)
        room = {id(lease): MAX_RESOURCES_PER_LEASE - self._count(lease) for lease in self._leases}
        new: list[dict[str, Position]] = []
        for name, at in positions.items():
            own = self._of.get(name)
            place = id(own) if own is not None else next((x for x, left in room.items() if left > 0), None)
            if place is not None:
                of_lease[place][name] = at
                room[place] -= own is None
                continue
            if not new or len(new[-1]) == MAX_RESOURCES_PER_LEASE:
                new.append({})
            new[-1][name] = at
        known = [(lease, of_lease[id(lease)]) for lease in self._leases if id(lease) in of_lease]
        return [*known, *((None, chosen) for chosen in new)]

    def _count(self, lease: Holder) -> int:
        return sum(own is lease for own in self._of.values())

    def _add(self, lease: Holder | None, positions: Mapping[str, Position]) -> dict[str, Refused]:
        from mtl.client.holder_part import HeldPosition  # noqa: PLC0415 loads zmq; planning needs none

        wanted = {name: HeldPosition(at.next, at.incarnation, at.epoch) for name, at in positions.items()}
        if lease is None:
            lease = self._broker().hold(wanted, group=self._group, holder=self._holder())
            self._leases.append(lease)
        else:
            lease.add(wanted)
        for name, at in positions.items():
            if name in lease.held:
                self._of[name], self._incarnations[name] = lease, at.incarnation
            else:
                self._of.pop(name, None)
        return {
            name: lease.unheld[name] for name in positions if name not in lease.held and name in lease.unheld
        }

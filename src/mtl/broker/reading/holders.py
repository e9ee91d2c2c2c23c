"""Leases that hold several resources and read none of them: those of Spark's drivers. PROTOCOL.md 5.3.

A part is a reader's lease that is never summoned. So its Confirms, its share of a group's cursor and the contents that
it keeps from retention are those of any other holder.
"""

from __future__ import annotations

from collections.abc import Iterable

from mtl.broker.leases.lease import Lease, LeaseTerms
from mtl.broker.reading.readers import ReaderLease, Readers
from mtl.wire import commands


class HolderLease(Lease):
    """The lease of a holder of several resources."""

    def __init__(self, terms: LeaseTerms, readers: Readers) -> None:
        super().__init__(terms)
        self._readers = readers
        self._parts: dict[str, ReaderLease] = {}

    def begin(self, parts: Iterable[ReaderLease]) -> None:
        """The lease was granted, with these parts."""
        for part in parts:
            self._parts[part.resource.name] = part
            self._readers.joined(part)
            if part.holding is not None:
                part.holding.add_lease(part)

    def part(self, resource: str) -> Lease | None:
        """The part for a resource, while it exists."""
        return self._parts.get(resource)

    def without(self, resource: str) -> bool:
        """The part for a resource ends. The others continue, and keep their contents from retention."""
        part = self._parts.pop(resource, None)
        if part is not None:
            self._end(part)
        return bool(self._parts)

    def ended(self) -> None:
        """The lease has ended."""
        for part in self._parts.values():
            self._end(part)
        self._parts.clear()

    def _end(self, part: ReaderLease) -> None:
        self._readers.ended(part)
        if part.holding is not None:
            part.holding.remove_lease(part)


class Holders:
    """The commands of such leases: nothing is sent to them, so they confirm only as holders (`ReaderLease`)."""

    async def summon(self, _lease: HolderLease, _resource: str) -> bool:
        """Contents are read on other leases."""
        return False

    def dismiss(self, lease: HolderLease, resource: str) -> None:
        """Nothing was summoned."""

    def confirm(self, lease: HolderLease, sequence: int, multiple: bool) -> None:
        """A Confirm belongs to a part."""

    def reject(self, lease: HolderLease, command: commands.Reject) -> None:
        """Nothing was sent."""

    def on_frame(self, lease: HolderLease) -> None:
        """Nothing waits for room."""

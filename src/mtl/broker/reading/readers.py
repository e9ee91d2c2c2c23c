"""Reading leases of the durable profiles: windows, sending, and the settlement by Confirms.

PROTOCOL.md 5.2. Confirm is the credit: a reader that does not confirm is sent one window and no more, and costs the
broker no memory beyond the record of that window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from mtl import limits
from mtl.broker import actions as a
from mtl.broker import limits as broker_limits
from mtl.broker.leases.lease import Flow, LeaseTerms
from mtl.broker.leases.leases import Leases
from mtl.broker.leases.pauses import Pauses
from mtl.broker.outbox import Outbox
from mtl.broker.reading.cursors import Holding, HoldingLease
from mtl.broker.writing.resource import Resource
from mtl.errors import StorageError
from mtl.protocol.settlement import Sent, Unsettled
from mtl.storage.api import ChunkRef, LogView
from mtl.wire import commands as c


class ReaderLease(HoldingLease):
    """One Connection.Reader of the `log` profile: exactly one resource, from `next` up to (not including) `until`.

    `confirmed` is the lowest content that this lease, as a holder, has not confirmed; a member does not move a cursor.
    """

    def __init__(
        self,
        terms: LeaseTerms,
        resource: Resource,
        start: int,
        until: int | None,
        window: tuple[int, int],
        packed: bool,
        holding: Holding | None,
        *,
        local: bool = False,
    ) -> None:
        super().__init__(terms, packed=packed)
        self.resource = resource
        self.next = start
        self.until = until
        self.window_contents, self.window_octets = window
        self.local = local
        self.holding = holding
        self.confirmed = start
        self.summoned = False
        self.full = terms.confirm == "full"
        self.unsettled: Unsettled[None] = Unsettled()

    @property
    def lowest(self) -> int:
        """The content at which delivery resumes after a rebind: the lowest unsettled, or else the next unsent one."""
        lowest = self.unsettled.lowest
        return self.next if lowest is None else min(lowest, self.next)

    @property
    def pinned(self) -> int | None:
        """The first content that retention must keep (up to the hard limit) for this lease, or None."""
        if self.holding is not None:
            return self.holding.position
        return self.lowest if self.until is not None and self.lowest < self.until else None

    @property
    def group_position(self) -> int | None:
        """The position of the group that this lease holds; None for members and readers without a group."""
        return self.holding.position if self.holding is not None and self.holding.key is not None else None

    def rebound(self, flow: Flow) -> None:
        """A new data flow: no Summons, an empty window, delivery from the lowest unsettled content on."""
        self.next = self.lowest
        self.unsettled = Unsettled()
        self.flow = flow
        self.summoned = False

    def rewind(self, sequence: int) -> None:
        """The contents from `sequence` on were not sent: they will be sent later."""
        self.unsettled.cut(sequence)
        self.next = min(self.next, sequence)

    def settle(self, sequence: int, multiple: bool) -> None:
        """A Confirm: window credit, and for a holder progress of the group's cursor (PROTOCOL.md 5.3).

        A holder may confirm contents that were not sent to it, up to the visible end: Spark's contents are sent on the
        executors' leases.
        """
        if self.holding is None:
            self.unsettled.settle(sequence, multiple)
            return
        if not multiple:
            if self.unsettled.settle(sequence, multiple):
                self.confirmed = max(self.confirmed, self.lowest)
        elif 0 < sequence < self.resource.end:
            self.unsettled.settle(min(sequence, self.unsettled.highest), multiple)
            self.confirmed = max(self.confirmed, sequence + 1)
        self.holding.moved(self.resource)


_NONE: Final[Mapping[str, ReaderLease]] = {}


class Readers:
    """Sends contents to readers, as far as their windows have room."""

    def __init__(self, outbox: Outbox, leases: Leases) -> None:
        self._outbox = outbox
        self._leases = leases
        self._ready: dict[str, ReaderLease] = {}
        self._pauses: Pauses[ReaderLease] = Pauses(outbox)
        self._of: dict[Resource, dict[str, ReaderLease]] = {}
        self.counts = {"rejected": 0, "blocked": 0, "unread": 0}

    # --- leases ---------------------------------------------------------------------------------------------

    def joined(self, lease: ReaderLease) -> None:
        """Add a granted lease."""
        self._of.setdefault(lease.resource, {})[lease.terms.token] = lease

    def of(self, resource: Resource) -> Collection[ReaderLease]:
        """The leases that read a resource."""
        return self._of.get(resource, _NONE).values()

    def grew(self, resource: Resource) -> None:
        """The visible end of a resource moved."""
        for lease in self.of(resource):
            self.wake(lease)

    # --- commands of readers --------------------------------------------------------------------------------

    def summon(self, lease: ReaderLease, _resource: str, then: Callable[[bool], None]) -> None:
        """Begin, or continue after a Dismiss; the lease has one resource, which exists."""
        lease.summoned = True
        then(True)

    def dismiss(self, lease: ReaderLease, _resource: str) -> None:
        """No further content after this (MTL-82)."""
        lease.summoned = False

    def confirm(self, lease: ReaderLease, sequence: int, multiple: bool) -> None:
        """Window credit, and a holder's progress."""
        if lease.full:
            lease.settle(sequence, multiple)

    def reject(self, lease: ReaderLease, command: c.Reject) -> None:
        """A Reject settles, unless the contents have to be sent again with the next bind (PROTOCOL.md 5.2)."""
        if lease.full and not command.recycle:
            self.counts["rejected"] += 1
            lease.settle(command.sequence, command.multiple)

    def heard(self, lease: ReaderLease) -> None:
        """A frame came from this peer: its queue or its window may have room again."""
        self._pauses.end(lease)
        self.wake(lease)

    # --- turns ----------------------------------------------------------------------------------------------

    def wake(self, lease: ReaderLease) -> None:
        """A reader may have room, or there may be more to send to it."""
        if lease.summoned and lease not in self._pauses:
            self._ready[lease.terms.token] = lease

    def ended(self, lease: ReaderLease) -> None:
        """Remove a lease that has ended."""
        others = self._of.get(lease.resource, {})
        others.pop(lease.terms.token, None)
        if not others:
            self._of.pop(lease.resource, None)
        self._ready.pop(lease.terms.token, None)
        self._pauses.end(lease)

    def blocked(self, lease: ReaderLease, sequence: int) -> None:
        """The peer's queue was full at `sequence`: try again with its next frame, or after a pause."""
        self.counts["blocked"] += 1
        lease.rewind(sequence)
        self._ready.pop(lease.terms.token, None)
        self._pauses.pause(lease, sequence)

    def retry(self) -> None:
        """Wake the blocked readers whose pause is over."""
        for lease in self._pauses.over():
            self.wake(lease)

    @property
    def busy(self) -> bool:
        """Whether a further `pump` would send something."""
        return bool(self._ready)

    @property
    def next_retry(self) -> float | None:
        """When the first pause ends, in monotonic seconds, or None."""
        return self._pauses.next

    def pump(self) -> None:
        """Give every ready reader one turn of bounded length, in the order in which they became ready."""
        for token, lease in list(self._ready.items()):
            if not self._turn(lease):
                self._ready.pop(token, None)

    def _turn(self, lease: ReaderLease) -> bool:
        """Send up to one turn's octets and Contents; returns whether there may be more to send at once."""
        octets = 0
        for _ in range(broker_limits.TURN_SENDS):
            sent = self._send_next(lease) if lease.flow is not None and lease.summoned else 0
            octets += sent
            if not sent or octets >= broker_limits.TURN_OCTETS:
                return bool(sent)
        return True

    def _send_next(self, lease: ReaderLease) -> int:
        """Send one Content (a chunk) or one run of plain contents. Returns its octets (at least one), 0 for nothing or
        no room. A chunk that is sent as a place has none: it takes neither the reader's memory nor the socket's.
        """
        reader = lease.resource.log
        end = lease.resource.end if lease.until is None else min(lease.until, lease.resource.end)
        if reader is None or lease.flow is None:
            return 0
        lease.next = max(lease.next, reader.earliest)  # removed contents are a jump in sequences
        if lease.next >= end:
            return 0
        ref = self._find(lease, reader)
        if ref is None:
            return 0
        first, last = (ref.base, ref.base + ref.count - 1) if lease.packed else self._run(lease, ref, end)
        told = lease.local and ref.size >= limits.LOCAL_FROM
        size = 0 if told else ref.size * (last - first + 1) // ref.count
        if not self._room(lease, last - first + 1, size):
            return 0
        lease.next = last + 1
        if lease.full:
            self._remember(lease, first, last, size)
        self._outbox.actions.append(
            a.Deliver(
                lease.flow.peer,
                lease.terms.token,
                reader,
                lease.resource.name,
                ref,
                first,
                last,
                lease.packed,
                told,
            )
        )
        return size or 1

    def _find(self, lease: ReaderLease, reader: LogView) -> ChunkRef | None:
        """The chunk with the lease's next content. That may read the index of a cold segment, which may fail."""
        try:
            return reader.find(lease.next)
        except StorageError as e:
            self.unread(lease, lease.next, lease.next + 1, e)
        return None

    def _run(self, lease: ReaderLease, ref: ChunkRef, end: int) -> tuple[int, int]:
        """The contents (first, last) of a chunk to send to a plain reader: as its window allows, at least one."""
        last = min(ref.base + ref.count, end) - 1
        if lease.full and lease.window_contents:
            room = min(
                lease.window_contents - lease.unsettled.contents,
                (lease.window_octets - lease.unsettled.octets) * ref.count // max(1, ref.size),
            )
            last = min(last, lease.next + max(1, room) - 1)
        return lease.next, min(last, lease.next + broker_limits.TURN_CONTENTS - 1)

    def _room(self, lease: ReaderLease, contents: int, size: int) -> bool:
        """Whether the window has room. One Content is always sent when nothing is outstanding, else a pack larger than
        the window would never be sent.
        """
        if not lease.full or not lease.unsettled:
            return True
        return (
            lease.unsettled.contents + contents <= lease.window_contents
            and lease.unsettled.octets + size <= lease.window_octets
        )

    def _remember(self, lease: ReaderLease, first: int, last: int, size: int) -> None:
        if not lease.packed:
            size = max(1, size // (last - first + 1)) * (last - first + 1)
        lease.unsettled.add(Sent(first, last, size, None, divisible=not lease.packed))

    def unread(self, lease: ReaderLease, first: int, end: int, error: StorageError) -> None:
        """Contents [first, end) cannot be read, or do not verify. Nothing is skipped: the lease ends, and a request for
        another one from there is refused with the reason (`Resource.readable`).
        """
        self.counts["unread"] += 1
        lease.resource.not_read(first, end, error)
        self._leases.fail(lease)

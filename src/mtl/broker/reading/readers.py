"""Reading leases of the durable profiles: windows, sending, and the settlement by Confirms.

PROTOCOL.md 5.2. A Confirm gives new credit. A reader that does not confirm gets only one window of contents, and
costs the broker no memory besides the record of this window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from mtl import limits
from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.leases.lease import Flow, LeaseTerms
from mtl.broker.leases.leases import Leases
from mtl.broker.leases.pauses import Pauses
from mtl.broker.outbox import Outbox
from mtl.broker.reading.ahead import Ahead, Aheads
from mtl.broker.reading.cursors import Holding, HoldingLease
from mtl.broker.steps import run
from mtl.broker.writing.resource import Resource
from mtl.errors import StorageError
from mtl.net.limits import GROUP
from mtl.protocol.settlement import Sent, Unsettled
from mtl.storage.api import Chunk, ChunkRef, LogView
from mtl.wire import commands


class ReaderLease(HoldingLease):
    """One Connection.Reader of the `log` profile: exactly one resource, from `next` up to (not including) `until`.

    `confirmed` is the lowest content that this lease has not confirmed as a holder. A member does not move a
    cursor.
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
        self.ahead = Ahead()
        self.refused = 0
        """Octets of the last Content, if its peer's queue had no room for it; nothing is read until there is room."""

    @property
    def lowest(self) -> int:
        """The content at which delivery resumes after a rebind: the lowest unsettled one, else the next unsent
        one.
        """
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

HasRoom = Callable[[actions.Peer, str, int], bool]
"""Whether contents of so many octets may be sent to a peer, for this owner."""


class Readers:
    """Sends contents to readers, as far as their windows have room."""

    def __init__(self, outbox: Outbox, leases: Leases, aheads: Aheads, has_room: HasRoom) -> None:
        self._outbox = outbox
        self._leases = leases
        self._aheads = aheads
        self._has_room = has_room
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

    async def summon(self, lease: ReaderLease, _resource: str) -> bool:
        """Begin to send, or continue after a Dismiss. The resource of the lease exists."""
        lease.summoned = True
        return True

    def dismiss(self, lease: ReaderLease, _resource: str) -> None:
        """No further content after this (MTL-82)."""
        lease.summoned = False

    def confirm(self, lease: ReaderLease, sequence: int, multiple: bool) -> None:
        """Window credit, and a holder's progress."""
        if lease.full:
            lease.settle(sequence, multiple)

    def reject(self, lease: ReaderLease, command: commands.Reject) -> None:
        """A Reject settles, unless the contents have to be sent again with the next bind (PROTOCOL.md 5.2)."""
        if lease.full and not command.recycle:
            self.counts["rejected"] += 1
            lease.settle(command.sequence, command.multiple)

    def on_frame(self, lease: ReaderLease) -> None:
        """A frame came from this peer: its queue or its window may have room again."""
        self._pauses.end(lease)
        self.wake(lease)

    # --- turns ----------------------------------------------------------------------------------------------

    def wake(self, lease: ReaderLease) -> None:
        """A reader may have room, or further contents for it may be available."""
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
        self._aheads.ended(lease.ahead)

    def blocked(self, lease: ReaderLease, sequence: int) -> None:
        """The peer's queue was full at `sequence`: try again with its next frame, or after a pause."""
        self.counts["blocked"] += 1
        lease.rewind(sequence)
        log = lease.resource.log
        chunk = lease.ahead.find(lease.next) or (log.tail(lease.next) if log is not None else None)
        if chunk is not None:
            size = chunk.ref.size if lease.packed else GROUP + chunk.ref.size // chunk.ref.count
            lease.refused = size if chunk.place is None else 0
        self._pause(lease)

    def unbound(self, lease: ReaderLease) -> None:
        """The lease has no flow any more: nothing is kept in memory for it."""
        lease.ahead.clear()
        self._aheads.ended(lease.ahead)

    def _pause(self, lease: ReaderLease) -> None:
        self._ready.pop(lease.terms.token, None)
        self._pauses.pause(lease, lease.next)

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
            if not self._send_turn(lease):
                self._ready.pop(token, None)

    def _send_turn(self, lease: ReaderLease) -> bool:
        """Send up to one turn's octets and Contents. Returns whether more contents may be sendable at once."""
        octets = 0
        for _ in range(broker_limits.TURN_SENDS):
            sent = self._send_next(lease) if lease.flow is not None and lease.summoned else 0
            octets += sent
            if not sent or octets >= broker_limits.TURN_OCTETS:
                return bool(sent)
        return True

    def _send_next(self, lease: ReaderLease) -> int:
        """Send one Content (a chunk) or one run of plain contents. Returns its octets, at least one. Returns 0
        without contents, without room, or if the contents have to be read first. A chunk that is sent as a place
        has no octets: it needs memory neither of the reader nor of the socket.
        """
        log = lease.resource.log
        end = lease.resource.end if lease.until is None else min(lease.until, lease.resource.end)
        if log is None or lease.flow is None:
            return 0
        # After a refusal the socket is first asked for room of that size: to read and pass the same contents again,
        # only for the socket to return them, would cost as much as sending them.
        if lease.refused and not self._has_room(lease.flow.peer, lease.terms.principal, lease.refused):
            self._pause(lease)
            return 0
        lease.refused = 0
        lease.next = max(lease.next, log.earliest)  # removed contents leave a gap in the sequences
        if lease.next >= end:
            return 0
        chunk = self._chunk(lease, log, end)
        if chunk is None:
            return 0
        ref = chunk.ref
        first, last = (ref.base, ref.end - 1) if lease.packed else self._run(lease, ref, end)
        size = 0 if chunk.place is not None else ref.size * (last - first + 1) // ref.count
        if not self._room(lease, last - first + 1, size):
            return 0
        lease.next = last + 1
        if lease.full:
            self._remember(lease, first, last, size)
        self._outbox.actions.append(
            actions.Deliver(
                lease.flow.peer,
                lease.terms.token,
                lease.terms.principal,
                lease.resource.name,
                chunk,
                first,
                last,
                lease.packed,
            )
        )
        return size or 1

    # --- reading --------------------------------------------------------------------------------------------

    def _chunk(self, lease: ReaderLease, log: LogView, end: int) -> Chunk | None:
        """The chunk with the lease's next content. None if it is not in memory; a read is then under way."""
        chunk = lease.ahead.find(lease.next)
        if chunk is not None:
            following = lease.ahead.following(lease.next)
            if following is not None and following < end and log.tail(following) is None:
                self._read(lease, following, end)
            return chunk
        chunk = log.tail(lease.next)
        if chunk is None:
            self._read(lease, lease.next, end)
        elif lease.local and chunk.ref.size >= limits.LOCAL_FROM:
            return log.place(chunk)
        return chunk

    def _read(self, lease: ReaderLease, first: int, end: int) -> None:
        """Read contents from `first` on for a lease, unless a read for it is under way."""
        if not lease.ahead.reading:
            run(self._read_ahead(lease, first, end))

    async def _read_ahead(self, lease: ReaderLease, first: int, end: int) -> None:
        place_from = limits.LOCAL_FROM if lease.local else None
        resource, share = lease.resource, lease.terms.principal
        try:
            chunks = await self._aheads.read(lease.ahead, resource, first, end, share, place_from=place_from)
        except StorageError as error:
            if self._is_served(lease) and first == lease.next:
                self.unread(lease, first, first + 1, error)
            chunks = ()
        if self._is_served(lease):
            self._aheads.add(lease.ahead, chunks, lease.next)
            self.wake(lease)

    def _is_served(self, lease: ReaderLease) -> bool:
        """Whether a lease that was served has neither ended nor lost its flow."""
        return self._leases.find(lease.terms.token) is lease and lease.flow is not None

    def _run(self, lease: ReaderLease, ref: ChunkRef, end: int) -> tuple[int, int]:
        """The contents (first, last) of a chunk that are sent to a plain reader: as many as its window allows, at
        least one.
        """
        last = min(ref.base + ref.count, end) - 1
        if lease.full and lease.window_contents:
            room = min(
                lease.window_contents - lease.unsettled.contents,
                (lease.window_octets - lease.unsettled.octets) * ref.count // max(1, ref.size),
            )
            last = min(last, lease.next + max(1, room) - 1)
        return lease.next, min(last, lease.next + broker_limits.TURN_CONTENTS - 1)

    def _room(self, lease: ReaderLease, contents: int, size: int) -> bool:
        """Whether the window has room. One Content may always be sent if none is outstanding; otherwise a pack
        larger than the window would never be sent.
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
        """Contents [first, end) cannot be read, or do not verify. No content is skipped: the lease ends, and a
        request for another lease from there is refused with the reason (`Resource.readable`).
        """
        self.counts["unread"] += 1
        lease.resource.add_unread(first, end, error)
        self._leases.fail(lease)

"""The `test` profile: contents are fanned out from all writers to all readers, from a bounded ring in memory.

RFC 11 "The Test Profile" (MTL-114 to 116). Contents are not stored and not confirmed. A reader that falls behind by
more than its ring (broker_limits.FANOUT_RING_OCTETS) loses the oldest contents; the losses are counted. So does one
whose user has too many octets in its rings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mtl import limits
from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.leases.lease import Flow, Lease, LeaseTerms
from mtl.broker.leases.pauses import Pauses
from mtl.broker.outbox import Outbox
from mtl.broker.quotas.pools import Pool
from mtl.broker.writing.writers import WriterLease
from mtl.wire import commands

OVERHEAD = 128
"""Octets that a content costs in a ring besides its size: without them a ring could have any number of empty
contents."""

TURN = 2_000
"""Most contents sent to one reader at once: the capacity of the queues at both ends (`limits.PLAIN_HWM`). Once in
FANOUT_RETRY_S, this is 100,000 a second. Preparing the whole ring each time would take longer with a fuller
ring."""

PROBE = 1
"""The same after a turn in which none could be sent, so that a client that does not read costs little."""


class FanoutLease(Lease):
    """One Connection.Reader of the `test` profile: a ring of unsent contents, and the last delivery number."""

    def __init__(self, terms: LeaseTerms) -> None:
        super().__init__(terms)
        self.summoned: dict[str, None] = {}
        self.ring: deque[commands.Content] = deque()
        self.octets = 0
        """The cost of the ring and of returned contents, in octets."""
        self.counted = 0
        """The part of these octets that is counted for the user."""
        self.delivered = 0
        self._returned: list[commands.Content] = []
        """Contents that were not sent since the last `pop_unsent`, in order; all are older than the ring."""
        self._tried = 0
        """The first delivery number of the last `pop_unsent`."""

    @property
    def waits(self) -> bool:
        """Whether there are unsent contents."""
        return bool(self.ring or self._returned)

    def append(self, content: commands.Content) -> None:
        """Append a content to the ring."""
        self.ring.append(content)
        self.octets += _cost(content)

    def trim(self, excess: int) -> int:
        """Bound the ring, and drop `excess` octets; one content always fits. Returns the number of oldest contents that
        were dropped.
        """
        self._merge()
        most = min(broker_limits.FANOUT_RING_OCTETS, self.octets - excess)
        dropped = 0
        while len(self.ring) > 1 and self.octets > most:
            self.octets -= _cost(self.ring.popleft())
            dropped += 1
        return dropped

    def push_unsent(self, content: commands.Content) -> None:
        """Return a content of `pop_unsent` that was not sent; all from the first unsent one on return, in order."""
        self._returned.append(content)
        self.octets += _cost(content)

    @property
    def stuck(self) -> bool:
        """Whether no content of the last `pop_unsent` was sent."""
        return bool(self._returned) and self._returned[0].sequence == self._tried

    def pop_unsent(self, most: int) -> list[commands.Content]:
        """Take the first contents to be sent, in order."""
        self._merge()
        contents = [self.ring.popleft() for _ in range(min(len(self.ring), most))]
        self.octets -= sum(map(_cost, contents))
        self._tried = contents[0].sequence if contents else 0
        return contents

    def rebound(self, flow: Flow) -> None:
        """A new data flow: Summons are cleared, and waiting contents dropped."""
        self.flow = flow
        self.summoned.clear()
        self._forget(lambda _: True)

    def dismissed(self, resource: str) -> None:
        """No further content of `resource` after this (MTL-82)."""
        self.summoned.pop(resource, None)
        self._forget(lambda content: content.resource == resource)

    def _forget(self, which: Callable[[commands.Content], bool]) -> None:
        self._merge()
        self.ring = deque(content for content in self.ring if not which(content))
        self.octets = sum(map(_cost, self.ring))

    def _merge(self) -> None:
        self.ring.extendleft(reversed(self._returned))
        self._returned.clear()


class Fanout:
    """Every reader of the `test` profile, per virtual host."""

    def __init__(self, outbox: Outbox, waiting: Pool) -> None:
        self._outbox = outbox
        self._waiting = waiting
        self._pauses: Pauses[FanoutLease] = Pauses(outbox)
        self._readers: dict[str, dict[str, FanoutLease]] = {}
        self.counts = {"dropped": 0, "refused": 0}

    def add(self, lease: FanoutLease) -> None:
        """A reader was granted its lease."""
        self._readers.setdefault(lease.terms.vhost, {})[lease.terms.token] = lease

    def remove(self, lease: FanoutLease) -> None:
        """A reader's lease ended."""
        readers = self._readers.get(lease.terms.vhost, {})
        readers.pop(lease.terms.token, None)
        self._pauses.end(lease)
        self._waiting.remove(lease.terms.principal, lease.counted)
        if not readers:
            self._readers.pop(lease.terms.vhost, None)

    @property
    def has_readers(self) -> bool:
        """Whether there is a reader."""
        return bool(self._readers)

    async def summon(self, lease: FanoutLease, resource: str) -> bool:
        """Send further contents of a resource to this reader, if there is such a resource (MTL-114)."""
        exists = resource in lease.terms.profile.fixed_resources
        if exists:
            lease.summoned[resource] = None
        return exists

    def dismiss(self, lease: FanoutLease, resource: str) -> None:
        """No further content of `resource` after this (MTL-82)."""
        lease.dismissed(resource)
        self._count(lease)

    def confirm(self, lease: FanoutLease, sequence: int, multiple: bool) -> None:
        """Ignored: nothing is confirmed in this profile (MTL-115)."""

    def reject(self, lease: FanoutLease, command: commands.Reject) -> None:
        """Ignored: nothing is rejected in this profile."""

    def content(self, writer: WriterLease, content: commands.Content) -> None:
        """Copy one content to every reader that summoned its resource (MTL-116)."""
        name = content.resource or writer.only or ""
        known = name in writer.terms.profile.fixed_resources and writer.terms.covers(name)
        if not known or not _allowed(content):
            self.counts["refused"] += 1
            if writer.flow is not None:
                writer.flow.send(commands.Reject(content.sequence, False, False))
            return
        for reader in list(self._readers.get(writer.terms.vhost, {}).values()):
            if reader.flow is not None and name in reader.summoned:
                self._offer(reader, name, content)

    def _offer(self, reader: FanoutLease, name: str, content: commands.Content) -> None:
        reader.delivered += 1
        copy = commands.Content(reader.delivered, name, content.properties, content.body)
        if reader.waits:
            reader.append(copy)
            self._trim(reader)
        else:
            self._send(reader, copy)

    def _send(self, reader: FanoutLease, content: commands.Content) -> None:
        if reader.flow is not None:
            terms = reader.terms
            self._outbox.actions.append(
                actions.Relay(reader.flow.peer, terms.token, terms.principal, content)
            )

    def blocked(self, reader: FanoutLease, content: commands.Content) -> None:
        """The peer's queue was full: keep the content for later, unless its flow or its Summon has ended."""
        if content.resource in reader.summoned:
            reader.push_unsent(content)
            self._count(reader)
        # A queue that is full after some contents is the end of a turn, and `retry` sends on in FANOUT_RETRY_S. Only a
        # peer that took none may have stopped reading: it is left alone for longer and longer pauses.
        if reader.stuck and reader not in self._pauses:
            self._pauses.pause(reader)

    def on_frame(self, reader: FanoutLease) -> None:
        """A frame came from this peer: its queue may have room again."""
        self._pauses.end(reader)
        self.flush(reader)

    def flush(self, reader: FanoutLease) -> None:
        """Send the next contents of the ring; those that do not fit are returned through `blocked`."""
        stuck = reader.stuck
        self._trim(reader)
        for content in reader.pop_unsent(PROBE if stuck else TURN):
            self._send(reader, content)
        self._count(reader)

    def retry(self) -> None:
        """Send from every ring with waiting contents, except those of readers that have not read for a while."""
        self._pauses.over()
        for readers in self._readers.values():
            for reader in readers.values():
                if reader.waits and reader not in self._pauses:
                    self.flush(reader)

    def _trim(self, reader: FanoutLease) -> None:
        self._count(reader)
        self.counts["dropped"] += reader.trim(max(0, self._waiting.excess(reader.terms.principal)))
        self._count(reader)

    def _count(self, reader: FanoutLease) -> None:
        self._waiting.add(reader.terms.principal, reader.octets - reader.counted)
        reader.counted = reader.octets


def _cost(content: commands.Content) -> int:
    return len(content.body) + len(content.properties) + OVERHEAD


def _allowed(content: commands.Content) -> bool:
    return (
        len(content.body) <= limits.MAX_CONTENT
        and len(content.properties) <= limits.MAX_TABLE
        and not commands.reserved(content.properties)
    )

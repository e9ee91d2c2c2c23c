"""The `test` profile at work: content is fanned out from all writers to all readers, from a bounded ring in memory.

RFC 11 "The Test Profile" (MTL-114 to 116). Nothing is stored or confirmed; a reader that falls behind its ring loses
the oldest contents, and they are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mtl import limits
from mtl.wire import commands as c

if TYPE_CHECKING:
    from mtl.broker.flows import DataFlow
    from mtl.broker.leases import LeaseTerms
    from mtl.broker.writers import WriterLease


class FanoutLease:
    """One Connection.Reader of the `test` profile: a ring of what it has not been sent yet, and a delivery number."""

    packed = False

    def __init__(self, terms: LeaseTerms) -> None:
        self.terms = terms
        self.flow: DataFlow | None = None
        self.summoned: dict[str, None] = {}
        self.ring: deque[c.Content] = deque()
        self.octets = 0
        self.delivered = 0

    def keep(self, content: c.Content) -> int:
        """Put a content at the end of the ring; how many of the oldest had to go for it."""
        self.ring.append(content)
        self.octets += _size(content)
        dropped = 0
        while len(self.ring) > limits.FANOUT_RING or (
            len(self.ring) > 1 and self.octets > limits.FANOUT_RING_OCTETS
        ):
            self.octets -= _size(self.ring.popleft())
            dropped += 1
        return dropped

    def take(self) -> deque[c.Content]:
        """Everything that waits, in order; the ring is empty then."""
        waiting, self.ring = self.ring, deque()
        self.octets = 0
        return waiting

    def rebound(self, flow: DataFlow) -> None:
        """A new data flow: Summons are cleared and what was waiting is for nobody any more."""
        self.flow = flow
        self.summoned.clear()
        self.take()

    def dismissed(self, resource: str) -> None:
        """No further content of `resource` after this (MTL-82)."""
        self.summoned.pop(resource, None)
        for content in self.take():
            if content.resource != resource:
                self.keep(content)


class Fanout:
    """Every reader of the `test` profile, per virtual host."""

    def __init__(self, send: Callable[[FanoutLease, c.Content], None]) -> None:
        self._send = send
        self._readers: dict[str, dict[str, FanoutLease]] = {}
        self.counts = {"dropped": 0, "refused": 0}

    def joined(self, lease: FanoutLease) -> None:
        """A reader was granted its lease."""
        self._readers.setdefault(lease.terms.vhost, {})[lease.terms.token] = lease

    def left(self, lease: FanoutLease) -> None:
        """A reader's lease ended."""
        readers = self._readers.get(lease.terms.vhost, {})
        readers.pop(lease.terms.token, None)
        if not readers:
            self._readers.pop(lease.terms.vhost, None)

    @property
    def any(self) -> bool:
        """Whether there is a reader."""
        return bool(self._readers)

    def summon(self, lease: FanoutLease, resource: str) -> bool:
        """Whether there is such a resource (MTL-114); what comes from now on is for this reader, too."""
        if resource not in lease.terms.profile.fixed_resources:
            return False
        lease.summoned[resource] = None
        return True

    def dismiss(self, lease: FanoutLease, resource: str) -> None:
        """No further content of `resource` after this (MTL-82)."""
        lease.dismissed(resource)

    def confirm(self, lease: FanoutLease, sequence: int, multiple: bool) -> None:
        """Nothing is ever confirmed here (MTL-115)."""

    def reject(self, lease: FanoutLease, sequence: int, multiple: bool, recycle: bool) -> None:
        """Nor rejected."""

    def content(self, writer: WriterLease, content: c.Content) -> None:
        """Duplicate one content to every reader that summoned its resource (MTL-116)."""
        name = content.resource or writer.only or ""
        known = name in writer.terms.profile.fixed_resources and writer.terms.covers(name)
        if not known or len(content.body) > limits.MAX_CONTENT:
            self.counts["refused"] += 1
            if writer.flow is not None:
                writer.flow.send(c.Reject(content.sequence, False, False))
            return
        for reader in list(self._readers.get(writer.terms.vhost, {}).values()):
            if reader.flow is not None and name in reader.summoned:
                self._offer(reader, name, content)

    def _offer(self, reader: FanoutLease, name: str, content: c.Content) -> None:
        reader.delivered += 1
        copy = c.Content(reader.delivered, name, content.properties, content.body)
        if reader.ring:
            self.counts["dropped"] += reader.keep(copy)
        else:
            self._send(reader, copy)

    def blocked(self, reader: FanoutLease, content: c.Content) -> None:
        """The peer's queue was full: keep it for later, unless it was for a flow or a Summon that is over."""
        if content.resource in reader.summoned:
            self.counts["dropped"] += reader.keep(content)

    def heard(self, reader: FanoutLease) -> None:
        """A frame came from this peer: its queue may have room again."""
        self.flush(reader)

    def flush(self, reader: FanoutLease) -> None:
        """Send what waits in the ring; what does not fit comes back through `blocked`."""
        for content in reader.take():
            self._send(reader, content)

    def retry(self) -> None:
        """Try every ring that holds something."""
        for readers in self._readers.values():
            for reader in readers.values():
                if reader.ring and reader.flow is not None:
                    self.flush(reader)


def _size(content: c.Content) -> int:
    return len(content.body) + len(content.properties)

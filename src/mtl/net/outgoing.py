"""Octets that were handed to sockets and are not sent yet: bounded for each owner of peers, and in all.

A high-water mark counts the messages of one peer, not octets, and says nothing about all peers together. No socket or
clock is used here: a message's tracker says when libzmq has sent it.

A tracker costs some microseconds. So small messages are counted in groups, and only the last message of a group has a
tracker. A queue keeps its order: when this message is sent, so are those before it. A group that is not complete yet is
not counted, since nothing tells when it is sent: each peer may have GROUP octets more than the limits say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from mtl.net.limits import GROUP, PEERS_KNOWN
from mtl.shares import Uses

_SETTLED_AT_ONCE = 8
"""Queues that are asked for sent messages before a message is refused."""


class Tracker(Protocol):
    """Says whether a message was sent."""

    @property
    def done(self) -> bool:
        """Whether libzmq has sent the message, or has dropped it because its peer is gone."""


class Account(NamedTuple):
    """The octets for which a message counts, and its owner there."""

    pool: Outgoing
    owner: str


class PeerQueue:
    """The messages of one peer of one socket: `octets` in complete groups, `begun` in the one that is not complete."""

    __slots__ = ("_groups", "begun", "octets")

    def __init__(self) -> None:
        self._groups: deque[tuple[Tracker, int, Account]] | None = None
        self.octets = 0
        self.begun = 0

    def complete(self, size: int, tracker: Tracker, account: Account) -> None:
        """A message of `size` octets completes the group that has begun."""
        if self._groups is None:
            self._groups = deque()
        octets, self.begun = self.begun + size, 0
        self._groups.append((tracker, octets, account))
        self.octets += octets
        account.pool.add(self, account.owner, octets)

    def settle(self) -> bool:
        """Release the groups that were sent. Returns whether others are left."""
        groups = self._groups
        while groups and groups[0][0].done:
            _, octets, account = groups.popleft()
            self.octets -= octets
            account.pool.release(account.owner, octets)
        if not groups:
            self._groups = None
        return self._groups is not None


class Outgoing:
    """A bound for the unsent octets of many peers: `total`, and `share_of` each owner (None: only the total).

    Two kinds of message always have room, so that no peer that reads has to wait for others that do not: an owner's
    only one, and a small one of a peer without unsent groups. A peer gets at most as much as it leaves free, so that a
    few peers that read nothing leave room for the owner's others.
    """

    def __init__(self, total: int, share_of: Callable[[str], int | None] = lambda _: None) -> None:
        self._total = total
        self._share_of = share_of
        self._held = Uses()
        self._queues: dict[PeerQueue, None] = {}
        """The queues with groups in this pool, those first that were not settled for the longest time."""
        self._most = 0

    @property
    def octets(self) -> int:
        """The octets of all owners."""
        return self._held.used

    def has_room(self, owner: str, octets: int, queue: PeerQueue) -> bool:
        """Whether a message of an owner may be sent to a peer."""
        if self._fits(owner, octets, queue):
            return True
        self._settle_some(_SETTLED_AT_ONCE)
        return self._fits(owner, octets, queue)

    def _fits(self, owner: str, octets: int, queue: PeerQueue) -> bool:
        held, mine = self._held.of(owner), queue.octets
        if not held or (not mine and octets < 2 * GROUP):
            return True
        free, share = self._total - self.octets, self._share_of(owner)
        if share is not None:
            free = min(free, share - held)
        return mine + octets <= free

    def add(self, queue: PeerQueue, owner: str, octets: int) -> None:
        """A group is complete. Each call also settles the oldest queue, so that those of disconnected peers leave."""
        self._settle_some(1)
        self._queues.setdefault(queue)
        self._held.add(owner, octets)
        self._most = max(self._most, self.octets)

    def release(self, owner: str, octets: int) -> None:
        """A group was sent."""
        self._held.remove(owner, octets)

    def most(self) -> int:
        """The most unsent octets since the last call."""
        self._settle_some(len(self._queues))
        most, self._most = self._most, self.octets
        return most

    def _settle_some(self, number: int) -> None:
        for _ in range(min(number, len(self._queues))):
            queue = next(iter(self._queues))
            del self._queues[queue]
            if queue.settle():
                self._queues[queue] = None

    def __len__(self) -> int:
        return len(self._queues)


class PeerQueues:
    """The queues of one socket's peers. `most`: the octets of one peer, above which it gets no further groups."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._queues: dict[bytes, PeerQueue] = {}

    def of(self, peer: bytes) -> PeerQueue:
        """The queue of a peer. Queues that are no longer known are still counted in their pools."""
        queue = self._queues.get(peer)
        if queue is None:
            queue = self._queues[peer] = PeerQueue()
            if len(self._queues) > PEERS_KNOWN:
                del self._queues[next(iter(self._queues))]
        return queue

    def forget(self, peer: bytes) -> None:
        """The peer is gone."""
        self._queues.pop(peer, None)

    def has_room(self, queue: PeerQueue, octets: int, account: Account) -> bool:
        """Whether a message that completes a group of this size may be sent."""
        queue.settle()
        if self._most is not None and queue.octets >= self._most:
            return False
        return account.pool.has_room(account.owner, octets, queue)

    def __len__(self) -> int:
        return len(self._queues)

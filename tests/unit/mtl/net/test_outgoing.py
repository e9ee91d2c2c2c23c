"""Unsent octets: what has room, what is counted for whom, and how it leaves the counts."""

from __future__ import annotations

import pytest

from mtl.net.limits import GROUP
from mtl.net.outgoing import Account, Outgoing, PeerQueue, PeerQueues

MIB = 1 << 20


class Message:
    """A message in libzmq's queue."""

    def __init__(self) -> None:
        self.done = False


class Peers:
    """Peers of one socket that are sent large messages."""

    def __init__(self, pool: Outgoing, most: int | None = None) -> None:
        self.pool = pool
        self.queues = PeerQueues(most)
        self.unsent: dict[bytes, list[Message]] = {}

    def send(self, peer: bytes, octets: int = MIB, owner: str = "me") -> bool:
        """Send a message if there is room for it."""
        queue, account = self.queues.of(peer), Account(self.pool, owner)
        if not self.queues.has_room(queue, octets, account):
            return False
        self.unsent.setdefault(peer, []).append(Message())
        queue.complete(octets, self.unsent[peer][-1], account)
        return True

    def fill(self, peer: bytes, octets: int = MIB, owner: str = "me") -> int:
        """The number of messages until there is no room; none of them is sent."""
        sent = 0
        while self.send(peer, octets, owner):
            sent += 1
            assert sent < 1_000
        return sent

    def drain(self, peer: bytes) -> None:
        """The peer reads everything."""
        for message in self.unsent.pop(peer):
            message.done = True


def test_an_owner_has_its_share_and_others_have_theirs() -> None:
    peers = Peers(Outgoing(40 * MIB, lambda _: 10 * MIB))
    for number in range(20):
        peers.fill(b"%d" % number)
    assert peers.pool.octets == 10 * MIB
    assert peers.fill(b"other", owner="you") == 5, "a peer leaves as much as it takes"


def test_the_total_bounds_owners_without_a_share() -> None:
    peers = Peers(Outgoing(10 * MIB))
    for number in range(20):
        peers.fill(b"%d" % number, owner="" if number % 2 else "me")
    assert peers.pool.octets == 10 * MIB


def test_peers_that_read_nothing_leave_room_for_another_peer_of_their_owner() -> None:
    peers = Peers(Outgoing(64 * MIB))
    taken = [peers.fill(b"%d" % number) for number in range(5)]
    assert taken == [32, 16, 8, 4, 2]
    for _ in range(10):
        assert peers.send(b"reads")
        peers.drain(b"reads")


def test_there_is_room_again_after_messages_were_sent() -> None:
    peers = Peers(Outgoing(4 * MIB))
    peers.fill(b"a", 4 * MIB)
    assert not peers.send(b"b", 4 * MIB)
    peers.drain(b"a")
    assert peers.send(b"b", 4 * MIB)
    assert peers.pool.octets == 4 * MIB


def test_an_owner_may_always_have_one_message() -> None:
    peers = Peers(Outgoing(MIB, lambda _: MIB // 4))
    assert peers.fill(b"a", 5 * MIB, "me") == 1
    assert peers.fill(b"b", 5 * MIB, "me") == 0
    assert peers.fill(b"c", 5 * MIB, "you") == 1, "although the total is used up"


def test_a_peer_without_unsent_messages_may_always_have_a_small_one() -> None:
    peers = Peers(Outgoing(MIB))
    peers.fill(b"a")
    assert peers.fill(b"b", GROUP) == 1
    assert peers.fill(b"c", 2 * GROUP) == 0


def test_a_peer_has_a_bound_of_its_own() -> None:
    peers = Peers(Outgoing(1 << 40), most=3 * MIB)
    assert peers.fill(b"a") == 3
    assert peers.fill(b"b") == 3
    peers.drain(b"a")
    assert peers.fill(b"a") == 3


def test_a_group_is_released_only_after_the_groups_before_it() -> None:
    pool, queue = Outgoing(1 << 40), PeerQueue()
    first, second = Message(), Message()
    queue.begun = 10
    queue.complete(90, first, Account(pool, "me"))
    queue.complete(50, second, Account(pool, "you"))
    assert (queue.octets, queue.begun, pool.octets) == (150, 0, 150)
    second.done = True
    assert queue.settle()
    assert pool.octets == 150
    first.done = True
    assert not queue.settle()
    assert (queue.octets, pool.octets) == (0, 0)


def test_disconnected_peers_leave_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.net.outgoing.PEERS_KNOWN", 100)
    peers = Peers(Outgoing(1 << 40))
    for number in range(1_000):
        assert peers.send(b"%d" % number)
        peers.drain(b"%d" % number)
    assert (len(peers.pool), len(peers.queues), peers.pool.octets) == (1, 100, MIB)
    peers.queues.forget(b"999")
    assert len(peers.queues) == 99
    assert peers.pool.most() == MIB
    assert (len(peers.pool), peers.pool.octets) == (0, 0)


def test_the_most_octets_since_the_last_question() -> None:
    peers = Peers(Outgoing(1 << 40))
    for _ in range(3):
        peers.send(b"a")
    assert peers.pool.most() == 3 * MIB
    peers.drain(b"a")
    assert peers.pool.most() == 3 * MIB
    assert peers.pool.most() == 0

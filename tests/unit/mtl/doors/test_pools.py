from __future__ import annotations

import pytest

from mtl.doors import limits
from mtl.doors.failure_log import PeerAddress
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.pools import DOOR_POOLS, CountedPool, DoorQuota, Shares, shares_of
from mtl.wire.control import OVERLOADED, QUOTA


def test_every_bound_in_the_table_exists() -> None:
    options = {"max-sessions", "one each", "all of it", "", *(f"quotas.{quota}" for quota in DoorQuota)}
    for pool in DOOR_POOLS.values():
        for name in (*pool.total.split(", "), pool.share):
            assert name in options or isinstance(getattr(limits, name), int | float), name


def test_every_owner_is_refused_at_its_share_and_all_at_the_total() -> None:
    pool = CountedPool(DoorQuota.SESSIONS, total=3, share=2)
    for owner in ("alice", "alice", "bob"):
        pool.take(owner)
    for owner, reason, words in (
        ("alice", QUOTA, "you have 2 sessions at this door, and its limit quotas.sessions is 2: end some"),
        ("bob", OVERLOADED, "this door has 3 sessions, and its limit max-sessions is 3: try again later"),
    ):
        with pytest.raises(DoorRefusal) as caught:
            pool.take(owner)
        assert (caught.value.reason, caught.value.message[: len(words)]) == (reason, words)
    pool.free("alice")
    pool.take("bob")
    assert pool.used == 3


@pytest.mark.parametrize(
    ("local", "peer", "owner"),
    [
        (True, PeerAddress("192.0.2.1", 7, "alice"), "alice"),
        (False, PeerAddress("192.0.2.1", 7, "alice"), "alice"),
        (False, PeerAddress("192.0.2.1", 7), "192.0.2.1"),
        (True, PeerAddress("127.0.0.1", 7), "127.0.0.1:7"),
        (True, PeerAddress("", 0, None, 3), ":3"),
    ],
)
def test_the_owner_is_the_user_the_address_or_on_loopback_the_connection(
    local: bool, peer: PeerAddress, owner: str
) -> None:
    assert Shares(100, local=local).owner(peer) == owner


def test_a_configured_share_leaves_a_reserve() -> None:
    assert shares_of({DoorQuota.SESSIONS: 75}, 100) == {
        DoorQuota.SESSIONS: 75,
        DoorQuota.SUBSCRIPTIONS: limits.DOOR_SUBSCRIPTIONS // 4,
        DoorQuota.INBOUND_OCTETS: limits.DOOR_INBOUND // 4,
    }
    for wrong in (0, 76):
        with pytest.raises(ValueError, match=rf"quotas\.sessions = {wrong} is not from 1 to 75"):
            shares_of({DoorQuota.SESSIONS: wrong}, 100)

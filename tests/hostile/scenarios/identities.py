"""Identities: a peer takes the ROUTER identity of another one whose connection has just ended."""

from __future__ import annotations

from collections.abc import Iterator

from mtl.testing import RunningBroker
from tests.hostile.harness import scenario
from tests.support.minimal_client import (
    CONFIRM,
    CONTENT,
    EMPTY,
    LEASE,
    PING,
    RESPONSE,
    SUMMON,
    minimal_client,
    short,
    u64,
)
from tests.support.zmtp import RawPeer

WRITTEN = 10
PATIENCE_S = 0.3
ATTEMPTS = 100


def bound(endpoint: str, identity: bytes, *leases: str) -> RawPeer:
    """A data connection with this identity and these leases."""
    peer = RawPeer(endpoint, identity).shake_hands()
    for number, lease in enumerate(leases, 1):
        peer.send(LEASE + u64(number) + short(lease), b"")
        assert peer.receive() == [RESPONSE + u64(number), b"200"]
    return peer


def steal(data: str, identity: bytes) -> int:
    """Take over an identity and use it; returns the number of connections needed. A peer that announces an identity in
    use is ignored while connected.
    """
    for attempt in range(1, ATTEMPTS):
        thief = RawPeer(data, identity)
        thief.socket.settimeout(PATIENCE_S)
        try:
            thief.shake_hands()
            thief.send(CONFIRM + u64(1) + b"\1", b"")
            thief.send(CONTENT + u64(1) + short("stolen") + EMPTY, b"forged")
            thief.send(PING, b"")
            thief.send(SUMMON + u64(4) + short("stolen"), b"")
            assert thief.receive() == [RESPONSE + u64(4), b"403"], "a stranger is told that it has no lease"
        except OSError:
            continue
        else:
            return attempt
        finally:
            thief.close()
    raise AssertionError("the identity of a connection that has ended was never free")


@scenario()
def identities(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A thief announces a victim's identity at the moment when the victim's connection ends, and claims contents, a
    cursor and a writer's name by it.
    """
    rounds, attempts = 500 if heavy else 30, 0
    with minimal_client(broker.endpoint) as client:
        client.ask("Resource.Create", resource="stolen")
        filling = client.lease("Writer", resources=["stolen"], confirm="full")
        for number in range(1, WRITTEN + 1):
            filling.content(number, b"secret")
        filling.await_confirm(WRITTEN)
        for turn in range(rounds):
            group, identity = f"g{turn}", b"victim %d" % turn
            assert client.ask("Cursor.Open", group=group, resource="stolen", **{"from": "earliest"})[0] == 200
            reading = client.granted(
                "Reader", resources=["stolen"], confirm="full", group=group, window={"contents": 1}
            )
            writing = client.granted("Writer", resources=["stolen"], confirm="full")
            data = f"{broker.endpoint.rpartition(':')[0]}:{reading['port']}"
            victim = bound(data, identity, reading["lease"], writing["lease"])
            victim.send(SUMMON + u64(3) + short("stolen"), b"")
            assert victim.receive() == [RESPONSE + u64(3), b"200"]
            assert victim.receive()[1] == b"secret"

            victim.close()
            attempts += steal(data, identity)

            cursors = client.ask("Cursor.Describe", group=group, resource="stolen")[1]["cursors"]
            assert [c["position"] for c in cursors] == [1]
            for lease in (reading, writing):
                assert client.ask("Lease.Close", lease=lease["lease"])[0] == 200
        described = client.ask("Resource.Describe", resource="stolen")[1]["resources"][0]
        assert described["next"] == WRITTEN + 1, "nothing was written under another's name"
        yield f"{rounds:,} identities taken over with {attempts:,} connections"

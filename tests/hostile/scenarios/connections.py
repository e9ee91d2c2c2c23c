"""Connections that vanish, hang half-open, are very slow, use another protocol or send too much."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator

from mtl.testing import RunningBroker
from tests.hostile.harness import MIB, scenario
from tests.support.minimal_client import LEASE, RESPONSE, minimal_client, short, u64
from tests.support.zmtp import GREETING, RawPeer, header

OPEN = json.dumps({"protocol": {"name": "MTL", "version": 1}}).encode()
PROFILE = json.dumps({"profile": "test"}).encode()
WRITER = json.dumps({"resources": ["resource"]}).encode()


def asked(peer: RawPeer, command: bytes, body: bytes) -> tuple[bytes, dict[str, object]]:
    """A request and its reply."""
    peer.send(b"", command, body)
    _, code, text = peer.receive()
    return code, json.loads(text)


def leased(endpoint: str) -> tuple[RawPeer, RawPeer]:
    """A control and a data connection with a lease of the profile test bound to the latter."""
    control = RawPeer(endpoint).shake_hands()
    assert asked(control, b"Connection.Open", OPEN)[0] == b"201"
    assert asked(control, b"Connection.Profile", PROFILE)[0] == b"200"
    code, lease = asked(control, b"Connection.Writer", WRITER)
    assert code == b"202"
    data = RawPeer(f"{endpoint.rpartition(':')[0]}:{lease['port']}").shake_hands()
    data.send(LEASE + u64(1) + short(str(lease["lease"])), b"")
    assert data.receive() == [RESPONSE + u64(1), b"200"]
    return control, data


@scenario()
def clients_that_connect_and_vanish(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A session, a lease, a bound data flow each, then a reset instead of a goodbye."""
    count = 1_000 if heavy else 200
    for _ in range(count):
        for peer in leased(broker.endpoint):
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
    yield f"{count:,} clients, each with a lease"


@scenario()
def half_open_connections(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """No octet is ever sent on them; they are closed at the handshake timeout."""
    count = 5_000 if heavy else 300
    peers = [RawPeer(broker.endpoint) for _ in range(count)]
    if heavy:
        assert all(peer.hung_up() for peer in peers)
    yield f"{count:,} connections that say nothing" + (", all cut off" if heavy else "")
    for peer in peers:
        peer.close()


@scenario()
def slow_loris(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A handshake an octet at a time, never finished."""
    count = 1_000 if heavy else 100
    peers = [RawPeer(broker.endpoint) for _ in range(count)]
    for turn in range(30 if heavy else 5):
        for peer in peers:
            try:
                peer.socket.send(GREETING[turn : turn + 1])
            except OSError:
                pass  # cut off
        time.sleep(0.4 if heavy else 0.1)  # the delay of the attack; there is no answer
    if heavy:
        assert all(peer.hung_up() for peer in peers)
    yield f"{count:,} handshakes of an octet at a time" + (", all cut off" if heavy else "")
    for peer in peers:
        peer.close()


@scenario()
def garbage_instead_of_zmtp(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    count = 2_000 if heavy else 200
    starts = (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"\0" * 100,
        GREETING,
        GREETING + b"\xff" * 100,
    )
    for number in range(count):
        peer = RawPeer(broker.endpoint)
        try:
            peer.socket.sendall(starts[number % len(starts)] + os.urandom(200))
        except OSError:
            pass  # disconnected before
        peer.close()
    yield f"{count:,} connections with HTTP, TLS, random octets"


@scenario()
def one_gibibyte_in_a_frame(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """The size is in the frame's header, so the connection ends before the first octet is read."""
    count = 20 if heavy else 5
    sent = 0
    for _ in range(count):
        peer = RawPeer(broker.endpoint).shake_hands()
        block = bytes(MIB)
        try:
            peer.socket.sendall(header(1 << 30))
            for _ in range(1 << 10):
                peer.socket.sendall(block)
                sent += 1
        except OSError:
            pass
        assert peer.hung_up()
        peer.close()
    assert sent < 64 * count
    yield f"{count} messages of 1 GiB, cut off after {sent / count:.0f} MiB each"


@scenario(memory=128)  # 2,000 open connections of about 40 KiB
def a_guessed_identity(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A peer that announces the ROUTER identity of another one gets none of its messages: the broker keeps the first,
    and its generated identities differ from those of other processes.
    """
    guesses = 2_000 if heavy else 200
    with minimal_client(broker.endpoint, "test") as client:
        reader = client.lease("Reader", resources=["resource"], confirm="none")
        reader.summon("resource")
        peers = []
        for guess in range(guesses):
            # Identities of libzmq are a zero octet and a counter; this is the first one without a seed.
            identity = b"\0" + struct.pack(">I", 0x6B8B4567 + guess)
            try:
                peer = RawPeer(broker.endpoint, identity).shake_hands()
            except (OSError, ConnectionError):
                continue
            peers.append(peer)
            peer.socket.sendall(
                header(0, more=True) + header(18, more=True) + b"Connection.Profile" + header(2) + b"{}"
            )
            code = peer.receive()[1]
            assert code == b"400", "another's session answered"
        for peer in peers:
            peer.close()
        assert client.ask("Connection.Profile", profile="test")[0] == 200
        yield f"{guesses:,} identities guessed, {len(peers):,} let in, none with a session"

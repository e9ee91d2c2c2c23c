"""Doors: hostile peers, while the broker serves others."""

from __future__ import annotations

import base64
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import mtl
from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, scenario
from tests.hostile.scenarios.rights import user
from tests.support.doors import await_line, door_process
from tests.support.zmtp import RawPeer

ATTEMPTS = 50
PATIENCE_S = 0.3


@contextmanager
def mc0_door(broker: RunningBroker) -> Iterator[str]:
    with door_process("mc0", "--connect", broker.endpoint, "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        yield await_line(process.stdout.fileno(), r"mtl door mc0 ready at (\S+) ")


def asked(peer: RawPeer, *frames: bytes) -> list[bytes]:
    peer.send(*frames)
    return peer.receive()


def again(endpoint: str, identity: bytes, *frames: bytes) -> tuple[RawPeer, list[bytes]]:
    """A peer with the identity of one just disconnected, and its answer. While the former one still has the identity
    there is no answer.
    """
    for _ in range(ATTEMPTS):
        peer = RawPeer(endpoint, identity)
        peer.socket.settimeout(PATIENCE_S)
        try:
            return peer, asked(peer.shake_hands(), *frames)
        except OSError:
            peer.close()
    raise AssertionError("the identity of a connection that has ended was never free")


@scenario()
def identities_at_a_door(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A peer that announces a subscriber's identity after its end gets none of its messages; a hanging subscriber keeps
    it no longer than its TTL.
    """
    count = 100 if heavy else 10
    with mc0_door(broker) as endpoint, mtl.connect(broker.endpoint) as c:
        c.create_resource("door")
        with c.writer("door") as w:
            for number in range(count):
                identity = b"victim %d" % number
                victim = RawPeer(endpoint, identity).shake_hands()
                assert asked(victim, b"SUB", b"ID", b"s", b"", b"door") == [b"OK", b"ID", b"s"]
                victim.close()
                thief, answer = again(endpoint, identity, b"NOOP", b"ID", b"n")
                assert answer == [b"OK", b"ID", b"n"]
                w.send(b"secret")
                w.flush()
                assert asked(thief, b"NOOP", b"ID", b"m") == [b"OK", b"ID", b"m"], "a content of the victim's"
                thief.close()
        hanging = RawPeer(endpoint, b"hanging").shake_hands()
        assert asked(hanging, b"CONNECT", b"ID", b"c", b"TTL", b"200") == [b"OK", b"ID", b"c"]
        owner, answer = again(endpoint, b"hanging", b"CONNECT", b"ID", b"c", b"TTL", b"60000")
        assert answer == [b"OK", b"ID", b"c"]
        owner.close()
        hanging.close()
        yield f"{count:,} identities taken over, and one that hung"


@scenario()
def much_after_a_disconnect_at_a_door(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A peer that continues after its goodbye does not delay others."""
    count = 20_000 if heavy else 2_000
    with mc0_door(broker) as endpoint:
        peer, other = (RawPeer(endpoint).shake_hands() for _ in range(2))
        for _ in range(count):
            peer.send(b"DISCONNECT")
            peer.send(b"NOOP")
        assert asked(other, b"NOOP", b"ID", b"n") == [b"OK", b"ID", b"n"]
        for client in (peer, other):
            client.close()
        yield f"{count:,} goodbyes of one peer"


@scenario()
def passwords_guessed_at_a_door(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """After some attempts the user is locked out for this address, and nobody else. A door reachable by other machines
    does not start in this way.
    """
    count = 500 if heavy else 60
    for name, grant in (("alice", "read .*"), ("bob", "read .*"), ("door", "act-as alice|bob")):
        user(broker, name, grant).close()
    password = broker.data.parent / "door.password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n")
    own = ["--user", "door", "--password-file", str(password)]
    command = ["mbws", "--connect", broker.endpoint, "--basic", "--listen"]
    with door_process(*command, "0.0.0.0:0", before=own) as exposed:
        assert exposed.wait(20) == 1, "a door that lets others listen in"
    codes: Counter[int] = Counter()
    with door_process(*command, "127.0.0.1:0", before=own) as process:
        assert process.stdout is not None
        host, port = await_line(process.stdout.fileno(), r"ready at ws://(\S+) ").split(":")
        assert guess((host, int(port)), f"alice:{PASSWORD}") == 101
        for number in range(count):
            codes[guess((host, int(port)), f"alice:{number}")] += 1
        assert guess((host, int(port)), f"alice:{PASSWORD}") == 401, "the right one after many wrong ones"
        assert guess((host, int(port)), f"bob:{PASSWORD}") == 101, "another user at the same address"
    assert codes == {401: count}, codes
    yield f"{count:,} passwords"


def guess(place: tuple[str, int], login: str) -> int:
    """The status of the door's answer."""
    encoded = base64.b64encode(login.encode()).decode()
    with socket.create_connection(place, timeout=20) as there:
        there.sendall(
            f"GET / HTTP/1.1\r\nHost: {place[0]}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Sec-WebSocket-Protocol: MBWS.huawei.com\r\nAuthorization: Basic {encoded}\r\n\r\n".encode()
        )
        return int(there.recv(4096).split()[1])

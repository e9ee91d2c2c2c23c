"""Doors: hostile peers, while the broker serves others."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import mtl
from mtl.broker.runtime.users import Users, new_password
from mtl.doors.mbws import client as mbws
from mtl.doors.websocket_client import basic
from mtl.errors import MtlError, OptionError
from mtl.storage.records import GrantRecord, UserRecord
from mtl.testing import RunningBroker
from tests.hostile.harness import ITERATIONS, PASSWORD, scenario
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


@contextmanager
def basic_door(broker: RunningBroker, user: str) -> Iterator[tuple[str, int]]:
    """A door whose peers log in by HTTP Basic; it logs in as `user`."""
    password = broker.data.parent / "door.password"
    password.touch(0o600)
    password.write_text(f"{PASSWORD}\n")
    own = ["--user", user, "--password-file", str(password)]
    config = broker.data.parent / "doors.toml"
    config.write_text("[doors.mbws]\nbasic = true\n")
    command = ["mbws", "--config", str(config), "--connect", broker.endpoint, "--listen", "127.0.0.1:0"]
    with door_process(*command, before=own) as process:
        assert process.stdout is not None
        host, port = await_line(process.stdout.fileno(), r"ready at ws://(\S+) ").split(":")
        yield host, int(port)


@scenario(
    users={"alice": ("read .*",), "bob": ("read .*",), "passwords-door": ("act-as alice|bob",)},
)
def passwords_guessed_at_a_door(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """After some attempts the user is locked out for this address, and nobody else: neither others at the addresses of
    the guessers, nor this user at other addresses, however many addresses guess.
    """
    addresses, count = (20, 60) if heavy else (3, 11)
    codes: Counter[int] = Counter()
    with basic_door(broker, "passwords-door") as place:
        for number in range(addresses):
            guesser = f"127.0.1.{number + 1}"
            for attempt in range(count):
                codes[guess(place, f"alice:{attempt}", guesser)] += 1
            assert guess(place, f"alice:{PASSWORD}", guesser) == 401, "the right one after many wrong ones"
            assert guess(place, f"bob:{PASSWORD}", guesser) == 101, "another user at the same address"
        assert guess(place, f"alice:{PASSWORD}") == 101, "the user at another address"
        assert codes == {401: addresses * count}, codes
        yield f"{addresses * count:,} passwords from {addresses} addresses"


LIGATURE = "\ufb01nance"
"""`finance` with U+FB01; SASLprep makes both one name."""


@scenario(users={"finance": ("read ledger",), "names-door": ("act-as .*",)})
def two_forms_of_a_name_at_a_door(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """The name in another form with the password of a user: the peer has this user's rights, also beside a record of
    an older version that has the other form.
    """
    rounds = 50 if heavy else 2
    rights = (GrantRecord("/", "read", "vault"),)
    older = UserRecord(LIGATURE, new_password("another password", os.urandom, ITERATIONS), (), rights)
    with Users(broker.data) as users:
        with pytest.raises(OptionError, match="normal form"):
            users.add(LIGATURE, None, [])
        users._store.edit(UserRecord, LIGATURE, lambda _: older)

    async def read(endpoint: str, resource: str) -> bytes:
        login = basic(LIGATURE, PASSWORD)
        async with (
            mbws.connect(endpoint, authorization=login) as client,
            client.reader(resource, start="earliest") as reader,
        ):
            return bytes((await asyncio.wait_for(reader.next(), 20.0)).body)

    with mtl.connect(broker.endpoint) as admin, basic_door(broker, "names-door") as (host, port):
        for name in ("ledger", "vault"):
            admin.create_resource(name)
            with admin.writer(name) as writer:
                writer.send(b"of the %s" % name.encode())
        for _ in range(rounds):
            assert asyncio.run(read(f"ws://{host}:{port}", "ledger")) == b"of the ledger"
            with pytest.raises(MtlError, match=r"no right|not-authorized|closed"):
                asyncio.run(read(f"ws://{host}:{port}", "vault"))
        yield f"{rounds} log-ins as {LIGATURE!r}"


def guess(place: tuple[str, int], login: str, source: str = "127.0.0.1") -> int:
    """The status of the door's answer to a peer at this address."""
    encoded = base64.b64encode(login.encode()).decode()
    with socket.create_connection(place, timeout=20, source_address=(source, 0)) as there:
        there.sendall(
            f"GET / HTTP/1.1\r\nHost: {place[0]}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Sec-WebSocket-Protocol: MBWS.huawei.com\r\nAuthorization: Basic {encoded}\r\n\r\n".encode()
        )
        return int(there.recv(4096).split()[1])

"""What all peers of a door share, at every door: no user and no address takes it from the others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from mtl.doors.addresses import host_and_port
from mtl.doors.mbws import client as mbws
from mtl.doors.mc0 import client as mc0
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from mtl.doors.websocket_client import bearer
from mtl.errors import MtlError
from mtl.testing import RunningBroker, broker
from tests.support.aio import in_loop
from tests.support.door_site import TOKEN, TOKEN_OF_BOB, Site, door_site
from tests.support.doors import door
from tests.support.zmtp import RawPeer

SESSIONS = 20
"""The door's; a user has a quarter."""

CONNECT: dict[str, Any] = {
    "mbws": mbws.connect,
    "mc0": mc0.connect,
    "micromessage": micromessage.connect,
    "reactive": reactive.connect,
}

DOORS = [
    ("mbws", "127.0.0.1:0"),
    ("mc0", "tcp://127.0.0.1:0"),
    ("micromessage", "127.0.0.1:0"),
    ("reactive", "127.0.0.1:0"),
    ("reactive", "ws://127.0.0.1:0"),
]
NAMES = ["mbws", "mc0", "micromessage", "reactive", "reactive-websocket"]
every_door = pytest.mark.parametrize(("name", "listen"), DOORS, ids=NAMES)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with door_site(tmp_path_factory.mktemp("site")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@asynccontextmanager
async def with_users(site: Site, name: str, listen: str, **members: Any) -> AsyncIterator[Any]:
    """The door, with the authentication of its transport."""
    if name == "mc0":
        keys = {user: (f"{site.place}/{user}.pub",) for user in ("alice", "bob")}
        members |= {"curve_key_file": f"{site.place}/mc0.key", "peer_keys": keys}
    elif name == "mbws" or listen.startswith("ws:"):
        members["tokens_file"] = f"{site.place}/tokens"
    else:
        members |= site.tls | {"client_authority_file": site.files.authority}
    async with site.door(name, listen=listen, **members) as opened:
        yield opened


def peer(site: Site, name: str, endpoint: str, user: str) -> Any:
    """A user's client."""
    how: dict[str, Any]
    if name == "mc0":
        how = {
            "curve_server": f"{site.place}/mc0.pub",
            "curve_key_file": f"{site.place}/{user}.key",
            "retry_deadline": 2.0,
        }
    elif endpoint.startswith("ws:"):
        how = {"authorization": bearer(TOKEN if user == "alice" else TOKEN_OF_BOB)}
    else:
        how = {"tls": site.files.client(user)}
    return CONNECT[name](endpoint, **how)


async def is_served(name: str, connection: Any, resource: str) -> None:
    """A content passes the door in both directions."""
    address = f"topic/{resource}" if name == "micromessage" else resource
    async with connection.reader(address) as r, connection.writer(address) as w:
        await (await w.send(b"mine"))
        assert (await r.next()).body == b"mine"


@every_door
@in_loop
async def test_silent_sessions_of_one_user_leave_room_for_others(site: Site, name: str, listen: str) -> None:
    async with with_users(site, name, listen, max_sessions=SESSIONS) as opened, AsyncExitStack() as stack:
        refusals = []
        for _ in range(SESSIONS):
            try:
                await stack.enter_async_context(peer(site, name, opened.endpoint, "alice"))
            except MtlError as refused:
                refusals.append(str(refused))
                break
        async with peer(site, name, opened.endpoint, "bob") as bob:
            await is_served(name, bob, "bananas")
            assert len(opened.peers) == SESSIONS // 4 + 1
        assert f"its limit quotas.sessions is {SESSIONS // 4}" in "".join(refusals)


@in_loop
async def test_subscriptions_of_one_user_leave_room_for_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.doors.limits.DOOR_SUBSCRIPTIONS", 8)
    async with (
        with_users(site, "mbws", "127.0.0.1:0") as opened,
        peer(site, "mbws", opened.endpoint, "alice") as alice,
        peer(site, "mbws", opened.endpoint, "bob") as bob,
        alice.reader("apples"),
        alice.reader("avocados"),
    ):
        with pytest.raises(MtlError, match=r"its limit quotas\.subscriptions is 2"):
            async with alice.reader("apricots") as third:
                await third.next()
        await is_served("mbws", bob, "bananas")


# --- before the log-in --------------------------------------------------------------------------------------


@asynccontextmanager
async def silent(endpoint: str, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections that never send anything, in the order of their begin."""
    place = host_and_port(endpoint.partition("://")[2] or endpoint)
    streams = [await asyncio.open_connection(*place) for _ in range(count)]
    try:
        yield [reader for reader, _ in streams]
    finally:
        for _, writer in streams:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def ends(reader: asyncio.StreamReader) -> None:
    """The door closes the connection."""
    with suppress(ConnectionError):
        while await reader.read(1024):
            pass  # libzmq sends its greeting at once


@every_door
@in_loop
async def test_silent_connections_make_room_for_others_of_their_address(
    shared: RunningBroker, monkeypatch: pytest.MonkeyPatch, name: str, listen: str
) -> None:
    monkeypatch.setattr("mtl.doors.listening.DOOR_PENDING_ADDRESS", 3)
    monkeypatch.setattr("mtl.doors.listening.DOOR_LOGIN_S", 1_000.0)
    async with door(name, shared.endpoint, listen) as (opened, _), silent(opened.endpoint, 5) as connections:
        await asyncio.gather(*map(ends, connections[:2]))
        async with CONNECT[name](opened.endpoint) as c:
            await is_served(name, c, name)


@every_door
@in_loop
async def test_silent_connections_end_soon_and_those_that_logged_in_do_not(
    shared: RunningBroker, monkeypatch: pytest.MonkeyPatch, name: str, listen: str
) -> None:
    monkeypatch.setattr("mtl.doors.listening.DOOR_LOGIN_S", 0.5)
    async with (
        door(name, shared.endpoint, listen) as (opened, _),
        CONNECT[name](opened.endpoint) as c,
        silent(opened.endpoint, 2) as connections,
    ):
        await asyncio.gather(*map(ends, connections))
        await is_served(name, c, name)


@pytest.mark.parametrize("name", ["mbws", "micromessage", "reactive"])
@in_loop
async def test_handshakes_of_tls_that_do_not_begin_make_room(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("mtl.doors.listening.DOOR_PENDING_ADDRESS", 2)
    monkeypatch.setattr("mtl.doors.listening.DOOR_LOGIN_S", 20.0)
    async with site.door(name, **site.tls) as opened, silent(opened.endpoint, 3) as connections:
        await ends(connections[0])
        tls: ssl.SSLContext = site.files.trusting
        async with CONNECT[name](opened.endpoint, tls=tls):
            pass


@in_loop
async def test_an_mc0_peer_that_says_nothing_after_its_handshake_is_disconnected(
    shared: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtl.doors.listening.DOOR_LOGIN_S", 0.5)
    async with door("mc0", shared.endpoint, "tcp://127.0.0.1:0") as (opened, _):
        quiet = await asyncio.to_thread(RawPeer(opened.endpoint).shake_hands)
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(quiet.receive)
        quiet.close()

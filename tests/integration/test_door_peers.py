"""Authenticated peers at every door: each has the grants of its user, not those of the door."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mtl.broker.runtime.users import Users, new_password
from mtl.doors.mbws import client as mbws
from mtl.doors.mbws.connection_records import CONNECTIONS
from mtl.doors.mbws.peering import SOURCE
from mtl.doors.mc0 import client as mc0
from mtl.doors.micromessage import client as micromessage
from mtl.doors.peers import PeerConfig
from mtl.doors.reactive import client as reactive
from mtl.doors.websocket_client import basic, bearer
from mtl.errors import MtlError, Refused, Unreachable
from mtl.storage.records import GrantRecord
from tests.support.aio import in_loop
from tests.support.door_site import TOKEN, Site, door_site
from tests.support.mbws import bare
from tests.support.tls import Certificates


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with door_site(tmp_path_factory.mktemp("site")) as opened:
        yield opened


async def has_alices_grants(c: Any, topic: str = "") -> None:
    """This connection acts as alice: it creates, writes and reads a resource of hers, and is refused one of bob's."""
    async with c.reader(f"{topic}apples") as r, c.writer(f"{topic}apples") as w:
        await (await w.send(b"hers"))
        assert (await r.next()).body == b"hers"
    with pytest.raises(MtlError, match=r"no right|not-authorized|closed|goodbye") as denied:
        async with c.reader(f"{topic}bananas") as r:
            await r.next()
    assert "door" not in str(denied.value)


@in_loop
async def test_mc0_peers_authenticate_by_curve_keys(site: Site) -> None:
    keys = {"alice": (f"{site.place}/alice.pub",), "bob": (f"{site.place}/bob.pub",)}
    async with site.door("mc0", curve_key_file=f"{site.place}/mc0.key", peer_keys=keys) as door:
        server = f"{site.place}/mc0.pub"
        own = mc0.connect(door.endpoint, curve_server=server, curve_key_file=f"{site.place}/alice.key")
        async with own as c:
            await has_alices_grants(c)
        for key in (f"{site.place}/eve.key", None):
            with pytest.raises(Unreachable):
                await mc0.connect(door.endpoint, curve_server=server, curve_key_file=key, retry_deadline=0.3)


@in_loop
async def test_micromessage_peers_authenticate_by_client_certificate(site: Site) -> None:
    async with site.door("micromessage", **site.tls, client_authority_file=site.files.authority) as door:
        async with micromessage.connect(door.endpoint, tls=site.files.client("alice")) as c:
            await has_alices_grants(c, "topic/")
        with pytest.raises(MtlError):
            await micromessage.connect(door.endpoint, tls=site.files.trusting, retry_deadline=0.3)


@in_loop
async def test_reactive_peers_authenticate_by_client_certificate(site: Site) -> None:
    async with site.door("reactive", **site.tls, client_authority_file=site.files.authority) as door:
        async with reactive.connect(door.endpoint, tls=site.files.client("alice")) as c:
            await has_alices_grants(c)
        for wrong in (site.files.trusting, Certificates(site.place, trusting=site.files).client("alice")):
            with pytest.raises(MtlError):
                await reactive.connect(door.endpoint, tls=wrong, timeout=2.0)


WEBSOCKET: list[tuple[str, str, Any]] = [
    ("mbws", "127.0.0.1:0", mbws.connect),
    ("reactive", "wss://127.0.0.1:0", reactive.connect),
]


@pytest.mark.parametrize(("name", "listen", "connect"), WEBSOCKET, ids=["mbws", "reactive"])
@in_loop
async def test_websocket_peers_authenticate_by_password_token_or_certificate(
    site: Site, name: str, listen: str, connect: Any
) -> None:
    everything = {"basic": True, "tokens_file": f"{site.place}/tokens"} | site.tls
    everything["client_authority_file"] = site.files.authority
    async with site.door(name, listen=listen, **everything) as door:
        for how in (
            {"authorization": basic("alice", "of alice"), "tls": site.files.trusting},
            {"authorization": bearer(TOKEN), "tls": site.files.trusting},
            {"tls": site.files.client("alice")},
        ):
            async with connect(door.endpoint, **how) as c:
                await has_alices_grants(c)
        for wrong in (None, basic("alice", "of bob"), bearer("f" * 32)):
            with pytest.raises(Refused, match="401"):
                await connect(door.endpoint, tls=site.files.trusting, authorization=wrong)


DOORS: list[tuple[str, Any, str]] = [
    ("mbws", mbws.connect, ""),
    ("mc0", mc0.connect, ""),
    ("micromessage", micromessage.connect, "topic/"),
    ("reactive", reactive.connect, ""),
]


@pytest.mark.parametrize(("name", "connect", "topic"), DOORS, ids=[name for name, *_ in DOORS])
@in_loop
async def test_a_failed_subscription_is_logged(
    site: Site, caplog: pytest.LogCaptureFixture, name: str, connect: Any, topic: str
) -> None:
    """With its resource, its peer and the reason."""
    listen = "tcp://127.0.0.1:0" if name == "mc0" else "127.0.0.1:0"
    async with site.door(name, listen=listen, create=()) as door:
        c = await connect(door.endpoint)
        with pytest.raises(MtlError):
            async with c.reader(f"{topic}nowhere") as r:
                await r.next()
        await c.close()
    (message,) = [line for line in caplog.messages if "subscription" in line]
    assert re.match(
        r"the subscription of 127\.0\.0\.1(:\d+)? to 'nowhere' failed: 403 not-authorized", message
    ), message


@in_loop
async def test_only_the_connection_of_a_removed_user_is_closed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    data = site.place / "data"
    with Users(data) as users:
        users.add("ann", new_password("of ann", os.urandom, 4096), [])
        users.grant("ann", [GrantRecord("/", right, "a.*") for right in ("read", "write", "manage")])
        users.grant("door", [GrantRecord("/", "act-as", "ann")])
    async with site.door("mbws", basic=True, listen="127.0.0.1:0") as door:
        async with (
            connected(door.endpoint, "ann", "of ann") as ann,
            connected(door.endpoint, "bob", "of bob") as bob,
            bob.writer("bananas") as bobs,
            ann.reader("apples") as anns,
        ):
            await (await bobs.send(b"before"))
            with Users(data) as users:
                users.remove("ann")
            with pytest.raises(MtlError):
                await anns.next()
            assert re.search(r"subscription of 127.0.0.1:\d+ \(user 'ann'\) to 'apples' failed", caplog.text)
            await (await bobs.send(b"after"))
        with pytest.raises(Refused, match="401"):
            await mbws.connect(door.endpoint, authorization=basic("ann", "of ann"))


@asynccontextmanager
async def connected(endpoint: str, user: str, password: str) -> AsyncIterator[mbws.MbwsConnection]:
    """Connects as soon as the broker has loaded the user, within a second."""
    connection = None
    while connection is None:
        try:
            connection = await mbws.connect(endpoint, authorization=basic(user, password))
        except Refused:
            await asyncio.sleep(0.5)
    try:
        yield connection
    finally:
        await connection.close()


@in_loop
async def test_a_stored_connection_is_recovered_only_by_its_user(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """The door's user needs the rights to store it; the client reads with its user's current grants."""
    alice, bob = basic("alice", "of alice"), basic("bob", "of bob")

    async def left() -> str:
        async with site.door("mbws", basic=True) as door:
            async with mbws.connect(door.endpoint, authorization=alice) as c, c.writer("avocados") as w:
                await (await w.send(b"hers"))
            async with bare(
                door, "address=avocados&from=earliest", origin=None, authorization=alice
            ) as client:
                name = (await client.connect()).name
                assert (await client.messages(1))[0].body == b"hers"
                await door.stop()
        return name

    name = await left()
    assert "not kept over a restart: 403 not-authorized" in caplog.text
    rights = [GrantRecord("/", right, re.escape(CONNECTIONS)) for right in ("read", "write", "manage")]
    with Users(site.place / "data") as users:
        users.grant("door", rights)
    async with site.door("mbws", basic=True) as door, bare(door, origin=None, authorization=alice) as client:
        assert (await client.connect(name, 0, 1, 0)).name != name
    while "not kept" in caplog.text:  # the broker knows of the grant after a second
        caplog.clear()
        name = await left()
    async with site.door("mbws", basic=True) as door:
        async with bare(door, origin=None, authorization=bob) as client:
            assert (await client.connect(name, 0, 1, 0)).name != name
        async with bare(door, origin=None, authorization=alice) as client:
            assert (await client.connect(name, 0, 1, 0)).name == name
            assert (await client.messages(1))[0].body == b"hers"


@in_loop
async def test_a_door_authenticates_to_its_peer(site: Site) -> None:
    """It reads as its own user here, and writes as alice at the peer; both have the same broker in this test."""
    password = site.place / "alice"
    password.touch(0o600)
    password.write_text("of alice\n")
    rights = [GrantRecord("/", "read", "a.*"), GrantRecord("/", "group", "mbws-peer-east")]
    with Users(site.place / "data") as users:
        users.grant("door", rights)
    async with site.door("mbws", **site.tls, basic=True) as there:
        peer = PeerConfig(
            url=there.endpoint,
            send=("apricots",),
            user="alice",
            password_file=str(password),
            authority_file=str(site.files.authority),
        )
        alice = basic("alice", "of alice")
        async with (
            mbws.connect(there.endpoint, tls=site.files.trusting, authorization=alice) as c,
            c.reader("apricots") as r,
            site.door("mbws", peers={"east": peer}),
        ):
            async with c.writer("apricots") as w:
                await (await w.send(b"hers"))
            first, second = await r.next(), await r.next()
        assert (first.body, first.properties) == (b"hers", {})
        assert (second.body, set(second.properties)) == (b"hers", {SOURCE})


@in_loop
async def test_a_door_without_the_grant_to_act_as_a_user_refuses_its_requests(site: Site) -> None:
    with Users(site.place / "data") as users:
        users.add("zoe", new_password("of zoe", os.urandom, 4096), [])
        users.grant("zoe", [GrantRecord("/", "read", ".*"), GrantRecord("/", "write", ".*")])
    async with site.door("mbws", basic=True) as door, connected(door.endpoint, "zoe", "of zoe") as zoe:
        with pytest.raises(MtlError, match="no right"):
            await zoe.reader("apples")

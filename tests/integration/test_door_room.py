"""What one user's incomplete messages and slow subscriptions take from the other users of a door: nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from mtl.doors.addresses import host_and_port
from mtl.doors.limits import DOOR_ARRIVING_STEP
from mtl.doors.mbws import client as mbws
from mtl.doors.mbws.session import MBLWS
from mtl.doors.micromessage import client as micromessage
from mtl.doors.micromessage.codec import encode_head, encode_message
from mtl.doors.reactive import client as reactive
from mtl.doors.reactive import codec
from mtl.doors.reactive.over_websocket import SUBPROTOCOL
from mtl.doors.running import Door
from mtl.doors.websocket_client import bearer
from mtl.shares import SHARE
from mtl.testing import RunningBroker, broker
from tests.support.aio import in_loop, until
from tests.support.door_site import TOKEN, TOKEN_OF_BOB, Site, door_site
from tests.support.doors import door
from tests.support.raw_micromessage import micromessage_peer, subscribe_from_earliest

LARGE = bytes(1 << 20)

BEGUN = bytes(768 << 10)
"""The octets of a large message that arrive."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with door_site(tmp_path_factory.mktemp("site")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


# --- peers that send the begin of a large message ------------------------------------------------------------


@asynccontextmanager
async def tcp(endpoint: str, octets: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """A connection that sends these octets, and reads the first one of the answer."""
    reader, writer = await asyncio.open_connection(*host_and_port(endpoint), ssl=tls, limit=1)
    writer.write(octets)
    assert await reader.readexactly(1)
    try:
        yield
    finally:
        writer.transport.abort()


@asynccontextmanager
async def websocket(endpoint: str, subprotocol: str, octets: bytes) -> AsyncIterator[None]:
    """A WebSocket of alice that sends a part of a frame."""
    async with connect(
        endpoint,
        subprotocols=[Subprotocol(subprotocol)],
        additional_headers={"Authorization": bearer(TOKEN)},
        max_queue=1,
        close_timeout=0,
    ) as socket:
        socket.transport.write(b"\x82\xff" + len(LARGE).to_bytes(8, "big") + bytes(4) + octets)
        yield


def begin_micromessage(endpoint: str, tls: ssl.SSLContext) -> AbstractAsyncContextManager[None]:
    head = encode_head("/a", "")
    return micromessage_peer(endpoint, encode_message(1, head, LARGE)[: len(BEGUN)], tls)


def begin_reactive(endpoint: str, tls: ssl.SSLContext) -> AbstractAsyncContextManager[None]:
    begin = codec.encode(codec.OnNext(1, LARGE))[: len(BEGUN)]
    return tcp(endpoint, codec.encode(codec.ClientHello()) + begin, tls)


def begin_mbws(endpoint: str, _: ssl.SSLContext) -> AbstractAsyncContextManager[None]:
    return websocket(endpoint, MBLWS, BEGUN)


def begin_reactive_websocket(endpoint: str, _: ssl.SSLContext) -> AbstractAsyncContextManager[None]:
    return websocket(endpoint, SUBPROTOCOL, BEGUN)


DOORS: dict[
    str, tuple[str, Callable[..., Any], Callable[[str, ssl.SSLContext], AbstractAsyncContextManager[None]]]
] = {
    "mbws": ("127.0.0.1:0", mbws.connect, begin_mbws),
    "micromessage": ("127.0.0.1:0", micromessage.connect, begin_micromessage),
    "reactive": ("127.0.0.1:0", reactive.connect, begin_reactive),
    "reactive-websocket": ("ws://127.0.0.1:0", reactive.connect, begin_reactive_websocket),
}
every_door = pytest.mark.parametrize("name", DOORS)


def peer(site: Site, name: str, endpoint: str, user: str) -> Any:
    """A user's client."""
    _, client, _ = DOORS[name]
    if is_web(name):
        return client(endpoint, authorization=bearer(TOKEN if user == "alice" else TOKEN_OF_BOB))
    return client(endpoint, tls=site.files.client(user))


def is_web(name: str) -> bool:
    """Whether the door is on WebSocket."""
    return name in {"mbws", "reactive-websocket"}


def door_with_users(site: Site, name: str) -> AbstractAsyncContextManager[Door]:
    """The door, with the authentication of its transport."""
    members: dict[str, Any] = (
        {"tokens_file": f"{site.place}/tokens"}
        if is_web(name)
        else site.tls | {"client_authority_file": site.files.authority}
    )
    return site.door(name.partition("-")[0], listen=DOORS[name][0], **members)


@every_door
@in_loop
async def test_begun_messages_of_a_user_delay_only_its_own_large_ones(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("mtl.doors.limits.DOOR_ARRIVING", SHARE * DOOR_ARRIVING_STEP)
    begin = DOORS[name][2]
    async with (
        door_with_users(site, name) as opened,
        AsyncExitStack() as begun,
        peer(site, name, opened.endpoint, "alice") as alice,
        peer(site, name, opened.endpoint, "bob") as bob,
    ):
        room = opened.bridges.shares.arriving
        await begun.enter_async_context(begin(opened.endpoint, site.files.client("alice")))
        await until(lambda: room.held == DOOR_ARRIVING_STEP)
        async with alice.writer("apples") as hers, bob.writer("bananas") as his:
            await (await hers.send(b"small"))
            await (await his.send(LARGE))
            waiting = asyncio.create_task(wait_confirmed(hers))
            await until(lambda: room.waiting == 1)
            await (await his.send(LARGE))
            assert not waiting.done()
            await begun.aclose()
            await waiting
        await until(lambda: room.held == 0)


async def wait_confirmed(writer: Any) -> None:
    """Send a large content and wait for its confirmation."""
    await (await writer.send(LARGE))


@every_door
@in_loop
async def test_a_connection_whose_message_stops_arriving_is_ended(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in ("arriving", "websocket"):
        monkeypatch.setattr(f"mtl.doors.{module}.DOOR_STALL_S", 0.2)
    begin = DOORS[name][2]
    async with (
        door_with_users(site, name) as opened,
        begin(opened.endpoint, site.files.client("alice")),
    ):
        room = opened.bridges.shares.arriving
        await until(lambda: room.held > 0)
        await until(lambda: not room.held and not opened.bridges.shares.sessions.used)


# --- peers that read nothing --------------------------------------------------------------------------------


def subscribe_mbws(endpoint: str, names: Sequence[str]) -> AbstractAsyncContextManager[None]:
    addresses = "&".join(f"address={name}&from=earliest" for name in names)
    return websocket(f"{endpoint}?{addresses}", MBLWS, b"")


def subscribe_micromessage(endpoint: str, names: Sequence[str]) -> AbstractAsyncContextManager[None]:
    return micromessage_peer(endpoint, subscribe_from_earliest(names))


def subscribe_reactive(endpoint: str, names: Sequence[str]) -> AbstractAsyncContextManager[None]:
    asked = [codec.encode(codec.Subscribe(name, number, 2**63 - 1)) for number, name in enumerate(names, 1)]
    return tcp(endpoint, codec.encode(codec.ClientHello()) + b"".join(asked))


SUBSCRIBING: dict[str, Callable[[str, Sequence[str]], AbstractAsyncContextManager[None]]] = {
    "mbws": subscribe_mbws,
    "micromessage": subscribe_micromessage,
    "reactive": subscribe_reactive,
}


@pytest.mark.parametrize("name", SUBSCRIBING)
@in_loop
async def test_a_peer_with_too_many_unread_contents_is_ended_and_others_are_served(
    shared: RunningBroker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("mtl.doors.limits.DOOR_UNSENT", SHARE * 2 * len(LARGE))
    names = [f"{name}-{number}" for number in range(3)]
    listen, client, _ = DOORS[name]
    async with door(name, shared.endpoint, listen) as (opened, broker_client):
        for each in names:
            await broker_client.create_resource(each)
            async with broker_client.writer(each) as writer:
                for _ in range(8):
                    await writer.send(LARGE)
        async with SUBSCRIBING[name](opened.endpoint, names):
            await until(lambda: opened.bridges.shares.sessions.used > 0)
            await until(lambda: not opened.bridges.shares.sessions.used)
        await until(lambda: opened.bridges.shares.unsent.used == 0)
        async with client(opened.endpoint) as other:
            address = f"topic/{names[0]}" if name == "micromessage" else names[0]
            async with other.reader(address) as r, broker_client.writer(names[0]) as w:
                await w.send(b"mine")
                assert (await r.next()).body in {b"mine", LARGE}

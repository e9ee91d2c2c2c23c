"""Message brokers as peers, each with an MBWS door that sends to that of the other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.client.aio import Connection
from mtl.doors.mbws.peering import SOURCE
from mtl.doors.peers import PeerConfig
from mtl.doors.running import Door
from mtl.limits import MAX_CONTENT
from mtl.testing import RunningBroker, broker
from tests.support.aio import in_loop, until
from tests.support.doors import door
from tests.support.mbws import at, in_log

pytestmark = pytest.mark.requirement("MBWS-59")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[RunningBroker]:
    """Another broker."""
    with broker(tmp_path / "other") as running:
        yield running


def free_port() -> int:
    """A port without listener at this moment."""
    with socket.socket() as unbound:
        unbound.bind(("127.0.0.1", 0))
        port: int = unbound.getsockname()[1]
        return port


def sending(url: str, *resources: str) -> dict[str, PeerConfig]:
    return {"there": PeerConfig(url=url, send=resources or ("orders",))}


async def write(broker_client: Connection, *bodies: bytes, resource: str = "orders") -> None:
    await broker_client.create_resource(resource, exist_ok=True)
    async with broker_client.writer(resource) as w:
        for body in bodies:
            await w.send(body, {"kind": "new"})


async def has(broker_client: Connection, count: int, resource: str = "orders") -> list[bytes]:
    """The bodies of the resource, awaited until there are `count`."""
    await broker_client.create_resource(resource, exist_ok=True)
    async with broker_client.reader(resource, start="earliest", until=count + 1) as r:
        return [content.body async for content in r]


@in_loop
async def test_two_peered_brokers_have_the_same_contents(
    mtl_broker: RunningBroker, other: RunningBroker
) -> None:
    """In the order of each broker, once; contents received from a peer are not sent back to it."""
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    async with (
        door("mbws", mtl_broker.endpoint, here, peers=sending(f"ws://{there}")) as (_, east),
        door("mbws", other.endpoint, there, peers=sending(f"ws://{here}")) as (_, west),
    ):
        ours, theirs = [b"a%d" % n for n in range(1500)], [b"b%d" % n for n in range(1500)]
        await asyncio.gather(write(east, *ours), write(west, *theirs))
        for broker_client in (east, west):
            found = await has(broker_client, 3000)
            assert [body for body in found if body.startswith(b"a")] == ours
            assert [body for body in found if body.startswith(b"b")] == theirs
        await write(east, b"last")
        assert (await has(west, 3001))[-1] == b"last"
        await write(west, b"very last")
        assert (await has(east, 3002))[-1] == b"very last"
        assert (await east.describe(["orders"]))["orders"].next == 3003
        async with west.reader("orders", start=3001, until=3002) as r:
            (content,) = [content async for content in r]
        incarnation = (await east.describe(["orders"]))["orders"].incarnation
        assert content.properties == {"kind": "new", SOURCE: f"{incarnation}/3001"}


@in_loop
async def test_contents_wait_for_an_absent_peer(
    mtl_broker: RunningBroker,
    other: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The peer is absent when the door starts; peer and door are restarted in between."""
    monkeypatch.setattr("mtl.doors.mbws.peering.MBWS_PEER_AGAIN_S", 0.05)
    monkeypatch.setattr("mtl.doors.mbws.peering.MBWS_PEER_PATIENCE_S", 0.2)
    there = f"127.0.0.1:{free_port()}"
    peers = sending(f"ws://{there}")
    async with at(mtl_broker, peers=peers) as (_, east):
        await write(east, b"0")
        await until(lambda: "contents of 'orders' do not reach the peer 'there'" in caplog.text)
        async with door("mbws", other.endpoint, there) as (_, west):
            assert await has(west, 1) == [b"0"]
        await write(east, b"1")
    async with at(mtl_broker, peers=peers) as (_, east), door("mbws", other.endpoint, there) as (_, west):
        assert await has(west, 2) == [b"0", b"1"]
        await write(east, b"2")
        assert await has(west, 3) == [b"0", b"1", b"2"]


@in_loop
async def test_contents_that_cannot_be_sent_do_not_block_others(
    mtl_broker: RunningBroker, other: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    opened: Door
    async with at(other) as (opened, west), at(mtl_broker, peers=sending(opened.endpoint)) as (_, east):
        await east.create_resource("orders")
        async with east.writer("orders") as w:
            await w.send(b"large", {"text": "x" * 65_000, "b": "y" * 500})
            await w.send(bytes(MAX_CONTENT))
            await w.send(b"good")
        assert [len(body) for body in await has(west, 2)] == [MAX_CONTENT, 4]
    assert "orders: content 1 is not sent to a peer" in caplog.text
    async with at(other) as (_, west):
        assert len(await in_log(west, "orders")) == 2

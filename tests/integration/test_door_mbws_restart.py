"""The MBWS door: recovery of connections after a restart of the door."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mtl.doors.mbws import client as mbws
from mtl.doors.mbws.codec import Acknowledge, Message
from mtl.doors.mbws.connection_records import CONNECTIONS
from mtl.doors.mbws.intake import DEAD
from mtl.testing import RunningBroker
from tests.support.aio import in_loop, until
from tests.support.doors import PATIENCE_S, await_line, door_process
from tests.support.mbws import OURS, at, bare, bodies_of, in_log, names, numbered, written

PAGE = "https://example.org"


@asynccontextmanager
async def left(broker: RunningBroker, a: str, b: str, create: tuple[str, ...] = ("*",)) -> AsyncIterator[str]:
    """The name of a connection whose door was stopped. It received the contents 0 to 9 of `a`, acknowledged three, and
    sent 0 to 4 to `b`.
    """
    async with at(broker, create=create, origins=(PAGE,)) as (opened, broker_client):
        await written(broker_client, a, range(10))
        await broker_client.create_resource(b, exist_ok=True)
        async with bare(opened, f"address={a}&from=earliest", origin=PAGE) as client:
            name = (await client.connect()).name
            assert bodies_of(await client.messages(10)) == list(range(10))
            await client.send(Acknowledge(3), *numbered(b, range(5)))
            await client.acknowledged(5)
            (peer,) = opened.peers  # type: ignore[attr-defined]
            await until(lambda: peer._connection.outgoing.acked == 3)
            await opened.stop()
    yield name


@pytest.mark.requirement("MBWS-06", "MBWS-21", "MBWS-24")
@in_loop
async def test_a_connection_continues_after_a_restart_of_the_door(mtl_broker: RunningBroker) -> None:
    a, b = next(names), next(names)
    async with left(mtl_broker, a, b) as name, at(mtl_broker, origins=(PAGE,)) as (opened, broker_client):
        await written(broker_client, a, range(10, 12))
        async with bare(opened, origin=PAGE) as client:
            connected = await client.connect(name, 7, 4, 8)
            assert (connected.name, connected.numbers) == (name, (5,))
            assert bodies_of(await client.messages(5)) == [7, 8, 9, 10, 11]
            await client.send(*numbered(b, range(5, 8)))
            await client.acknowledged(8)
        assert await in_log(broker_client, b) == [b"%d" % n for n in range(8)]
        assert await in_log(broker_client, CONNECTIONS)
        assert name.encode() not in b"".join(await in_log(broker_client, CONNECTIONS))


@pytest.mark.requirement("MBWS-14")
@in_loop
async def test_a_connection_is_recovered_only_by_its_origin(mtl_broker: RunningBroker) -> None:
    a, b = next(names), next(names)
    async with left(mtl_broker, a, b) as name, at(mtl_broker, origins=(PAGE,)) as (opened, _):
        async with bare(opened, origin=OURS) as client:
            assert (await client.connect(name, 7, 4, 8)).name != name
        async with bare(opened, origin=PAGE) as client:
            assert (await client.connect(name, 7, 4, 8)).name == name


@in_loop
async def test_of_two_doors_one_recovers_the_connection(mtl_broker: RunningBroker) -> None:
    a, b = next(names), next(names)
    async with (
        left(mtl_broker, a, b) as name,
        at(mtl_broker, origins=(PAGE,)) as (first, _),
        at(mtl_broker, origins=(PAGE,)) as (second, _),
        bare(first, origin=PAGE) as first_client,
        bare(second, origin=PAGE) as second_client,
    ):
        replies = await asyncio.gather(
            first_client.connect(name, 7, 4, 8), second_client.connect(name, 7, 4, 8)
        )
        assert sorted(reply.name == name for reply in replies) == [False, True]


@in_loop
async def test_a_connection_of_an_absent_client_is_stored(mtl_broker: RunningBroker) -> None:
    a = next(names)
    async with at(mtl_broker) as (opened, broker_client):
        await written(broker_client, a, range(3))
        async with bare(opened, f"address={a}&from=earliest", origin=None) as client:
            name = (await client.connect()).name
            assert bodies_of(await client.messages(3)) == [0, 1, 2]
            client.break_off()
            await until(lambda: not opened.peers)  # type: ignore[attr-defined]
    async with at(mtl_broker) as (opened, _), bare(opened, origin=None) as client:
        assert (await client.connect(name, 1, 1, 0)).name == name
        assert bodies_of(await client.messages(2)) == [1, 2]


@pytest.mark.parametrize("lost", ["never stored", "deleted", "unreadable", "late"])
@in_loop
async def test_recovery_of_an_unknown_connection_gives_a_new_one(
    mtl_broker: RunningBroker, lost: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = next(names), next(names)
    create = () if lost == "never stored" else ("*",)
    if lost == "late":
        monkeypatch.setattr("mtl.doors.mbws.door.MBWS_RETAINED_S", -1.0)
    async with (
        left(mtl_broker, a, b, create) as name,
        at(mtl_broker, origins=(PAGE,)) as (opened, broker_client),
    ):
        if lost == "deleted":
            await broker_client.delete_resource(CONNECTIONS)
        if lost == "unreadable":
            stored = await in_log(broker_client, CONNECTIONS)
            await broker_client.delete_resource(CONNECTIONS)
            await broker_client.create_resource(CONNECTIONS)
            async with broker_client.writer(CONNECTIONS) as w:
                for body in stored:
                    await w.send(body[:-1])
        async with bare(opened, f"address={a}&from=3", origin=PAGE) as client:
            connected = await client.connect(name, 7, 4, 8)
            assert connected.name != name
            assert bodies_of(await client.messages(1)) == [2]
    assert ("no resource 'mbws.connections'" in caplog.text) is (lost == "never stored")
    assert ("is ignored" in caplog.text) is (lost == "unreadable")


@in_loop
async def test_clients_cannot_use_the_resource_of_stored_connections(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client):
        async with bare(opened, f"address={CONNECTIONS}") as client:
            assert await client.closed() == 1008
        async with bare(opened) as client:
            await client.connect()
            await client.send(Message((CONNECTIONS,), b"forged"))
            await client.acknowledged(1)
        assert await in_log(broker_client, DEAD) == [b"forged"]
        assert CONNECTIONS not in await broker_client.describe()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@in_loop
async def test_a_client_continues_with_the_next_door_process(
    mtl_broker: RunningBroker, how: signal.Signals
) -> None:
    """The state of a killed door is lost: the client starts a new connection, and no message is lost."""
    arguments = ["mbws", "--connect", mtl_broker.endpoint, "--listen"]
    async with one_door(*arguments, "127.0.0.1:0", how=how) as url:
        c = await mbws.connect(url)
        r, w = await c.reader("orders", start="earliest"), await c.writer("orders")
        sent = [await w.send(b"%d" % n) for n in range(200)]
        bodies = [(await r.next()).body for _ in range(100)]
        await asyncio.gather(*sent)
    async with one_door(*arguments, url.removeprefix("ws://"), how=signal.SIGTERM):
        for n in range(200, 300):
            await w.send(b"%d" % n)
        await w.flush()
        bodies += [(await r.next()).body for _ in range(200)]
        beginnings = 1 if how is signal.SIGTERM else 2
        assert [link.beginnings for link in (r.link, c.link)] == [beginnings, beginnings]
        await c.close()
    assert bodies == [b"%d" % n for n in range(300)]


@asynccontextmanager
async def one_door(*arguments: str, how: signal.Signals) -> AsyncIterator[str]:
    """The endpoint of a door that is ended by this signal after the block."""
    with door_process(*arguments) as process:
        assert process.stdout is not None
        yield await asyncio.to_thread(await_line, process.stdout.fileno(), r"mtl door mbws ready at (\S+) ")
        process.send_signal(how)
        await asyncio.to_thread(process.wait, PATIENCE_S)

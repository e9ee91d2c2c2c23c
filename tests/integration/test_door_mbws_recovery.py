"""The MBWS door: recovery of connections after a lost session."""

from __future__ import annotations

import pytest

from mtl.doors.mbws.codec import Acknowledge, Connect
from mtl.testing import RunningBroker
from tests.support.aio import in_loop, until
from tests.support.mbws import OURS, at, bare, bodies_of, in_log, names, numbered, written


@pytest.mark.requirement("MBWS-06", "MBWS-07", "MBWS-16", "MBWS-24", "MBWS-25", "MBWS-29", "MBWS-30")
@in_loop
async def test_a_recovered_connection_continues_after_messages_received_on_both_sides(
    shared: RunningBroker,
) -> None:
    """Contents arrive during the client's absence, and it has no answer for its last messages."""
    a, b = next(names), next(names)
    query = f"address={a}"  # from now on
    async with at(shared) as (opened, broker_client):
        async with bare(opened, query) as client:
            name = (await client.connect()).name
            await written(broker_client, a, range(10))
            assert bodies_of(await client.messages(10)) == list(range(10))
            await client.send(Acknowledge(3), *numbered(b, range(5)))
            await client.acknowledged(5)
            await client.send(*numbered(b, range(5, 8)))
            client.break_off()
        await written(broker_client, a, range(10, 12))
        async with bare(opened, query) as client:
            connected = await client.connect(name, 7, 6, 8)
            assert connected.name == name
            assert len(connected.numbers) == 1
            (received,) = connected.numbers
            assert 5 <= received <= 8
            assert bodies_of(await client.messages(5)) == [7, 8, 9, 10, 11]
            await client.send(*numbered(b, range(received, 10)))
            await client.acknowledged(10)
        assert await in_log(broker_client, b) == [b"%d" % n for n in range(10)]


@pytest.mark.requirement("MBWS-24")
@in_loop
async def test_a_session_lost_without_close_is_taken_over(shared: RunningBroker) -> None:
    """The door has not detected the loss when the client returns; both have messages in flight."""
    a = next(names)
    async with at(shared) as (opened, broker_client), bare(opened, f"address={a}&from=earliest") as old:
        name = (await old.connect()).name
        await old.send(*numbered(a, range(300)))
        assert bodies_of(await old.messages(50)) == list(range(50))
        async with bare(opened) as new:
            connected = await new.connect(name, 50, 1, 300)
            assert connected.name == name
            await new.send(*numbered(a, range(connected.numbers[0], 400)))
            assert bodies_of(await new.messages(350)) == list(range(50, 400))
            assert await old.closed() == 1006
        assert await in_log(broker_client, a) == [b"%d" % n for n in range(400)]


@pytest.mark.requirement("MBWS-14", "MBWS-26", "MBWS-27", "MBWS-28", "MBWS-31")
@pytest.mark.parametrize(
    ("numbers", "origin", "theirs"),
    [
        ((2, 1, 2), "https://example.org", True),
        ((0, 1, 2), OURS, False),
        ((4, 1, 2), OURS, False),
        ((3, 4, 9), OURS, False),
    ],
)
@in_loop
async def test_a_mismatched_recovery_gives_a_new_connection(
    shared: RunningBroker, numbers: tuple[int, ...], origin: str, *, theirs: bool
) -> None:
    """The old connection ends, unless it belongs to another client."""
    a, b = next(names), next(names)
    async with at(shared, origins=("https://example.org",)) as (opened, broker_client):
        await written(broker_client, a, range(3))
        async with bare(opened, f"address={a}&from=earliest") as client:
            name = (await client.connect()).name
            await client.send(*numbered(b, range(2)))
            assert bodies_of(await client.messages(3)) == [0, 1, 2]
            await client.send(Acknowledge(1))
            await client.acknowledged(2)
            client.break_off()
        async with bare(opened, f"address={a}&from=3", origin=origin) as client:
            connected = await client.connect(name, *numbers)
            assert connected.name != name
            assert connected.numbers == ()
            assert bodies_of(await client.messages(1)) == [2]
        async with bare(opened) as client:
            assert ((await client.connect(name, 2, 1, 2)).name == name) is theirs


@in_loop
async def test_concurrent_recoveries_give_the_connection_to_one_session(shared: RunningBroker) -> None:
    """Three sessions request it at the same time: one gets it, and no message is lost or repeated."""
    a, b = next(names), next(names)
    async with at(shared) as (opened, broker_client):
        await written(broker_client, a, range(20))
        async with bare(opened, f"address={a}&from=earliest") as client:
            name = (await client.connect()).name
            assert bodies_of(await client.messages(20)) == list(range(20))
            await client.send(*numbered(b, range(100)))
            client.break_off()
        async with bare(opened) as first, bare(opened) as second, bare(opened) as third:
            hasty = {first, second, third}
            for client in hasty:
                await client.send(Connect(name, (7, 1, 100)))
            await until(lambda: sum(hasty_client.socket.close_code == 1006 for hasty_client in hasty) == 2)
            (recovered,) = (hasty_client for hasty_client in hasty if hasty_client.socket.close_code is None)
            connected = await recovered.receive()
            assert isinstance(connected, Connect)
            assert connected.name == name
            assert bodies_of(await recovered.messages(13)) == list(range(7, 20))
            await recovered.send(*numbered(b, range(connected.numbers[0], 101)))
            await recovered.acknowledged(101)  # SSLR may have acknowledged all before it
        assert await in_log(broker_client, b) == [b"%d" % n for n in range(101)]


@in_loop
async def test_recovery_with_a_recreated_resource_is_closed_with_the_reason(shared: RunningBroker) -> None:
    """Its sequences are new: the client gets an error, instead of other contents under the old sequences."""
    a = next(names)
    async with at(shared) as (opened, broker_client):
        await written(broker_client, a, range(3))
        async with bare(opened, f"address={a}&from=earliest") as client:
            name = (await client.connect()).name
            assert bodies_of(await client.messages(3)) == [0, 1, 2]
            client.break_off()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        await broker_client.delete_resource(a)
        await written(broker_client, a, range(10, 14))
        async with bare(opened) as client:
            await client.send(Connect(name, (2, 1, 0)))
            assert await client.closed() == 1008
            assert "incarnation" in str(client.socket.close_reason)


@pytest.mark.requirement("MBWS-23")
@in_loop
async def test_a_second_connect_discards_the_former_connection(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared) as (opened, broker_client), bare(opened, f"address={a}&from=earliest") as client:
        first = await client.connect()
        await written(broker_client, a, range(3))
        assert bodies_of(await client.messages(3)) == [0, 1, 2]
        second = await client.connect(first.name, 3, 1, 0)
        assert second.name != first.name
        assert second.numbers == ()
        await client.send(Acknowledge(0))
        client.break_off()
        async with bare(opened) as other:
            assert (await other.connect(first.name, 3, 1, 0)).name != first.name
        async with bare(opened) as other:
            assert (await other.connect(second.name, 0, 1, 0)).name == second.name

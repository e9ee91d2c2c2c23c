"""The MBWS door and its client, with failures of network, door, broker and process."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus

from mtl.client import aio
from mtl.doors.mbws import client as mbws
from mtl.errors import ContentTooLarge, FieldError, OptionError, Refused
from mtl.testing import RunningBroker
from tests.support.aio import in_loop, until
from tests.support.cutting_proxy import HERE, CuttingProxy
from tests.support.doors import BODIES, PROPERTIES, await_line, door, door_process
from tests.support.mbws import ANYWHERE, at, bare, in_log, names
from tests.support.tls import Certificates


@pytest.mark.parametrize("text", [False, True])
@in_loop
async def test_sent_messages_are_delivered_and_durable(shared: RunningBroker, *, text: bool) -> None:
    a = next(names)
    async with at(shared) as (opened, broker_client), mbws.connect(opened.endpoint, text=text) as c:
        async with c.reader(a, start="earliest") as r, c.writer(a) as w:
            for body in BODIES:
                await w.send(body, PROPERTIES)
            received = [await r.next() for _ in BODIES]
        assert [content.body for content in received] == BODIES
        assert [content.sequence for content in received] == [1, 2, 3, 4]
        assert all(content.properties == PROPERTIES for content in received)
        async with broker_client.reader(a, start="earliest", until=5) as log:
            assert [(content.body, content.properties) async for content in log] == [
                (body, PROPERTIES) for body in BODIES
            ]


@pytest.mark.requirement("MBWS-07", "MBWS-10", "MBWS-18", "MBWS-21", "MBWS-30")
@in_loop
async def test_messages_are_exactly_once_with_a_cut_network(shared: RunningBroker) -> None:
    """Numbered contents in both directions; the network is cut repeatedly."""
    a = next(names)
    async with at(shared) as (opened, broker_client):
        port = urlsplit(opened.endpoint).port
        assert port is not None
        with CuttingProxy(port) as proxy:
            async with (
                mbws.connect(f"ws://{HERE}:{port}") as c,
                c.reader(a, start="earliest") as r,
                c.writer(a) as w,
            ):
                bodies: list[int] = []
                reading = asyncio.create_task(read(r, bodies))
                for n in range(3000):
                    await w.send(b"%d" % n)
                    if n % 500 == 250:
                        await until(lambda n=n: len(bodies) > n - 200)  # type: ignore[misc]
                        await asyncio.to_thread(proxy.cut)
                await w.flush()
                await until(lambda: len(bodies) >= 3000)
                reading.cancel()
                assert bodies == list(range(3000))
                assert c.link.beginnings == r.link.beginnings == 1
        assert await in_log(broker_client, a) == [b"%d" % n for n in range(3000)]


async def read(r: mbws.MbwsReader, bodies: list[int]) -> None:
    while True:
        bodies.append(int((await r.next()).body))


@pytest.mark.requirement("MBWS-32")
@in_loop
async def test_with_a_door_that_lost_its_state_no_message_is_lost(shared: RunningBroker) -> None:
    """The reader continues after its last message; the writer resends unacknowledged messages."""
    a = next(names)
    async with at(shared, create=(a,)) as (opened, _):
        place = opened.endpoint.removeprefix("ws://")
        c = await mbws.connect(opened.endpoint)
        r, w = await c.reader(a, start="earliest"), await c.writer(a)
        for n in range(3):
            await w.send(b"%d" % n)
        await w.flush()
        assert [int((await r.next()).body) for _ in range(2)] == [0, 1]
    away = await w.send(b"3")
    async with door("mbws", shared.endpoint, place) as (_, broker_client):
        await away
        assert [int((await r.next()).body) for _ in range(2)] == [2, 3]
        assert c.link.beginnings == r.link.beginnings == 2
        await c.close()
        assert await in_log(broker_client, a) == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_a_stopped_door_has_acknowledged_all_accepted_messages(shared: RunningBroker) -> None:
    """Therefore no message is sent twice: the log has each number once."""
    a = next(names)
    sending: asyncio.Task[None]
    async with at(shared) as (opened, _):
        place = opened.endpoint.removeprefix("ws://")
        c = await mbws.connect(opened.endpoint)
        w = await c.writer(a)
        sending = asyncio.create_task(send_all(w, range(5000)))
        await until(lambda: c.link._outgoing.acked > 500)
    async with door("mbws", shared.endpoint, place) as (_, broker_client):
        await sending
        await w.flush()
        await c.close()
        assert await in_log(broker_client, a) == [b"%d" % n for n in range(5000)]


async def send_all(w: mbws.MbwsWriter, numbers: range) -> None:
    for n in numbers:
        await w.send(b"%d" % n)


@in_loop
async def test_acknowledged_messages_survive_a_kill_of_the_broker(mtl_broker: RunningBroker) -> None:
    async with at(mtl_broker) as (opened, broker_client), mbws.connect(opened.endpoint) as c:
        w, r = await c.writer("orders"), await c.reader("orders", start="earliest")
        answered = [await w.send(b"%d" % n) for n in range(300)]
        await answered[100]
        await asyncio.to_thread(mtl_broker.kill)
        sending = asyncio.create_task(send_all(w, range(300, 500)))
        await asyncio.to_thread(mtl_broker.restart)
        await sending
        await w.flush()
        assert await in_log(broker_client, "orders") == [b"%d" % n for n in range(500)]
        assert [int((await r.next()).body) for _ in range(500)] == list(range(500))


@in_loop
async def test_acknowledged_messages_survive_a_kill_of_the_door(shared: RunningBroker) -> None:
    """The next door has no connections: unacknowledged messages may be stored twice, acknowledged ones once."""
    a = next(names)
    command = ["mbws", "--connect", shared.endpoint, "--listen"]
    with door_process(*command, ANYWHERE) as process:
        assert process.stdout is not None
        place = await_line(process.stdout.fileno(), r"mtl door mbws ready at ws://(\S+) ")
        c = await mbws.connect(f"ws://{place}")
        w, r = await c.writer(a), await c.reader(a, start="earliest")
        sent = [await w.send(b"%d" % n) for n in range(500)]
        bodies = [int((await r.next()).body) for _ in range(50)]
        await sent[300]
        process.kill()
    acknowledged = sum(future.done() for future in sent)
    with door_process(*command, place) as process:
        await w.flush()
        async with aio.connect(shared.endpoint) as broker_client:
            log = [int(body) for body in await in_log(broker_client, a)]
        bodies += [int((await r.next()).body) for _ in log[50:]]
        await c.close()
    assert bodies == log, "the reader went on where it was"
    assert sorted(set(log)) == list(range(500))
    assert log[:acknowledged] == list(range(acknowledged))
    assert log.count(acknowledged - 1) == 1


CLIENT = """
import asyncio, sys
from mtl.doors.mbws import client as mbws
async def main():
    async with mbws.connect(sys.argv[1]) as c, c.writer(sys.argv[2]) as w:
        for n in range(10**9):
            sent = await w.send(b"%d" % n)
            sent.add_done_callback(lambda _, n=n: print(n, flush=True))
asyncio.run(main())
"""


@in_loop
async def test_messages_acknowledged_to_a_killed_client_are_stored(shared: RunningBroker) -> None:
    a = next(names)
    async with at(shared) as (opened, broker_client):
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, opened.endpoint, a, stdout=asyncio.subprocess.PIPE
        )
        assert client.stdout is not None
        reported = -1
        while reported < 500:
            reported = int(await client.stdout.readline())
        client.kill()
        for line in (await client.stdout.read()).split(b"\n")[:-1]:
            reported = int(line)
        await client.wait()
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        log = [int(body) for body in await in_log(broker_client, a)]
        assert log == list(range(len(log)))
        assert len(log) > reported


@pytest.mark.requirement("MBWS-44", "MBWS-45")
@in_loop
async def test_tls_and_origins_are_checked(shared: RunningBroker, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with at(shared, certificate_file=certificates.certificate, key_file=certificates.key) as (
        opened,
        _,
    ):
        assert opened.endpoint.startswith("wss://")
        async with mbws.connect(opened.endpoint, tls=certificates.trusting) as c, c.writer(next(names)) as w:
            await w.send(b"private")
        with pytest.raises(Refused, match="untrusted"):
            await mbws.connect(opened.endpoint)
    async with at(shared) as (opened, _):
        with pytest.raises(InvalidStatus, match="403"):
            async with bare(opened, origin="https://example.org"):
                pass


@in_loop
async def test_messages_that_cannot_be_sent_are_refused_at_the_call(shared: RunningBroker) -> None:
    async with at(shared, create=()) as (opened, _), mbws.connect(opened.endpoint) as c, c.writer("a") as w:
        with pytest.raises(ContentTooLarge):
            await w.send(bytes((4 << 20) + 1))
        with pytest.raises(FieldError, match="are the most"):
            await w.send(b"", {"k": "x" * 70_000})
        with pytest.raises(Refused, match="no such resource"):
            await c.reader("nowhere")
    for url in ("127.0.0.1:5979", "http://127.0.0.1", "ws://127.0.0.1/?address=a", "ws://"):
        with pytest.raises(OptionError):
            mbws.connect(url)


@in_loop
async def test_a_full_door_refuses_clients(shared: RunningBroker) -> None:
    async with at(shared, max_sessions=1) as (opened, _):
        async with mbws.connect(opened.endpoint):
            with pytest.raises(Refused, match="limit"):
                await mbws.connect(opened.endpoint)
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        async with mbws.connect(opened.endpoint):
            pass

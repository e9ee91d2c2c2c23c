"""The asyncio client with a real broker, including restarts."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import mtl
from mtl.errors import Refused, Unreachable
from mtl.testing import RunningBroker
from mtl.wire.control import StageSpec
from mtl.wire.fields import EMPTY
from tests.support.aio import in_loop

BODIES = [b"", b"\x00\xff" * 8, bytes(1 << 20), "größer ✓".encode()]


def test_mtl_aio_can_be_imported() -> None:
    """In a separate process: here it may have been loaded as an attribute of `mtl` already."""
    program = "import mtl.aio, mtl; from mtl.aio import connect; assert mtl.aio.connect is connect"
    subprocess.run([sys.executable, "-c", program], check=True)


@in_loop
async def test_written_contents_are_read(mtl_broker: RunningBroker) -> None:
    async with mtl.aio.connect(mtl_broker.endpoint) as c:
        await c.create_resource("orders")
        async with c.writer("orders") as w:
            for n, body in enumerate(BODIES):
                await w.send(body, {"n": n, "ü": "✓"})
        async with c.reader("orders", until=len(BODIES) + 1) as r:
            contents = [content async for content in r]
        assert [content.body for content in contents] == BODIES
        assert [content.properties["n"] for content in contents] == [0, 1, 2, 3]
        with pytest.raises(Refused, match="unknown-resource"):
            await c.reader("nowhere")


@in_loop
async def test_a_stage_is_sealed_committed_and_forgotten(mtl_broker: RunningBroker) -> None:
    async with mtl.aio.connect(mtl_broker.endpoint) as c:
        await c.create_resource("orders")
        async with c.writer("orders", stage=StageSpec(application="app", version=1)) as w:
            await w.send(b"1")
            sealed = await w.seal()
        assert sealed.contents == {"orders": 1}
        assert not (await c.stage_commit("app", 1, sealed.stage)).already
        async with c.writer("orders", stage=StageSpec(application="app", version=2)) as w:
            await w.send(b"2")
            other = await w.seal()
        assert [stage.stage for stage in (await c.stages("app")).stages] == [other.stage]
        await c.stage_abort(other.stage)
        assert (await c.stages("app")).stages == []
        await c.stage_forget("app")
        assert (await c.stages("app")).applications == []
        async with c.reader("orders", until=2) as r:
            assert [content.body async for content in r] == [b"1"]


@in_loop
async def test_a_cursor_is_reset(mtl_broker: RunningBroker) -> None:
    async with mtl.aio.connect(mtl_broker.endpoint) as c:
        await c.create_resource("orders")
        async with c.writer("orders") as w:
            for body in (b"1", b"2", b"3"):
                await w.send(body)
        await c.cursor_open("group", "orders", start=3)
        await c.cursor_reset("group", "orders", to=2)
        assert [cursor.position for cursor in await c.cursors("group")] == [2]


@in_loop
async def test_many_tasks_write_while_one_reads_slowly(mtl_broker: RunningBroker) -> None:
    async with mtl.aio.connect(mtl_broker.endpoint) as c:
        await c.create_resource("orders")
        async with c.writer("orders", window_contents=100) as w:

            async def produce(name: int) -> None:
                for n in range(100):
                    await w.settled(await w.send(b"%d %d" % (name, n)))

            async with asyncio.TaskGroup() as producers:
                for name in range(10):
                    producers.create_task(produce(name))
        sequences: dict[bytes, list[int]] = {}
        async with c.reader("orders", until=1_001, packed=False, window_contents=50) as r:
            async for content in r:
                sender, _, n = content.body.partition(b" ")
                sequences.setdefault(sender, []).append(int(n))
                assert len(r._part.queue) <= 50
        assert list(sequences.values()) == [list(range(100))] * 10


@in_loop
async def test_contents_are_exactly_once_with_a_killed_broker(mtl_broker: RunningBroker) -> None:
    async with mtl.aio.connect(mtl_broker.endpoint, request_timeout=1.0) as c:
        await c.create_resource("orders")
        async with c.writer("orders") as w, c.reader("orders", start="earliest") as r:
            received: list[bytes] = []

            async def consume() -> None:
                while len(received) < 3_000:
                    content = await r.next()
                    assert content is not None
                    received.append(content.body)

            consuming = asyncio.create_task(consume())
            numbers = [await w.send(b"%d" % n) for n in range(1_000)]
            await w.settled(numbers[500])
            await asyncio.to_thread(mtl_broker.kill)
            numbers += [await w.send(b"%d" % n) for n in range(1_000, 2_000)]
            await asyncio.to_thread(mtl_broker.restart)
            numbers += [await w.send(b"%d" % n) for n in range(2_000, 3_000)]
            await w.flush()
            await consuming
        assert received == [b"%d" % n for n in range(3_000)]


@in_loop
async def test_a_stopped_reader_of_packs_gets_one_window(mtl_broker: RunningBroker) -> None:
    async with mtl.aio.connect(mtl_broker.endpoint) as c:
        await c.create_resource("orders")
        async with c.writer("orders", packed=True) as w:
            for n in range(20):
                await w.send_run([b"%d" % n] * 100, [EMPTY] * 100)
        async with c.reader("orders", until=2_001, window_contents=400) as r:
            contents = [await r.next()]
            for _ in range(20):
                await c.describe("orders")  # all that the broker sent before has arrived
                assert sum(delivery.end - delivery.first for delivery in r._part.queue) <= 400
            contents += [content async for content in r]
            assert len(contents) == 2_000


@in_loop
async def test_other_tasks_run_during_connect() -> None:
    """To a name that needs a lookup, and to a port without listener."""
    for endpoint in ("tcp://nowhere.invalid:5975", "tcp://127.0.0.1:9"):
        connecting = asyncio.ensure_future(mtl.aio.connect(endpoint, request_timeout=0.3, retry_deadline=0.6))
        turns = 0
        while not connecting.done():
            await asyncio.sleep(0.001)
            turns += 1
        with pytest.raises(Unreachable):
            await connecting
        assert turns > 20


def test_an_event_loop_can_be_closed_with_open_connections(mtl_broker: RunningBroker) -> None:
    command = [sys.executable, "-m", "tests.support.unclosed_client", mtl_broker.endpoint]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"ended\n"), done.stderr


@in_loop
async def test_asyncio_and_blocking_client_work_in_one_process(mtl_broker: RunningBroker) -> None:
    """One uses the event loop, the other the IO thread."""
    with mtl.connect(mtl_broker.endpoint) as blocking:
        blocking.create_resource("orders")
        async with mtl.aio.connect(mtl_broker.endpoint) as c, c.writer("orders") as w:
            await w.send(b"1")
            await w.flush()
            with blocking.reader("orders", until=2) as r:
                assert [content.body for content in r] == [b"1"]

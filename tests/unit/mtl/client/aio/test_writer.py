from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from mtl.client.aio import Connection
from mtl.client.aio.opening import Opening
from mtl.errors import Closed, ContentRefused, ContentTooLarge, LocalError, OptionError, Unreachable
from mtl.wire import control
from mtl.wire.fields import EMPTY, encode_properties
from tests.support.aio import in_loop
from tests.support.memory_broker import RESOURCE, MemoryBroker

Connect = Callable[..., Opening[Connection]]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@in_loop
async def test_all_contents_are_durable_at_the_end_of_the_block(
    connected: Connect, memory_broker: MemoryBroker, packed: bool
) -> None:
    async with connected() as connection:
        writer = await connection.writer(RESOURCE, packed=packed)
        assert [await writer.send(b"%d" % n) for n in range(5)] == [1, 2, 3, 4, 5]
        await writer.leave(failed=False)
        assert memory_broker.stored == [b"0", b"1", b"2", b"3", b"4"]
        with pytest.raises(Closed):
            await writer.send(b"late")
        await writer.close()


@in_loop
async def test_many_tasks_can_await_their_own_contents(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected() as connection:
        memory_broker.holding = True
        writer = await connection.writer(RESOURCE)
        numbers = [await writer.send(b"%d" % n) for n in range(50)]
        waits = [writer.settled(number) for number in reversed(numbers)]
        await asyncio.sleep(0.02)  # time for a wrong completion
        assert not any(wait.done() for wait in waits)
        waits[0].cancel()
        memory_broker.let_go(connection._loop)
        await asyncio.gather(*waits[1:])
        await writer.settled(1)  # again: it is so already
        await writer.close()


@in_loop
async def test_contents_and_packs_use_their_octets_of_the_window(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected() as connection:
        memory_broker.holding = True
        plain = await connection.writer(RESOURCE, window_bytes=2 * len(b"12345" + EMPTY))
        packed = await connection.writer(RESOURCE, packed=True, window_bytes=1_000)
        async with asyncio.timeout(10):
            assert [await plain.send(b"12345"), await plain.send(b"12345")] == [1, 2]
            assert await packed.send_run([b"x"], [EMPTY]) == 1
        waiting = [
            asyncio.create_task(coroutine)
            for coroutine in (plain.send(b""), packed.send_run([b"x"], [EMPTY]))
        ]
        await asyncio.sleep(0.02)  # time for a wrong completion
        assert not any(task.done() for task in waiting)
        memory_broker.let_go(connection._loop)
        assert await asyncio.gather(*waiting) == [3, 2]
        await plain.close()
        await packed.close()


@in_loop
async def test_a_full_window_makes_senders_wait_in_turn(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected() as connection:
        memory_broker.holding = True
        writer = await connection.writer(RESOURCE, window_contents=3)
        for body in (b"0", b"1", b"2"):
            await writer.send(body)
        sending = [asyncio.create_task(writer.send(b"%d" % n)) for n in range(3, 6)]
        await asyncio.sleep(0.02)  # time for a wrong completion
        assert not any(task.done() for task in sending)
        memory_broker.let_go(connection._loop)
        assert await asyncio.gather(*sending) == [4, 5, 6]
        await writer.close()
        assert memory_broker.stored == [b"0", b"1", b"2", b"3", b"4", b"5"]


@in_loop
async def test_a_broker_without_progress_is_unreachable(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected(retry_deadline=0.3) as connection:
        memory_broker.holding = True
        writer = await connection.writer(RESOURCE, window_contents=1)
        number = await writer.send(b"0")
        began = time.monotonic()
        with pytest.raises(Unreachable, match="1 contents unconfirmed"):
            await writer.settled(number)
        assert time.monotonic() - began >= 0.3
        with pytest.raises(Unreachable):
            await writer.send(b"1")
        await writer.abandon()
        assert isinstance(writer.error, Closed)


@in_loop
async def test_a_closed_writer_leaves_no_timer(connected: Connect, memory_broker: MemoryBroker) -> None:
    async with connected() as connection:
        memory_broker.holding = True
        writer = await connection.writer(RESOURCE)
        wait = writer.settled(await writer.send(b"0"))
        watch = writer._watch
        assert watch is not None
        await writer.abandon()
        assert watch.cancelled()
        with pytest.raises(Closed):
            await wait


@in_loop
async def test_a_refusal_is_raised_by_the_wait_for_its_content(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected() as connection:
        memory_broker.refuse = b"bad"
        writer = await connection.writer(RESOURCE)
        good, bad, after = [await writer.send(body) for body in (b"good", b"bad", b"also good")]
        wait = writer.settled(bad)
        await writer.settled(good)
        with pytest.raises(ContentRefused) as refused:
            await wait
        assert (refused.value.resource, refused.value.sequence) == (RESOURCE, 2)
        await writer.settled(after)
        await writer.send(b"bad")
        with pytest.raises(ContentRefused):
            await writer.flush()
        await writer.flush()
        await writer.close()
        assert memory_broker.stored == [b"good", b"also good"]


@in_loop
async def test_a_run_waits_for_the_window_and_is_settled_as_a_whole(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected() as connection:
        memory_broker.holding = True
        writer = await connection.writer(RESOURCE, packed=True, window_contents=3)
        whole = writer.settled(await writer.send_run([b"0", b"1"], [EMPTY] * 2))
        sending = asyncio.create_task(writer.send_run([b"2", b"3"], [EMPTY] * 2))
        await asyncio.sleep(0.02)
        assert not whole.done()
        assert not sending.done()
        memory_broker.let_go(connection._loop)
        await whole
        assert await sending == 4
        await writer.close()
        assert memory_broker.stored == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_a_failed_writer_fails_every_wait(connected: Connect, memory_broker: MemoryBroker) -> None:
    async with connected() as connection:
        memory_broker.holding = True
        writer = await connection.writer(RESOURCE)
        wait = writer.settled(await writer.send(b"0"))
        await writer.leave(failed=True)
        with pytest.raises(Closed):
            await wait


@in_loop
async def test_contents_that_cannot_be_sent_are_refused_at_the_call(connected: Connect) -> None:
    async with connected() as connection:
        writer = await connection.writer(RESOURCE)
        assert (writer.max_content, writer.name is not None) == (10_000, True)
        with pytest.raises(ContentTooLarge):
            await writer.send(bytes(10_001))
        await writer.close()


@in_loop
async def test_a_run_is_sent_as_one_pack(connected: Connect, memory_broker: MemoryBroker) -> None:
    kind = encode_properties({"kind": "new"})
    async with connected() as connection:
        async with connection.writer(RESOURCE, packed=True) as writer:
            assert await writer.send(b"0") == 1
            assert await writer.send_run([b"1"], [kind]) == 2
            assert await writer.send_run([b"2", b"3", b"4"], [kind, EMPTY, kind]) == 5
            with pytest.raises(ContentTooLarge):
                await writer.send_run([b"x", b"x" * 10_001], [EMPTY, EMPTY])
            with pytest.raises(ContentTooLarge, match="pack"):
                await writer.send_run([b"x" * 9_000] * 50, [EMPTY] * 50)
            assert await writer.send_run([b"5"], [EMPTY]) == 6
        assert memory_broker.stored == [b"%d" % n for n in range(6)]
        async with connection.writer(RESOURCE) as writer:
            with pytest.raises(OptionError, match="not packed"):
                await writer.send_run([b"x"], [EMPTY])


@in_loop
async def test_an_incomplete_pack_is_sent_without_a_flush(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    async with connected() as connection:
        writer = await connection.writer(RESOURCE, packed=True)
        await writer.settled(await writer.send(b"alone"))
        assert memory_broker.stored == [b"alone"]


@in_loop
async def test_a_stage_is_sealed_by_close_even_after_a_restart(
    connected: Connect, memory_broker: MemoryBroker
) -> None:
    stage = control.StageSpec(application="app", version=0)
    async with connected() as connection:
        writer = await connection.writer(RESOURCE, stage=stage)
        await writer.send(b"x")
        assert (await writer.seal()).contents == {RESOURCE: 1}
        gone = control.encode_reply(404, {"status": "no", "reason": control.UNKNOWN_LEASE, "message": ""})
        info = control.StageInfo(
            stage="stage", application="app", version=0, contents={RESOURCE: 9}, bytes=99
        )
        memory_broker.answers[control.LeaseClose] = lambda: gone
        memory_broker.answers[control.StageDescribe] = lambda: control.encode_reply(
            200, control.StageList(stages=[info], applications=[])
        )
        assert (await (await connection.writer(RESOURCE, stage=stage)).seal()).bytes == 99
        with pytest.raises(LocalError, match="no stage"):
            await (await connection.writer(RESOURCE)).seal()

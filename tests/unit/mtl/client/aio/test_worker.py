from __future__ import annotations

import asyncio
import threading

import pytest

from mtl.client.aio.worker import Worker
from mtl.client.limits import AIO_REQUESTS
from mtl.errors import Closed
from tests.support.aio import in_loop, until


@in_loop
async def test_a_call_runs_beside_the_loop_and_its_outcome_comes_back() -> None:
    worker = Worker()
    assert await worker.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    await worker.close()


@in_loop
async def test_what_comes_after_a_cancellation_is_undone() -> None:
    worker = Worker()
    begun, go, undone = threading.Event(), threading.Event(), list[str]()

    def call() -> str:
        begun.set()
        go.wait(10)
        return "lease"

    task = asyncio.create_task(worker.run(call, undone.append))
    await until(begun.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == []
    go.set()
    await until(lambda: undone == ["lease"])
    await worker.close()


@in_loop
async def test_what_has_not_begun_when_it_closes_never_does() -> None:
    worker = Worker()
    begun, go = threading.Semaphore(0), threading.Event()

    def call() -> bool:
        begun.release()
        return go.wait(10)

    busy = [asyncio.create_task(worker.run(call)) for _ in range(AIO_REQUESTS)]
    late = asyncio.create_task(worker.run(lambda: None))
    for _ in busy:
        await until(lambda: begun.acquire(blocking=False))
    closing = asyncio.create_task(worker.close())
    with pytest.raises(Closed):
        await late
    go.set()
    await closing
    assert await asyncio.gather(*busy) == [True] * AIO_REQUESTS
    with pytest.raises(Closed):
        await worker.run(lambda: None)


@in_loop
async def test_a_cancelled_call_that_fails_leaves_nothing_to_undo() -> None:
    worker = Worker()
    begun, go, undone = threading.Event(), threading.Event(), list[object]()

    def call() -> str:
        begun.set()
        go.wait(10)
        raise ValueError

    task = asyncio.create_task(worker.run(call, undone.append))
    await until(begun.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await worker.close()
    assert undone == []

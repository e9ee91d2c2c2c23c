from __future__ import annotations

import asyncio

import pytest

from mtl.doors.budget import Budget
from tests.support.aio import in_loop


@in_loop
async def test_requests_that_do_not_fit_wait_in_order() -> None:
    budget, order = Budget(10), list[str]()

    async def take(name: str, octets: int) -> None:
        await budget.acquire(octets)
        order.append(name)

    await take("first", 6)
    waiting = [asyncio.create_task(take(name, size)) for name, size in [("large", 8), ("small", 1)]]
    await asyncio.sleep(0)
    assert (order, budget.held) == (["first"], 6)
    budget.release(6)
    await asyncio.gather(*waiting)
    assert (order, budget.held) == (["first", "large", "small"], 9)


@in_loop
async def test_a_request_above_the_limit_waits_for_an_empty_budget() -> None:
    budget = Budget(10)
    await budget.acquire(1)
    task = asyncio.create_task(budget.acquire(100))
    await asyncio.sleep(0)
    assert not task.done()
    budget.release(1)
    await task
    assert budget.held == 100


@in_loop
async def test_a_cancelled_wait_releases_its_place() -> None:
    budget = Budget(10)
    await budget.acquire(5)
    large, small = asyncio.create_task(budget.acquire(9)), asyncio.create_task(budget.acquire(5))
    await asyncio.sleep(0)
    large.cancel()
    await small
    assert budget.held == 10
    granted = asyncio.create_task(budget.acquire(10))
    await asyncio.sleep(0)
    budget.release(10)
    granted.cancel()  # it has been granted and has not run since
    with pytest.raises(asyncio.CancelledError):
        await granted
    assert budget.held == 0


@in_loop
async def test_an_owner_at_its_share_delays_no_other() -> None:
    budget, order = Budget(10, share=4), list[str]()

    async def take(owner: str, octets: int) -> None:
        await budget.acquire(octets, owner)
        order.append(owner)

    await take("alice", 4)
    waiting = asyncio.create_task(take("alice", 1))
    await asyncio.sleep(0)
    assert budget.is_owner_full(1, "alice")
    await take("bob", 4)
    assert not budget.try_acquire(1, "alice")
    assert budget.try_acquire(2, "carol")
    assert (order, budget.held) == (["alice", "bob"], 10)
    budget.release(2, "carol")
    await asyncio.sleep(0)
    assert not waiting.done()
    budget.release(4, "alice")
    await waiting
    assert (order, budget.held) == (["alice", "bob", "alice"], 5)


@in_loop
async def test_waiting_for_the_total_is_in_order_over_all_owners() -> None:
    budget = Budget(10, share=9)
    await budget.acquire(6, "alice")
    large = asyncio.create_task(budget.acquire(5, "bob"))
    await asyncio.sleep(0)
    assert not budget.try_acquire(1, "carol"), "bob came first"
    small = asyncio.create_task(budget.acquire(1, "carol"))
    await asyncio.sleep(0)
    budget.release(6, "alice")
    await asyncio.gather(large, small)
    assert budget.held == 6

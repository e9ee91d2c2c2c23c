from __future__ import annotations

import asyncio
import threading

from mtl.client.aio.bell import Bell
from tests.support.aio import in_loop, until


@in_loop
async def test_many_rings_are_heard_once_and_a_later_one_again() -> None:
    heard: list[int] = []
    bell = Bell(lambda: heard.append(threading.get_ident()))

    def ring() -> None:
        for _ in range(100):
            bell.ring()

    ring()
    await asyncio.sleep(0)
    assert heard == [threading.get_ident()]
    await asyncio.to_thread(ring)
    await asyncio.sleep(0)
    assert 2 <= len(heard) <= 101
    assert set(heard) == {threading.get_ident()}


@in_loop
async def test_a_ring_while_hearing_is_heard_again() -> None:
    heard = 0

    def hear() -> None:
        nonlocal heard
        heard += 1
        if heard < 3:
            bell.ring()

    bell = Bell(hear)
    bell.ring()
    await until(lambda: heard == 3)
    await asyncio.sleep(0)
    assert heard == 3, "and not once more"


def test_ringing_after_the_loops_end_does_nothing() -> None:
    heard: list[None] = []

    async def make() -> Bell:
        return Bell(lambda: heard.append(None))

    bell = asyncio.run(make())
    bell.ring()
    bell.ring()
    assert heard == []

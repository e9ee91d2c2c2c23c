from __future__ import annotations

import asyncio

import pytest

from mtl.doors.arriving import Arriving
from mtl.doors.budget import Budget
from mtl.doors.limits import DOOR_ARRIVING_FREE, DOOR_ARRIVING_STEP
from mtl.doors.peer_messages import DoorRefusal
from mtl.limits import MAX_CONTENT
from tests.support.aio import in_loop

SMALL, LARGE = DOOR_ARRIVING_FREE, DOOR_ARRIVING_FREE + 1


def budget(steps: int, share: int = 1) -> Budget:
    """Room for this number of reservations."""
    return Budget(steps * DOOR_ARRIVING_STEP, share * DOOR_ARRIVING_STEP)


@in_loop
async def test_only_large_messages_are_reserved_for_and_until_they_are_whole() -> None:
    room = budget(4)
    connection = Arriving(room, "alice")
    for octets, held in ((SMALL, 0), (LARGE, 1), (MAX_CONTENT, 1), (SMALL, 0), (LARGE, 1)):
        await connection.reserve(octets)
        assert room.held == held * DOOR_ARRIVING_STEP
    connection.end()
    assert room.held == 0


@in_loop
async def test_nothing_is_reserved_after_the_end() -> None:
    """The task that reads may still handle what it has read."""
    room = budget(1)
    first, waiting = Arriving(room, "alice"), Arriving(room, "alice")
    await first.reserve(LARGE)
    reserving = asyncio.create_task(waiting.reserve(LARGE))
    await asyncio.sleep(0)
    waiting.end()
    first.end()
    await first.reserve(LARGE)
    await reserving
    assert room.held == 0


@in_loop
async def test_a_further_message_of_an_owner_waits_and_one_of_another_owner_does_not() -> None:
    room = budget(4)
    first, second = Arriving(room, "alice"), Arriving(room, "alice")
    await first.reserve(LARGE)
    waiting = asyncio.create_task(second.reserve(LARGE))
    await Arriving(room, "bob").reserve(LARGE)
    assert not waiting.done()
    first.end()
    first.end()
    await waiting
    assert room.held == 2 * DOOR_ARRIVING_STEP


@in_loop
async def test_connections_that_wait_for_each_other_are_refused_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mtl.doors.arriving.DOOR_STALL_S", 0.01)
    room = budget(8, share=2)
    first, second = Arriving(room, "alice"), Arriving(room, "alice")
    await first.reserve(LARGE)
    await second.reserve(LARGE)
    with pytest.raises(DoorRefusal, match="too many octets of incomplete messages"):
        await first.reserve(DOOR_ARRIVING_STEP + 1)
    first.end()
    await second.reserve(DOOR_ARRIVING_STEP + 1)
    assert room.held == 2 * DOOR_ARRIVING_STEP


@in_loop
async def test_a_message_that_stops_arriving_is_refused_and_a_silent_connection_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mtl.doors.arriving.DOOR_STALL_S", 0.01)

    async def octets() -> bytes:
        await asyncio.sleep(0.05)
        return b"x"

    connection = Arriving(budget(4), "alice")
    assert await connection.read(octets()) == b"x"
    await connection.reserve(LARGE)
    with pytest.raises(DoorRefusal, match="nothing of a begun message has arrived"):
        await connection.read(octets())


@in_loop
async def test_an_error_of_the_connection_is_not_taken_for_a_stall() -> None:
    async def octets() -> bytes:
        raise TimeoutError(110, "Connection timed out")

    connection = Arriving(budget(4), "alice")
    await connection.reserve(LARGE)
    with pytest.raises(TimeoutError):
        await connection.read(octets())

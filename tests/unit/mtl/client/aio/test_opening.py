from __future__ import annotations

import pytest

from mtl.client.aio.opening import Opening
from tests.support.aio import in_loop


class Door:
    def __init__(self) -> None:
        self.left: list[bool] = []

    async def leave(self, *, failed: bool) -> None:
        self.left.append(failed)


def opening(door: Door) -> Opening[Door]:
    async def opened() -> Door:
        return door

    return Opening(opened)


@in_loop
async def test_a_block_closes_the_opened_object() -> None:
    door = Door()
    async with opening(door) as entered:
        assert entered is door
        assert door.left == []
    assert door.left == [False]


@in_loop
async def test_a_failed_block_closes_with_the_failure_flag() -> None:
    door = Door()
    with pytest.raises(KeyError):
        async with opening(door):
            raise KeyError
    assert door.left == [True]


@in_loop
async def test_an_awaited_object_is_not_closed() -> None:
    door = Door()
    assert await opening(door) is door
    assert door.left == []

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.users import Bridges
from mtl.errors import Refused
from tests.support.aio import in_loop


class Connection:
    """Of a user, as far as bridges look at it."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Logins:
    def __init__(self) -> None:
        self.opened: list[Connection] = []
        self.failing = False

    async def connect_as(self, user: str) -> Connection:
        await asyncio.sleep(0)
        if self.failing:
            raise Refused(403, "not-authorized")
        self.opened.append(Connection(user))
        return self.opened[-1]


def bridges() -> tuple[Bridges, Logins, Connection]:
    logins, own = Logins(), Connection("door")
    return Bridges(cast("Any", own), cast("Any", logins)), logins, own


@in_loop
async def test_a_user_has_a_connection_of_its_own_opened_once_and_when_it_is_needed() -> None:
    one, logins, own = bridges()
    assert await one.of(None).connection() is cast("Any", own)
    alice = one.of("alice")
    assert one.of("alice") is alice
    assert logins.opened == []
    first, second = await asyncio.gather(alice.connection(), alice.connection())
    assert first is second
    assert await one.of("bob").connection() is not first
    assert [connection.user for connection in logins.opened] == ["alice", "bob"]
    await one.leave()
    assert [connection.closed for connection in logins.opened] == [True, True]
    assert not own.closed


@in_loop
async def test_one_that_could_not_be_opened_is_tried_again() -> None:
    one, logins, _ = bridges()
    logins.failing = True
    with pytest.raises(Refused):
        await one.of("alice").connection()
    logins.failing = False
    await one.of("alice").connection()
    await one.leave()


@in_loop
async def test_the_one_that_is_idle_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.doors.users.DOOR_USERS", 2)
    one, logins, _ = bridges()
    alice, bob = one.of("alice"), one.of("bob")
    await alice.connection()
    await bob.connection()
    one.of("alice")
    await one.of("carol").connection()
    await one.leave()
    assert {connection.user: connection.closed for connection in logins.opened}["bob"]
    await bob.connection()  # a peer that still has it opens it again
    assert logins.opened[-1].user == "bob"
    await bob.leave()


@in_loop
async def test_where_all_are_busy_nobody_else_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.doors.users.DOOR_USERS", 1)
    one, _, _ = bridges()
    one.of("alice")._held = 1
    with pytest.raises(DoorRefusal, match="1 users at once"):
        one.of("bob")
    assert one.of(None) is one.own

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from mtl.doors.failure_log import PeerAddress
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.pools import Shares
from mtl.doors.users import Bridges
from mtl.errors import Refused
from tests.support.aio import in_loop


class Connection:
    """The connection of a user, as far as bridges use it."""

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
    return Bridges(cast("Any", own), cast("Any", logins), Shares(100)), logins, own


@in_loop
async def test_a_user_has_its_own_connection_opened_once_on_demand() -> None:
    users, logins, own = bridges()
    assert await users._of(None).connection() is cast("Any", own)
    alice = users._of("alice")
    assert users._of("alice") is alice
    assert logins.opened == []
    first, second = await asyncio.gather(alice.connection(), alice.connection())
    assert first is second
    assert await users._of("bob").connection() is not first
    assert [connection.user for connection in logins.opened] == ["alice", "bob"]
    await users.leave()
    assert [connection.closed for connection in logins.opened] == [True, True]
    assert not own.closed


@in_loop
async def test_a_failed_opening_is_retried() -> None:
    users, logins, _ = bridges()
    logins.failing = True
    with pytest.raises(Refused):
        await users._of("alice").connection()
    logins.failing = False
    await users._of("alice").connection()
    await users.leave()


@in_loop
async def test_the_longest_idle_connection_is_closed_for_another_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mtl.doors.users.DOOR_USERS", 2)
    users, logins, _ = bridges()
    alice, bob = users._of("alice"), users._of("bob")
    await alice.connection()
    await bob.connection()
    users._of("alice")
    await users._of("carol").connection()
    await users.leave()
    assert {connection.user: connection.closed for connection in logins.opened}["bob"]
    await bob.connection()  # a peer that still has it opens it again
    assert logins.opened[-1].user == "bob"
    await bob.leave()


@in_loop
async def test_if_all_connections_are_busy_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.doors.users.DOOR_USERS", 1)
    users, _, _ = bridges()
    users._of("alice").uses = 1
    with pytest.raises(DoorRefusal, match="1 users at once"):
        users._of("bob")
    assert users._of(None) is users.own


@in_loop
async def test_the_sessions_of_a_user_are_a_share_of_those_of_the_door() -> None:
    users, _, _ = bridges()
    alice = PeerAddress("192.0.2.1", 1, "alice")
    sessions = [users.admit(alice) for _ in range(25)]
    with pytest.raises(DoorRefusal, match=r"quotas\.sessions is 25"):
        users.admit(alice)
    users.admit(PeerAddress("192.0.2.1", 2, "bob"))
    sessions[0].end()
    users.admit(alice)

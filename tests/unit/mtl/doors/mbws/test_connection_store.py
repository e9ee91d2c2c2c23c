"""Stored connections, in a resource that is a list."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtl.doors.bridge import Bridge
from mtl.doors.limits import MBWS_KEPT_S, MBWS_RETAINED
from mtl.doors.mbws.connection_records import CONNECTIONS, ConnectionRecord, digest, encode
from mtl.doors.mbws.connection_store import ConnectionStore
from mtl.doors.mbws.recovery import Client
from mtl.errors import Refused
from mtl.shares import default_share
from mtl.wire.control import UNKNOWN_RESOURCE, Retention
from tests.support.aio import in_loop
from tests.support.texts import in_order

ALICE = Client("https://example.org", "alice")
NOBODY = Client("https://example.org")


def record(name: str, user: str | None = ALICE.user) -> ConnectionRecord:
    return ConnectionRecord(
        connection=digest(name),
        origin=ALICE.origin,
        user=user,
        until=100.0,
        received=0,
        acknowledged=0,
        reading=(),
        sent=(),
    )


class Reading:
    """The contents of one read."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self._bodies = bodies

    async def __aenter__(self) -> AsyncIterator[Any]:
        return self._contents()

    async def __aexit__(self, *_: object) -> None:
        pass

    async def _contents(self) -> AsyncIterator[Any]:
        for body in self._bodies:
            yield SimpleNamespace(body=body)


class ResourceBridge:
    """A bridge to a broker with the resource, or without it; it is also its own connection."""

    def __init__(self, *names: str) -> None:
        self.incarnation: str | None = "first"
        self.bodies = [encode(record(name)) for name in names]
        self.may_create = False

    async def connection(self) -> ResourceBridge:
        return self

    def creates(self, resource: str) -> bool:
        return self.may_create

    async def describe(self, names: list[str]) -> dict[str, Any]:
        assert names == [CONNECTIONS]
        if self.incarnation is None:
            raise Refused(404, UNKNOWN_RESOURCE, "there is no such resource")
        return {CONNECTIONS: SimpleNamespace(incarnation=self.incarnation, next=len(self.bodies) + 1)}

    async def create_resource(self, resource: str, *, retention: Retention, exist_ok: bool) -> Any:
        assert (resource, retention.age) == (CONNECTIONS, MBWS_KEPT_S)
        if self.incarnation is not None and not exist_ok:
            raise Refused(409, "exists", "the resource exists")
        self.incarnation = "first"
        return SimpleNamespace(incarnation=self.incarnation, next=1)

    def reader(self, resource: str, *, start: int, until: int, incarnation: str, skip_lost: bool) -> Reading:
        assert (resource, incarnation, skip_lost) == (CONNECTIONS, self.incarnation, True)
        return Reading(self.bodies[start - 1 : until - 1])

    async def publish(self, resource: str, body: bytes) -> asyncio.Future[None]:
        assert resource == CONNECTIONS
        self.bodies.append(body)
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        confirmed.set_result(None)
        return confirmed


def store_at(bridge: ResourceBridge) -> ConnectionStore:
    return ConnectionStore(cast("Bridge", bridge), lambda: 0.0)


@pytest.mark.requirement("MBWS-21")
@in_loop
async def test_a_stored_connection_is_claimed_once() -> None:
    bridge = ResourceBridge("one", "two")
    first, second = store_at(bridge), store_at(bridge)
    assert await first.claim("one", ALICE) == record("one")
    assert await first.claim("one", ALICE) is None
    assert await second.claim("one", ALICE) is None
    assert await second.claim("two", ALICE) == record("two")


@pytest.mark.requirement("MBWS-21")
@in_loop
async def test_the_newest_stored_connections_up_to_the_limit_are_found() -> None:
    bridge = ResourceBridge()
    bridge.bodies = [encode(record(str(number), None)) for number in range(MBWS_RETAINED)]
    assert await store_at(bridge).claim("0", NOBODY) == record("0", None)
    bridge.bodies.append(encode(record("one more", None)))
    assert await store_at(bridge).claim("0", NOBODY) is None
    assert await store_at(bridge).claim("1", NOBODY) == record("1", None)


@in_loop
async def test_one_user_stores_no_more_than_its_share_and_displaces_no_other() -> None:
    bridge = ResourceBridge("others")
    bridge.bodies += [
        encode(record(str(number), "bob")) for number in range(default_share(MBWS_RETAINED) + 1)
    ]
    bob = Client(ALICE.origin, "bob")
    assert await store_at(bridge).claim("others", ALICE) == record("others")
    assert await store_at(bridge).claim("0", bob) is None
    assert await store_at(bridge).claim("1", bob) == record("1", "bob")


@in_loop
async def test_a_recreated_resource_has_its_own_connections_only() -> None:
    bridge = ResourceBridge("old", "older", "oldest")
    store = store_at(bridge)
    assert await store.claim("unknown", ALICE) is None
    bridge.incarnation, bridge.bodies = "second", [encode(record("new"))]
    assert await store.claim("old", ALICE) is None
    assert await store.claim("new", ALICE) == record("new")


@in_loop
async def test_a_connection_of_a_removed_resource_is_not_found() -> None:
    bridge = ResourceBridge("one")
    store = store_at(bridge)
    assert await store.claim("unknown", ALICE) is None
    bridge.incarnation = None
    assert await store.claim("one", ALICE) is None


@in_loop
async def test_the_failure_to_store_connections_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bridge = ResourceBridge()
    bridge.incarnation = None
    store = store_at(bridge)
    with caplog.at_level(logging.WARNING, "mtl.doors.mbws"):
        for name in ("one", "two", "three"):
            await store.store(record(name))
    (line,) = caplog.messages
    assert re.search(in_order("restart", "'mbws.connections'"), line)


class SharedBridge(ResourceBridge):
    """Another door creates the resource just before this one does."""

    def creates(self, resource: str) -> bool:
        self.incarnation = "first"
        return True


@pytest.mark.parametrize("kind", [ResourceBridge, SharedBridge])
@in_loop
async def test_a_missing_resource_is_created_where_the_door_may(kind: type[ResourceBridge]) -> None:
    bridge = kind()
    bridge.incarnation = None
    bridge.may_create = True
    await store_at(bridge).store(record("one"))
    assert bridge.bodies == [encode(record("one"))]

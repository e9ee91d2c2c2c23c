"""A door's way to the broker."""

from __future__ import annotations

import asyncio
from typing import cast

from mtl.client.aio import Connection
from mtl.doors.bridge import Bridge
from tests.support.aio import in_loop


class Writers:
    """A connection with writers that confirm nothing; `closed` are the resources whose writers were closed."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.bridge = Bridge(self._connection, [])

    async def _connection(self) -> Connection:
        return cast("Connection", self)

    async def writer(self, resource: str, **_: object) -> FakeWriter:
        return FakeWriter(resource, self.closed)


class FakeWriter:
    error = None

    def __init__(self, resource: str, closed: list[str]) -> None:
        self._resource = resource
        self._closed = closed

    async def send_run(self, *_: object) -> int:
        return 1

    def settled(self, _: int) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        self._closed.append(self._resource)


@in_loop
async def test_a_closed_bridge_has_closed_its_writers() -> None:
    writers = Writers()
    await writers.bridge.publish("a", b"1")
    await writers.bridge.close()
    assert writers.closed == ["a"]

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from mtl.client.aio import Writer
from mtl.doors.writers import ResourceWriters
from mtl.errors import Closed, MtlError, Refused
from tests.support.aio import in_loop


class FakeWriter:
    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.error: MtlError | None = None
        self.closed = False

    async def close(self) -> None:
        self.closed = True
        if self.error is not None:
            raise self.error


class Opener:
    def __init__(self) -> None:
        self.opened: list[FakeWriter] = []
        self.refusing = False

    async def __call__(self, resource: str) -> Writer:
        await asyncio.sleep(0)
        if self.refusing:
            raise Refused(404, "unknown-resource")
        self.opened.append(FakeWriter(resource))
        return cast(Writer, self.opened[-1])


@in_loop
async def test_concurrent_callers_share_one_writer() -> None:
    opener = Opener()
    writers = ResourceWriters(opener, 2)
    assert len(set(await asyncio.gather(*(writers.get("a") for _ in range(5))))) == 1
    assert len(opener.opened) == 1


@in_loop
async def test_the_least_recently_used_writer_is_closed() -> None:
    opener = Opener()
    writers = ResourceWriters(opener, 2)
    for resource in ("a", "b", "a", "c"):
        await writers.get(resource)
    await writers.close()
    assert [(writer.resource, writer.closed) for writer in opener.opened] == [
        ("a", True),
        ("b", True),
        ("c", True),
    ]
    await writers.get("a")
    assert len(opener.opened) == 4


@in_loop
async def test_a_failed_opening_is_repeated() -> None:
    opener = Opener()
    opener.refusing = True
    writers = ResourceWriters(opener, 2)
    with pytest.raises(Refused):
        await writers.get("a")
    opener.refusing = False
    first = await writers.get("a")
    opener.opened[-1].error = Closed("it ended")
    assert await writers.get("a") is not first
    await writers.close()


@in_loop
async def test_a_cancelled_caller_does_not_cancel_the_shared_opening() -> None:
    opener = Opener()
    writers = ResourceWriters(opener, 2)
    first, second = asyncio.create_task(writers.get("a")), asyncio.create_task(writers.get("a"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is cast(object, opener.opened[0])

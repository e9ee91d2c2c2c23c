"""The blocking and the asyncio client with servers whose replies are malformed or odd: one table, `ODD`.

An oddity is tolerated, or it is a named error of this one connection. Another connection of the process continues, and
the content after an odd message is intact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

import mtl
from mtl.errors import MtlError
from tests.support.minimal_server import MinimalServer
from tests.support.odd_server import ODD, OddServer

BODIES = [b"0", b"1"]


def use(server: OddServer) -> list[bytes]:
    """Write and read with the blocking client."""
    with mtl.connect(server.endpoint, profile="test", retry_deadline=server.odd.deadline) as connection:
        with connection.writer("resource") as writer:
            writer.send(b"written before the reader")
        with connection.reader("resource") as reader:
            assert reader.next(timeout=0.05) is None
            server.send([1, 2])
            contents = [reader.next(timeout=30) for _ in BODIES]
    return [content.body for content in contents if content is not None]


async def use_in_a_task(server: OddServer) -> list[bytes]:
    connecting = mtl.aio.connect(server.endpoint, profile="test", retry_deadline=server.odd.deadline)
    async with connecting as connection:
        async with connection.writer("resource") as writer:
            await writer.send(b"written before the reader")
        async with connection.reader("resource") as reader:
            assert await reader.next(timeout=0.05) is None
            server.send([1, 2])
            contents = [await reader.next(timeout=30) for _ in BODIES]
    return [content.body for content in contents if content is not None]


CLIENTS: dict[str, Callable[[OddServer], list[bytes]]] = {
    "blocking": use,
    "asyncio": lambda server: asyncio.run(use_in_a_task(server)),
}


@pytest.fixture(scope="module")
def other() -> Iterator[mtl.Connection]:
    """Another connection of the process."""
    with MinimalServer() as server, mtl.connect(server.endpoint, profile="test") as connection:
        yield connection


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("name", ODD)
def test_an_odd_reply_is_tolerated_or_a_named_error(
    name: str, client: Callable[[OddServer], list[bytes]], other: mtl.Connection
) -> None:
    odd = ODD[name]
    with OddServer(odd) as server:
        if odd.named is None:
            assert client(server) == BODIES
        else:
            with pytest.raises(MtlError, match=odd.named):
                client(server)
    assert other.ready().profiles == ["test"]

"""Ends of a client's connection, reader and writer; the door does not answer."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from mtl.doors.mbws.client import MbwsConnection, MbwsWriter
from mtl.doors.mbws.codec import Kind
from mtl.doors.mbws.link import LinkTarget, MbwsLink
from mtl.errors import Closed
from tests.support.aio import in_loop

NOBODY = LinkTarget("ws://127.0.0.1:1", Kind.BINARY, None, 1000.0)


class RecordingLink:
    """Sends nothing; `flushed` are the numbers of messages that `flush` waited for."""

    def __init__(self) -> None:
        self.sent = 0
        self.flushed: list[int] = []

    async def send(self, data: bytes | str, size: int) -> asyncio.Future[None]:
        self.sent += 1
        return asyncio.get_running_loop().create_future()

    async def flush(self, sent: int) -> None:
        self.flushed.append(sent)


@in_loop
async def test_leaving_a_connection_closes_it() -> None:
    connection = MbwsConnection(NOBODY)
    await connection.leave(failed=False)
    assert isinstance(connection.link.error, Closed)


@in_loop
async def test_a_reader_that_opens_ends_with_its_connection() -> None:
    connection = MbwsConnection(NOBODY)
    opening = asyncio.ensure_future(connection.reader("a").__aenter__())
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(Closed):
        async with asyncio.timeout(10):
            await opening


@pytest.mark.parametrize(("failed", "flushed"), [(False, [2]), (True, [])])
@in_loop
async def test_leaving_a_writer_flushes_its_messages_unless_its_block_failed(
    failed: bool, flushed: list[int]
) -> None:
    link = RecordingLink()
    writer = MbwsWriter(cast("MbwsLink", link), "a", Kind.BINARY)
    for body in (b"1", b"2"):
        await writer.send(body)
    await writer.leave(failed=failed)
    assert link.flushed == flushed

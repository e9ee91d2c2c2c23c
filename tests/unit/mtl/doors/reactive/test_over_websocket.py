from __future__ import annotations

import asyncio
from typing import cast

import pytest

from mtl.doors.reactive.over_websocket import WebSocketTransport
from mtl.doors.websocket import WebSocket
from tests.support.aio import in_loop


class SlowSocket:
    """A WebSocket whose peer reads nothing until `read` is done."""

    remote_address = ("192.0.2.1", 7)

    def __init__(self) -> None:
        self.read: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def drain(self) -> None:
        await self.read


def slow() -> tuple[WebSocketTransport, SlowSocket]:
    socket = SlowSocket()
    return WebSocketTransport(cast(WebSocket, socket)), socket


@pytest.mark.requirement("RS-01")
@in_loop
async def test_a_transport_is_drained_when_the_peer_has_read() -> None:
    transport, socket = slow()
    draining = asyncio.ensure_future(transport.wait_drained())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not draining.done()
    socket.read.set_result(None)
    await draining


@in_loop
async def test_a_transport_has_the_address_of_its_peer() -> None:
    transport, socket = slow()
    assert transport.peer == socket.remote_address


@in_loop
async def test_a_lost_connection_is_drained() -> None:
    transport, socket = slow()
    socket.read.set_exception(ConnectionResetError())
    await transport.wait_drained()

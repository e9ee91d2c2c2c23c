"""Doors as processes with consumers that never read: others are served, and the door's memory does not grow."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import zmq
import zmq.asyncio
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from mtl.client import aio
from mtl.doors.addresses import host_and_port
from mtl.doors.mbws import client as mbws
from mtl.doors.mbws.session import MBLWS
from mtl.doors.mc0 import client as mc0
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from mtl.doors.reactive import codec
from mtl.doors.reactive.over_websocket import SUBPROTOCOL
from mtl.testing import RunningBroker, broker
from tests.hostile.harness import MIB, own_memory
from tests.support.aio import in_loop
from tests.support.doors import await_line, door_process
from tests.support.raw_micromessage import micromessage_peer, subscribe_from_earliest

COUNT, OCTETS = 256, 256 << 10
SLOW = 3
"""Consumers that read nothing; what they are sent is three times COUNT * OCTETS, 192 MiB."""

MOST = 80
"""MiB that a door may take for them and for one that reads: windows, packs, and queues of its transport."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


# --- peers that ask for everything and read nothing, each after the first answer ----------------------------


@asynccontextmanager
async def tcp(endpoint: str, octets: bytes) -> AsyncIterator[None]:
    reader, writer = await asyncio.open_connection(*host_and_port(endpoint), limit=1)
    writer.write(octets)
    assert await reader.readexactly(1)
    try:
        yield
    finally:
        writer.transport.abort()


def slow_reactive(endpoint: str, name: str) -> AbstractAsyncContextManager[None]:
    return tcp(
        endpoint, codec.encode(codec.ClientHello()) + codec.encode(codec.Subscribe(name, 1, 2**63 - 1))
    )


def slow_micromessage(endpoint: str, name: str) -> AbstractAsyncContextManager[None]:
    return micromessage_peer(endpoint, subscribe_from_earliest([name]))


@asynccontextmanager
async def slow_reactive_websocket(endpoint: str, name: str) -> AsyncIterator[None]:
    async with connect(
        endpoint, subprotocols=[Subprotocol(SUBPROTOCOL)], max_queue=1, close_timeout=0
    ) as socket:
        await socket.send(
            codec.encode(codec.ClientHello()) + codec.encode(codec.Subscribe(name, 1, 2**63 - 1))
        )
        assert await socket.recv()
        yield


@asynccontextmanager
async def slow_mbws(endpoint: str, name: str) -> AsyncIterator[None]:
    url = f"{endpoint}?address={name}&from=earliest"
    async with connect(url, subprotocols=[Subprotocol(MBLWS)], max_queue=1, close_timeout=0):
        yield


@asynccontextmanager
async def slow_mc0(endpoint: str, name: str) -> AsyncIterator[None]:
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVHWM, 1)
    socket.connect(endpoint)
    try:
        await socket.send_multipart([b"SUB", b"ID", b"1", b"", name.encode()])
        assert (await socket.recv_multipart())[0] == b"OK"
        yield
    finally:
        socket.close()
        context.term()


DOORS: dict[
    str, tuple[str, Callable[[str], Any], Callable[[str, str], AbstractAsyncContextManager[None]]]
] = {
    "mbws": ("127.0.0.1:0", mbws.connect, slow_mbws),
    "mc0": ("tcp://127.0.0.1:0", mc0.connect, slow_mc0),
    "micromessage": ("127.0.0.1:0", micromessage.connect, slow_micromessage),
    "reactive": ("127.0.0.1:0", reactive.connect, slow_reactive),
    "reactive-websocket": ("ws://127.0.0.1:0", reactive.connect, slow_reactive_websocket),
}


@pytest.mark.parametrize("protocol", DOORS)
@in_loop
async def test_memory_for_stuck_consumers_is_bounded_by_windows(shared: RunningBroker, protocol: str) -> None:
    listen, client, slow = DOORS[protocol]
    address = f"topic/{protocol}" if protocol == "micromessage" else protocol
    arguments = [protocol.partition("-")[0], "--connect", shared.endpoint, "--listen", listen]
    async with AsyncExitStack() as stack:
        process = stack.enter_context(door_process(*arguments))
        assert process.stdout is not None
        endpoint = await_line(process.stdout.fileno(), r"ready at (\S+) ")
        broker_client = await stack.enter_async_context(aio.connect(shared.endpoint))
        await broker_client.create_resource(protocol)
        for _ in range(SLOW):
            await stack.enter_async_context(slow(endpoint, protocol))
        c = await stack.enter_async_context(client(endpoint))
        r = await stack.enter_async_context(c.reader(address))
        before = most = own_memory(process.pid)

        async def written() -> None:
            async with broker_client.writer(protocol) as w:
                for _ in range(COUNT):
                    await w.send(bytes(OCTETS))

        writing = asyncio.create_task(written())
        for _ in range(COUNT):
            assert len((await r.next()).body) == OCTETS
            most = max(most, own_memory(process.pid))
        await writing
        assert SLOW * COUNT * OCTETS > 2 * MOST * MIB
        assert most - before < MOST


def send_pings(peer: socket.socket, octets: int) -> None:
    pings = (b"\x89\xfd\0\0\0\0" + bytes(125)) * 1000
    for _ in range(octets // len(pings)):
        peer.sendall(pings)


def test_memory_for_answers_that_a_peer_does_not_read_is_bounded(shared: RunningBroker) -> None:
    """Pongs of a WebSocket: every other answer waits for the peer, or has a limit of its own."""
    with door_process("mbws", "--connect", shared.endpoint, "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        host, port = host_and_port(await_line(process.stdout.fileno(), r"ready at ws://(\S+) "))
        with socket.create_connection((host, port), timeout=1.0) as peer:
            peer.sendall(
                f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"Sec-WebSocket-Protocol: {MBLWS}\r\n\r\n".encode()
            )
            assert b" 101 " in peer.recv(4096)
            before = own_memory(process.pid)
            with pytest.raises(TimeoutError):  # the door does not read
                send_pings(peer, 64 * MIB)
            assert own_memory(process.pid) - before < 16

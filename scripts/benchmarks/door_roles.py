"""Roles of the doors: a door as a process, a client of it, and a plain echo server of the door's library."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import zmq
import zmq.asyncio
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from mtl.client import aio
from mtl.doors.addresses import host_and_port
from mtl.doors.config import DoorConfig
from mtl.doors.mbws import client as mbws
from mtl.doors.mc0 import client as mc0
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from mtl.doors.running import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Result = dict[str, object]
Work = Callable[[], Result]
Prepared = tuple[Result, Work]

HERE = "127.0.0.1:0"
LISTEN = {"reactive-websocket": f"ws://{HERE}"}
"""The transports that differ from the door's default."""

QUEUE = 1_000
"""Messages in flight of the ZeroMQ echo, libzmq's default."""

SIZE_OCTETS = 4
"""The octets of the length before each message of the echo on TCP, which has no message boundaries."""


# --- the doors ----------------------------------------------------------------------------------------------


def door(protocol: str, broker: str) -> Prepared:
    """The door of `protocol`, until it is killed; it reports its endpoint."""
    runner, stack = asyncio.Runner(), AsyncExitStack()

    async def opened() -> str:
        connection = await stack.enter_async_context(aio.connect(broker))
        config = DoorConfig(listen=LISTEN.get(protocol, HERE), create=("*",))
        started = await stack.enter_async_context(running(protocol.partition("-")[0], config, connection))
        return started.endpoint

    return {"endpoint": runner.run(opened())}, lambda: runner.run(_for_ever(stack))


CLIENTS: Mapping[str, Callable[[str], Any]] = {
    "mbws": mbws.connect,
    "mc0": mc0.connect,
    "micromessage": micromessage.connect,
    "reactive": reactive.connect,
    "reactive-websocket": reactive.connect,
}


def through_door(protocol: str, endpoint: str, resource: str, octets: int, count: int) -> Prepared:
    """Publish `count` contents with the door's own client, and read them on the same connection at the same time."""
    body = bytes(octets)
    address = f"topic/{resource}" if protocol == "micromessage" else resource
    runner = asyncio.Runner()
    stack = AsyncExitStack()

    async def opened() -> tuple[Any, Any]:
        connection = await stack.enter_async_context(CLIENTS[protocol](endpoint))
        reader = await stack.enter_async_context(connection.reader(address))
        return reader, await stack.enter_async_context(connection.writer(address))

    reader, writer = runner.run(opened())

    async def published() -> None:
        for _ in range(count):
            await writer.send(body)

    async def read() -> None:
        for _ in range(count):
            await reader.next()

    async def exchanged() -> Result:
        async with stack:
            return await _timed(published(), read())

    return {}, lambda: runner.run(exchanged())


# --- the echoes ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def _zmq_echo() -> AsyncIterator[str]:
    router = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
    router.set(zmq.ROUTER_MANDATORY, 1)  # a full queue waits instead of dropping
    router.set_hwm(QUEUE)
    port = router.bind_to_random_port("tcp://127.0.0.1")

    async def echo() -> None:
        while True:
            await router.send_multipart(await router.recv_multipart())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(echo())
        yield f"tcp://127.0.0.1:{port}"


@asynccontextmanager
async def _tcp_echo() -> AsyncIterator[str]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # the end
            while True:
                size = await reader.readexactly(SIZE_OCTETS)
                writer.write(size + await reader.readexactly(int.from_bytes(size)))
                await writer.drain()

    async with await asyncio.start_server(echo, *host_and_port(HERE)) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@asynccontextmanager
async def _websocket_echo() -> AsyncIterator[str]:
    async def echo(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            async for message in socket:
                await socket.send(message)

    async with serve(echo, *host_and_port(HERE), compression=None) as server:
        host, port = server.sockets[0].getsockname()
        yield f"ws://{host}:{port}"


ECHOES = {"asyncio": _tcp_echo, "pyzmq": _zmq_echo, "websockets": _websocket_echo}


def echo_server(library: str) -> Prepared:
    """An echo server, until it is killed; it reports its endpoint."""
    runner, stack = asyncio.Runner(), AsyncExitStack()

    async def opened() -> str:
        return await stack.enter_async_context(ECHOES[library]())

    return {"endpoint": runner.run(opened())}, lambda: runner.run(_for_ever(stack))


def through_echo(library: str, endpoint: str, octets: int, count: int) -> Prepared:
    """Send `count` messages, and receive them on the same connection at the same time."""
    body = bytes(octets)
    runner = asyncio.Runner()
    send, receive = runner.run(_PARTNERS[library](endpoint))

    async def sent() -> None:
        for _ in range(count):
            await send(body)

    async def received() -> None:
        for _ in range(count):
            await receive()

    return {}, lambda: runner.run(_timed(sent(), received()))


Partner = tuple[Callable[[bytes], Awaitable[object]], Callable[[], Awaitable[object]]]


async def _zmq_partner(endpoint: str) -> Partner:
    dealer = zmq.asyncio.Context.instance().socket(zmq.DEALER)
    dealer.set_hwm(QUEUE)
    dealer.connect(endpoint)
    return dealer.send, dealer.recv


async def _tcp_partner(endpoint: str) -> Partner:
    reader, writer = await asyncio.open_connection(*host_and_port(endpoint))

    async def send(body: bytes) -> None:
        writer.write(len(body).to_bytes(SIZE_OCTETS) + body)
        await writer.drain()

    async def receive() -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(SIZE_OCTETS)))

    return send, receive


async def _websocket_partner(endpoint: str) -> Partner:
    socket = await connect(endpoint, compression=None)
    return socket.send, socket.recv


_PARTNERS = {"asyncio": _tcp_partner, "pyzmq": _zmq_partner, "websockets": _websocket_partner}


async def _timed(*works: Coroutine[None, None, None]) -> Result:
    began = time.monotonic()
    await asyncio.gather(*works)
    return {"seconds": time.monotonic() - began}


async def _for_ever(stack: AsyncExitStack) -> Result:
    async with stack:
        await asyncio.Event().wait()
    return {}


ROLES: dict[str, Callable[..., Prepared]] = {
    "door": door,
    "through_door": through_door,
    "echo_server": echo_server,
    "through_echo": through_echo,
}

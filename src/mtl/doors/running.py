"""The life of a door: connect, listen, serve until it is stopped, flush."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Protocol

from mtl.client.aio import Connection
from mtl.client.settings import Settings
from mtl.doors.config import DoorConfig
from mtl.doors.limits import DOOR_STOP_S
from mtl.doors.logins import Logins
from mtl.doors.users import Bridges
from mtl.errors import OptionError

log = logging.getLogger("mtl.doors")

DOORS = {
    "mbws": "mtl.doors.mbws.door",
    "mc0": "mtl.doors.mc0.door",
    "micromessage": "mtl.doors.micromessage.door",
    "reactive": "mtl.doors.reactive.door",
}
"""Name -> the module with its `listen`."""


class Door(Protocol):
    """A listening server. `endpoint` is its address in the form that its clients use."""

    endpoint: str

    async def stop(self) -> None:
        """Stop listening, notify the peers if the protocol has a message for it, and end their tasks."""


class Listen(Protocol):
    """`listen` of a door's module."""

    async def __call__(self, config: DoorConfig, bridges: Bridges) -> Door:
        """Start a door. Raises `OptionError` for an address that it cannot listen on."""


@asynccontextmanager
async def running(name: str, config: DoorConfig, connection: Connection) -> AsyncIterator[Door]:
    """A door that serves during the block. At its end contents from peers are flushed, within DOOR_STOP_S."""
    config.check(name, connection.settings)
    bridges = Bridges(connection, Logins(connection.settings), config.create)
    try:
        listen: Listen = import_module(DOORS[name]).listen
        door = await listen(config, bridges)
    except ModuleNotFoundError as missing:
        raise OptionError(
            f"door {name!r} needs {missing.name}: pip install 'pyspark-mtl[doors]'"
        ) from missing
    log.info("door %s listens at %s", name, door.endpoint)
    try:
        yield door
    finally:
        try:
            async with asyncio.timeout(DOOR_STOP_S):
                await door.stop()
                await bridges.close()
                await bridges.leave()
        except TimeoutError:
            log.warning("door %s: the broker does not answer; unconfirmed contents are dropped", name)
            await bridges.drop()
            await connection.drop()


async def serve(
    name: str,
    config: DoorConfig,
    broker: Settings,
    print_line: Callable[[str], None],
    *,
    until_eof: bool = False,
) -> None:
    """Run a door until SIGTERM or SIGINT, with `until_eof` also until standard input ends; reports when it is ready.

    Raises `OptionError`, `Unreachable` if no broker answers within its `retry_deadline`, `Refused` if the broker
    does not admit the door.
    """
    config.check(name, broker)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if until_eof:
        loop.add_reader(sys.stdin.fileno(), _read_to_end, stopping.set)
    logins = Logins(broker)
    if not await logins.wait(stopping, broker.retry_deadline):
        return
    async with logins.own() as connection, running(name, config, connection) as door:
        print_line(f"mtl door {name} ready at {door.endpoint} (broker {broker.endpoint}, pid {os.getpid()})")
        await stopping.wait()


def _read_to_end(ended: Callable[[], None]) -> None:
    """Discard readable standard input; call `ended` at its end."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        ended()

"""The life of a door: connect, listen, serve until told to stop, and leave nothing half done."""

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

from mtl.client import aio
from mtl.client.aio import Connection
from mtl.doors.bridge import Bridge
from mtl.doors.config import DoorConfig
from mtl.doors.limits import DOOR_STOP_S
from mtl.errors import MtlError, OptionError

log = logging.getLogger("mtl.doors")

DOORS = {
    "mbws": "mtl.doors.mbws.door",
    "mc0": "mtl.doors.mc0.door",
    "micromessage": "mtl.doors.micromessage.door",
    "reactive": "mtl.doors.reactive.door",
}
"""Name -> the module with its `listen`."""


class Door(Protocol):
    """A server that listens. `endpoint` is where, in the form that its clients use."""

    endpoint: str

    async def stop(self) -> None:
        """Listen no longer, tell the peers as far as the protocol has words for it, and end their tasks."""


class Listen(Protocol):
    """`listen` of a door's module."""

    async def __call__(self, config: DoorConfig, bridge: Bridge) -> Door:
        """A door that listens. Raises `OptionError` for a place that cannot be listened on."""


@asynccontextmanager
async def running(name: str, config: DoorConfig, connection: Connection) -> AsyncIterator[Door]:
    """A door that serves during the block. What was taken in is flushed at its end, within DOOR_STOP_S."""
    if name not in DOORS:
        raise OptionError(f"there is no door {name!r}; there are {', '.join(DOORS)}")
    bridge = Bridge(connection, config.create)
    try:
        listen: Listen = import_module(DOORS[name]).listen
        door = await listen(config, bridge)
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
                await bridge.close()
        except TimeoutError:
            log.warning("door %s: the broker does not answer; what it has not confirmed is given up", name)
            await connection.drop()


async def serve(
    name: str, config: DoorConfig, endpoint: str, say: Callable[[str], None], *, until_eof: bool = False
) -> None:
    """Run a door until SIGTERM or SIGINT, with `until_eof` also until standard input ends; says when it is ready.

    Raises `OptionError`, `Unreachable` when there is no broker at `endpoint`, `Refused` when it lets no door in.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if until_eof:
        loop.add_reader(sys.stdin.fileno(), _read_to_end, stopping.set)
    connecting = aio.connect(
        endpoint,
        virtual_host=config.virtual_host,
        user=config.user,
        password_file=config.password_file,
        password_env=config.password_env,
        sasl_mechanism=config.sasl_mechanism,
        curve_server_key=config.curve_server_key,
        curve_key_file=config.curve_client_key_file,
    )
    async with connecting as connection, running(name, config, connection) as door:
        say(f"mtl door {name} ready at {door.endpoint} (broker {endpoint}, pid {os.getpid()})")
        await stopping.wait()


def _read_to_end(ended: Callable[[], None]) -> None:
    """Standard input has something to say; only its end is of interest."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        ended()


def failure(error: BaseException) -> str:
    """What a peer is told of an error: its own words for ours, nothing but the kind for a bug."""
    if isinstance(error, MtlError):
        return str(error)
    log.error("a door failed", exc_info=error)
    return f"internal error ({type(error).__name__})"

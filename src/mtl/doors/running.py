"""The life of a door: connect, listen, serve until it is stopped, flush."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Protocol, TypeVar

from mtl.client.aio import Connection
from mtl.client.settings import Settings
from mtl.doors.config import DoorConfig
from mtl.doors.limits import DOOR_INTERRUPT_S, DOOR_STOP_S
from mtl.doors.logins import Logins
from mtl.doors.pools import Shares
from mtl.doors.users import Bridges
from mtl.errors import OptionError
from mtl.net.descriptors import raise_file_limit

log = logging.getLogger("mtl.doors")

T = TypeVar("T")

DOORS = {
    "mbws": "mtl.doors.mbws.door",
    "mc0": "mtl.doors.mc0.door",
    "micromessage": "mtl.doors.micromessage.door",
    "reactive": "mtl.doors.reactive.door",
}
"""Name -> the module with its `listen`."""


class Door(Protocol):
    """A listening server. `endpoint` is its address in the form that its clients use, `bridges` are the users of its
    peers and the pools that they share.
    """

    endpoint: str
    bridges: Bridges

    async def stop(self) -> None:
        """Stop listening, notify the peers if the protocol has a message for it, and end their tasks."""


class Listen(Protocol):
    """`listen` of a door's module."""

    async def __call__(self, config: DoorConfig, bridges: Bridges) -> Door:
        """Start a door. Raises `OptionError` for an address that it cannot listen on."""


class StopRequest(asyncio.Event):
    """Set when the door has to stop. `patience` is how long it may wait for the broker then, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.patience = DOOR_STOP_S

    def interrupt(self) -> None:
        """Ctrl-C: a person waits."""
        self.patience = DOOR_INTERRUPT_S
        self.set()

    async def unless_set(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, which is cancelled if a stop is requested before: then None."""
        task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            stopped.cancel()
            task.cancel()
            await asyncio.wait({task})


@asynccontextmanager
async def running(
    name: str, config: DoorConfig, connection: Connection, stop: StopRequest | None = None
) -> AsyncIterator[Door]:
    """A door that serves during the block. At its end contents from peers are flushed, within the patience of `stop`,
    by default DOOR_STOP_S.
    """
    config.check(name, connection.settings)
    shares = Shares(config.max_sessions, config.quotas, local=config.address(name).local)
    bridges = Bridges(connection, Logins(connection.settings), shares, config.create)
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
        stopping = asyncio.ensure_future(_stop(door, bridges))
        if not (await asyncio.wait({stopping}, timeout=DOOR_STOP_S if stop is None else stop.patience))[0]:
            log.warning("door %s: the broker does not answer; unconfirmed contents are dropped", name)
            await bridges.drop()  # first: what waits for the broker ends
            await connection.drop()
            stopping.cancel()
            await asyncio.wait({stopping})
        elif (failed := stopping.exception()) is not None:
            raise failed


async def _stop(door: Door, bridges: Bridges) -> None:
    await door.stop()
    await bridges.close()
    await bridges.leave()


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
    raise_file_limit()
    loop = asyncio.get_running_loop()
    stop = StopRequest()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.interrupt)
    if until_eof:
        loop.add_reader(sys.stdin.fileno(), _read_to_end, stop.set)
    connection = await stop.unless_set(Logins(broker).first(broker.retry_deadline))
    if connection is None:
        return
    try:
        async with running(name, config, connection, stop) as door:
            print_line(
                f"mtl door {name} ready at {door.endpoint} (broker {broker.endpoint}, pid {os.getpid()})"
            )
            await stop.wait()
    finally:
        await connection.drop()  # at the end of `running` it has nothing under way


def _read_to_end(ended: Callable[[], None]) -> None:
    """Discard readable standard input; call `ended` at its end."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        ended()

"""The clients of the doors with doors whose messages are malformed or odd (test_odd_servers.py has the one of mc0).

Whatever the other end sends, and wherever it ends the connection: each call ends, with a named error. If a message is
malformed, the error says so, instead of "no answer".
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from mtl.doors.mbws import client as mbws
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from mtl.errors import ClientFailed, MtlError
from tests.bridging.ends import DOORS
from tests.support.odd_doors import NAMED, OddDoor, odd_doors

DEADLINE_S = 0.3
"""The clients' deadline for a door that is gone."""

PATIENCE_S = 15.0
"""Seconds for all calls of a client, on a loaded machine."""

CLIENTS: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "mbws": lambda place: mbws.connect(place, retry_deadline=DEADLINE_S),
    "micromessage": lambda place: micromessage.connect(place, retry_deadline=DEADLINE_S),
    "reactive": lambda place: reactive.connect(place, timeout=PATIENCE_S / 2),
}


SCHEMES = {"mbws": "ws://", "mc0": "tcp://"}


async def use(door: OddDoor) -> list[Exception]:
    """Write and read with a client until it fails. Returns the errors of its calls."""
    async with door.serving() as place:
        try:
            async with asyncio.timeout(PATIENCE_S), CLIENTS[door.protocol](place) as connection:
                calls = _read(connection), _write(connection)
                found = await asyncio.gather(*calls, return_exceptions=True)
        except Exception as error:  # noqa: BLE001 they are compared below
            return [error]
    return [error for error in found if isinstance(error, Exception)]


async def _read(connection: Any) -> None:
    async with connection.reader("topic/r") as reader:
        while True:
            await reader.next()


async def _write(connection: Any) -> None:
    async with connection.writer("topic/r") as writer:
        await writer.send(b"x")


def _fault(errors: list[Exception], named: str | None) -> str | None:
    """Why these are not the errors that a user can understand."""
    if not errors:
        return "no error"
    for error in errors:
        if not isinstance(error, MtlError) or isinstance(error, ClientFailed):
            return repr(error)
    if named is not None and not all(
        named in str(error) and "no answer" not in str(error) for error in errors
    ):
        return f"{named!r} is not named: {errors}"
    return None


@pytest.mark.parametrize("protocol", CLIENTS)
def test_whatever_a_door_sends_each_call_ends_with_a_named_error(protocol: str) -> None:
    doors, named = odd_doors(protocol), NAMED[protocol]
    assert named.keys() <= doors.keys()

    async def use_all() -> dict[str, str]:
        errors = await asyncio.gather(*map(use, doors.values()))
        faults = {name: _fault(found, named.get(name)) for name, found in zip(doors, errors, strict=True)}
        return {name: fault for name, fault in faults.items() if fault is not None}

    assert asyncio.run(use_all()) == {}


@pytest.mark.parametrize("name", DOORS)
def test_a_call_ends_if_the_event_loop_cancels_the_tasks_of_its_client(name: str) -> None:
    """As asyncio.run does at its end, after a second Ctrl-C: the call's own clean-up must not wait for them."""

    async def cancel_all_others() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            place = f"{SCHEMES.get(name, '')}127.0.0.1:{listening.getsockname()[1]}"

            async def connect() -> None:
                async with DOORS[name].connect(place):
                    pass

            call = asyncio.create_task(connect())
            silent, _ = await asyncio.get_running_loop().sock_accept(listening)
            with silent:
                while not (others := asyncio.all_tasks() - {call, asyncio.current_task()}):  # noqa: ASYNC110 no event tells
                    await asyncio.sleep(0)
                for task in others:
                    task.cancel()
                with pytest.raises(MtlError):
                    await asyncio.wait_for(call, PATIENCE_S)

    asyncio.run(cancel_all_others())

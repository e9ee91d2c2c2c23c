"""The clients of the doors with doors whose messages are malformed or odd (test_odd_servers.py has the one of mc0).

Whatever the other end sends, and wherever it ends the connection: each call ends, with a named error. If a message is
malformed, the error says so, instead of "no answer".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from mtl.doors.mbws import client as mbws
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from mtl.errors import ClientFailed, MtlError
from tests.support.odd_doors import NAMED, OddDoor, odd_doors

DEADLINE_S = 0.3
"""The clients' deadline for a door that is gone."""

PATIENCE_S = 60.0
"""Seconds for all calls of a client, on a loaded machine."""

CLIENTS: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "mbws": lambda place: mbws.connect(place, retry_deadline=DEADLINE_S),
    "micromessage": lambda place: micromessage.connect(place, retry_deadline=DEADLINE_S),
    "reactive": lambda place: reactive.connect(place, timeout=PATIENCE_S / 2),
}


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

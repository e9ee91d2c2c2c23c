"""A door in the test's own event loop, in front of a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mtl.client import aio
from mtl.client.aio import Connection
from mtl.doors.config import DoorConfig
from mtl.doors.running import Door, running

BODIES = [b"", b"\x00\xff" * 8, b"\x00" + bytes(range(256)) * 4096, "größer ✓".encode()]
"""Empty, binary, 1 MiB and one octet more, Unicode."""

PROPERTIES = {"kind": "new", "ü": "✓", "empty": "", "content-type": "text/plain; charset=utf-8"}


@asynccontextmanager
async def door(
    name: str, broker: str, listen: str, *, max_sessions: int = 100, **members: Any
) -> AsyncIterator[tuple[Door, Connection]]:
    """The door, and a client of the broker behind it. `members` are the configuration's."""
    config = DoorConfig(listen=listen, max_sessions=max_sessions, **members)
    async with (
        aio.connect(broker, request_timeout=2.0) as inner,
        aio.connect(broker) as beside,
        running(name, config, inner) as one,
    ):
        yield one, beside

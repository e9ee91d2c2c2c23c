"""A door in front of a real broker: in the test's own event loop, or as a process."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from mtl.client import aio
from mtl.client.aio import Connection
from mtl.doors.config import DoorConfig
from mtl.doors.running import Door, running

BODIES = [b"", b"\x00\xff" * 8, b"\x00" + bytes(range(256)) * 4096, "größer ✓".encode()]
"""Empty, binary, 1 MiB and one octet more, Unicode."""

PROPERTIES = {"kind": "new", "ü": "✓", "empty": "", "content-type": "text/plain; charset=utf-8"}

PATIENCE_S = 20.0
"""The timeout for a line of a process, or its end."""


@asynccontextmanager
async def door(
    name: str,
    broker: str,
    listen: str,
    *,
    max_sessions: int = 100,
    create: Sequence[str] = ("*",),
    **members: Any,
) -> AsyncIterator[tuple[Door, Connection]]:
    """The door, and a client of its broker. `members` are those of the door's configuration."""
    config = DoorConfig(listen=listen, max_sessions=max_sessions, create=tuple(create), **members)
    async with (
        aio.connect(broker, request_timeout=2.0) as inner,
        aio.connect(broker) as broker_client,
        running(name, config, inner) as opened,
    ):
        yield opened, broker_client


def await_line(stream: int, pattern: str, patience_s: float = PATIENCE_S) -> str:
    """The pattern's group in the next lines of a process."""
    text, deadline = "", time.monotonic() + patience_s
    while not (found := re.search(pattern, text)):
        assert select.select([stream], [], [], deadline - time.monotonic())[0], text
        more = os.read(stream, 4096).decode()
        assert more, text
        text += more
    return found[1]


@contextmanager
def door_process(*arguments: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """`mtl door` with these arguments, which creates any resource; `before` has the options of all commands, such as
    the credentials for the broker.
    """
    command = [sys.executable, "-m", "mtl.cli.main", *before, "door", "--create", "*", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

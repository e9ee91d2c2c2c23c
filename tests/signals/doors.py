"""python -m tests.signals.doors ENDPOINT: the four doors of a broker, in one process, until standard input ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

from tests.bridging.ends import DOORS
from tests.signals.storm import ROOT
from tests.support.doors import door

VARIABLE = "MTL_SIGNALS_DOORS"
"""The environment variable with the endpoints of the doors by their names, as JSON."""


@contextmanager
def serving(endpoint: str) -> Iterator[None]:
    """The doors of a broker; during the block their endpoints are in the environment."""
    command = [sys.executable, "-m", "tests.signals.doors", endpoint]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            os.environ[VARIABLE] = process.stdout.readline()
            yield
        finally:
            del os.environ[VARIABLE]
            process.kill()


def place(name: str) -> str:
    """The endpoint of a door, in the block or in a process that was started in it."""
    found: dict[str, str] = json.loads(os.environ[VARIABLE])
    return found[name]


async def _serve(endpoint: str) -> None:
    async with AsyncExitStack() as stack:
        places = {}
        for name, end in DOORS.items():
            opened, _ = await stack.enter_async_context(door(name, endpoint, end.listen))
            places[name] = opened.endpoint
        sys.stdout.write(json.dumps(places) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))

"""A process that writes one content and, after a line on standard input, three more. It is suspended in between.

python -m tests.support.stopped_writer ENDPOINT plain|packed|shared|aio
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import mtl
from tests.support.contents import batch, large_packs

PATIENCE = {"request_timeout": 2.0, "retry_deadline": 10.0, "heartbeat": 5.0}
"""The heartbeat is the default: with the broker's short one the client itself would soon detect the stop."""


def write(endpoint: str, how: str) -> None:
    """Write with the blocking client."""
    with (
        mtl.connect(endpoint, **PATIENCE) as connection,  # type: ignore[arg-type]
        connection.writer("orders", packed=how != "plain") as writer,
    ):
        large = large_packs(4)
        _send(writer, how, large[:1])
        writer.flush()
        _print_line("ready")
        sys.stdin.readline()
        _send(writer, how, large[1:])
        writer.flush()
        _print_line("flushed")


def _print_line(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _send(writer: Any, how: str, packs: list[list[bytes]]) -> None:
    for number, pack in enumerate(packs):
        if how == "shared":
            writer.send_pack(batch(pack))
        else:
            writer.send(b"%d" % number)


async def write_in_a_loop(endpoint: str) -> None:
    """Write with the asyncio client."""
    async with mtl.aio.connect(endpoint, **PATIENCE) as connection, connection.writer("orders") as writer:  # type: ignore[arg-type]
        await writer.send(b"0")
        await writer.flush()
        _print_line("ready")
        await asyncio.to_thread(sys.stdin.readline)
        for number in range(3):
            await writer.send(b"%d" % number)
        await writer.flush()
        _print_line("flushed")


if __name__ == "__main__":
    _, where, kind = sys.argv
    if kind == "aio":
        asyncio.run(write_in_a_loop(where))
    else:
        write(where, kind)

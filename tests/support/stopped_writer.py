"""A process that writes one content and, after a line on standard input, three more. It is suspended in between.

python -m tests.support.stopped_writer ENDPOINT plain|packed|aio
"""

from __future__ import annotations

import asyncio
import sys

import mtl

PATIENCE = {"request_timeout": 2.0, "retry_deadline": 10.0, "heartbeat": 5.0}
"""The heartbeat is the default: with the broker's short one the client itself would soon detect the stop."""


def write(endpoint: str, how: str) -> None:
    """Write with the blocking client."""
    with (
        mtl.connect(endpoint, **PATIENCE) as connection,  # type: ignore[arg-type]
        connection.writer("orders", packed=how == "packed") as writer,
    ):
        writer.send(b"0")
        writer.flush()
        _print_line("ready")
        sys.stdin.readline()
        for number in range(3):
            writer.send(b"%d" % number)
        writer.flush()
        _print_line("flushed")


def _print_line(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


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

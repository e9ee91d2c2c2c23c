"""A process whose event loops end without closing their connections.

python -m tests.support.unclosed_client ENDPOINT
"""

from __future__ import annotations

import asyncio
import sys

import mtl


async def leave_open(endpoint: str) -> object:
    """Leave a reader and a writer open at the end of the event loop."""
    connection = await mtl.aio.connect(endpoint)
    await connection.create_resource("orders", exist_ok=True)
    reader = await connection.reader("orders")
    writer = await connection.writer("orders")
    await writer.send(b"1")
    await writer.flush()
    assert await reader.next() is not None
    await writer.send(b"2")
    return connection, reader, writer


if __name__ == "__main__":
    kept = asyncio.run(leave_open(sys.argv[1]))
    asyncio.run(leave_open(sys.argv[1]))
    sys.stdout.write("ended\n")

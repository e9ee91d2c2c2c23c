"""The client for asyncio: the interface of `mtl.connect` with awaitable methods.

    async with mtl.aio.connect("tcp://127.0.0.1:5975") as c:
        async with c.writer("orders") as w:
            number = await w.send(b"...", {"kind": "new"})  # waits only for room in the window
            await w.settled(number)                         # durable
        async with c.reader("orders", start="earliest") as r:
            async for content in r: ...

It has no threads. Sessions, flows, heartbeats and recovery are those of the blocking client (`mtl.client.control`,
`flow`, `reader_part`, `writer_part` and others). The event loop runs them in rounds (`loop`), and tasks wait for
futures (`waiting`). A connection belongs to the event loop in which it was opened.

A login by password computes the key (PBKDF2) in the event loop, which takes about 15 ms.
"""

from __future__ import annotations

from mtl.client.aio.connection import Connection, connect, open_connection
from mtl.client.aio.consumer import Consumer
from mtl.client.aio.reader import Reader
from mtl.client.aio.writer import Writer

__all__ = ["Connection", "Consumer", "Reader", "Writer", "connect", "open_connection"]

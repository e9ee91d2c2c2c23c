"""The client for asyncio: the interface of `mtl.connect` with awaitable methods.

    async with mtl.aio.connect("tcp://127.0.0.1:5975") as c:
        async with c.writer("orders") as w:
            number = await w.send(b"...", {"kind": "new"})  # waits only for room in the window
            await w.settled(number)                         # durable
        async with c.reader("orders", start="earliest") as r:
            async for content in r: ...

It is the same client: sessions, sockets, heartbeats and recovery run in the process's one IO thread (`mtl.client.io`).
Only waiting differs. Contents and Confirms, which are many, ring a `Bell`: the IO thread wakes the event loop by
call_soon_threadsafe, once for many arrivals. Requests (a lease, a description, a close), which are few, wait for their
reply in a small pool of threads.
"""

from __future__ import annotations

from mtl.client.aio.connection import Connection, connect, open_connection
from mtl.client.aio.consumer import Consumer
from mtl.client.aio.reader import Reader
from mtl.client.aio.writer import Writer

__all__ = ["Connection", "Consumer", "Reader", "Writer", "connect", "open_connection"]

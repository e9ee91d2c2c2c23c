"""ZeroMQ RFC 11/MTL: wire format, sessions, client and a durable broker.

with mtl.connect("tcp://127.0.0.1:5975") as c:
    with c.writer("orders") as w:
        w.send(b"...", {"kind": "new"})
    for content in c.reader("orders", start="earliest"):
        ...

`mtl.aio` is the same for asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtl import aio
    from mtl.client import (
        Connection,
        Consumer,
        Content,
        Description,
        Pack,
        QueuedContent,
        Reader,
        Retention,
        StageSpec,
        Writer,
        connect,
    )

__version__ = "0.1.0"

__all__ = [
    "Connection",
    "Consumer",
    "Content",
    "Description",
    "Pack",
    "QueuedContent",
    "Reader",
    "Retention",
    "StageSpec",
    "Writer",
    "__version__",
    "aio",
    "connect",
]


def __getattr__(name: str) -> Any:
    """Load the client when it is first asked for: importing `mtl` alone loads neither ZeroMQ nor Arrow."""
    if name in __all__:
        if name == "aio":
            return import_module("mtl.aio")
        return getattr(import_module("mtl.client"), name)
    raise AttributeError(f"module 'mtl' has no attribute {name!r}")

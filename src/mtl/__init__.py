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
    from mtl.client.connection import Connection, connect
    from mtl.client.consumer import Consumer
    from mtl.client.consuming import QueuedContent
    from mtl.client.contents import Content, Pack
    from mtl.client.reader import Reader
    from mtl.client.writer import Writer
    from mtl.wire.replies import Description, Retention
    from mtl.wire.requests import StageSpec

__version__ = "0.1.0"

_MODULES = {
    "Connection": "mtl.client.connection",
    "Consumer": "mtl.client.consumer",
    "Content": "mtl.client.contents",
    "Description": "mtl.wire.replies",
    "Pack": "mtl.client.contents",
    "QueuedContent": "mtl.client.consuming",
    "Reader": "mtl.client.reader",
    "Retention": "mtl.wire.replies",
    "StageSpec": "mtl.wire.requests",
    "Writer": "mtl.client.writer",
    "connect": "mtl.client.connection",
}

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
    """Load a name when it is first asked for: importing `mtl` alone loads neither ZeroMQ nor Arrow."""
    if name == "aio":
        return import_module("mtl.aio")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'mtl' has no attribute {name!r}")

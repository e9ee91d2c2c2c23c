"""The client: `connect` to a broker, then read and write.

The names below are loaded when they are first asked for: `mtl.client.settings` alone needs no ZeroMQ.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtl.client.connection import Connection, Watch, connect
    from mtl.client.consumer import Consumer
    from mtl.client.consuming import QueuedContent
    from mtl.client.contents import Content, Pack
    from mtl.client.reader import Reader
    from mtl.client.writer import Writer
    from mtl.wire.control import Description, Retention, StageSpec

_MODULES = {
    "Connection": "mtl.client.connection",
    "Consumer": "mtl.client.consumer",
    "Content": "mtl.client.contents",
    "Description": "mtl.wire.control",
    "Pack": "mtl.client.contents",
    "QueuedContent": "mtl.client.consuming",
    "Reader": "mtl.client.reader",
    "Retention": "mtl.wire.control",
    "StageSpec": "mtl.wire.control",
    "Watch": "mtl.client.connection",
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
    "Watch",
    "Writer",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'mtl.client' has no attribute {name!r}")

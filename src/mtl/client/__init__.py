"""The client: `connect` to a broker, then read and write."""

from __future__ import annotations

from mtl.client.connection import Connection, connect
from mtl.client.consumer import Consumer, QueuedContent
from mtl.client.contents import Content, Pack
from mtl.client.reader import Reader
from mtl.client.resources import Watch
from mtl.client.writer import Writer
from mtl.wire.control import Committed as CommitResult
from mtl.wire.control import Description, Retention, Sealed, StageSpec

__all__ = [
    "CommitResult",
    "Connection",
    "Consumer",
    "Content",
    "Description",
    "Pack",
    "QueuedContent",
    "Reader",
    "Retention",
    "Sealed",
    "StageSpec",
    "Watch",
    "Writer",
    "connect",
]

"""The client for asyncio (`mtl.client.aio`), under the name that applications import."""

from __future__ import annotations

from mtl.client.aio import Connection, Consumer, Reader, Writer, connect

__all__ = ["Connection", "Consumer", "Reader", "Writer", "connect"]

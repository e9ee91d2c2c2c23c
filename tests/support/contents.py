"""Numbered contents, written and read through a connection: the bodies show losses, duplicates and wrong order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mtl.client.connection import Connection
from mtl.client.contents import Content
from mtl.client.reader import Reader
from mtl.client.writer import Writer
from mtl.limits import LOCAL_FROM
from mtl.wire.packs import SCHEMA


def bodies(reader: Reader) -> list[bytes]:
    with reader:
        return [content.body for content in reader]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def send(writer: Writer, count: int, first: int = 0) -> None:
    for body in numbered(count, first):
        writer.send(body)


def write(
    connection: Connection, count: int, *, packed: bool = False, first: int = 0, name: str = "orders"
) -> None:
    with connection.writer(name, packed=packed) as writer:
        for body in numbered(count, first):
            writer.send(body)


def batch(values: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary())], schema=SCHEMA
    )


def visible(connection: Connection, resource: str) -> list[Content]:
    """All visible contents, in order."""
    end = connection.describe([resource])[resource].next
    with connection.reader(resource, start="earliest", until=end) as reader:
        return list(reader)


# --- for Spark, which shows them as text --------------------------------------------------------------------


def numbers(first: int, last: int) -> list[str]:
    """Bodies: "first" to "last"."""
    return [str(number) for number in range(first, last + 1)]


def publish(connection: Connection, resource: str, *bodies: str | bytes, **properties: Any) -> None:
    """Contents with these bodies, durable when this returns; `properties` are those of each."""
    with connection.writer(resource, packed=True) as writer:
        for body in bodies:
            writer.send(body.encode() if isinstance(body, str) else body, properties or None)


def texts(connection: Connection, resource: str) -> list[str]:
    """The bodies of all visible contents, in order."""
    return [content.body.decode() for content in visible(connection, resource)]


LARGE_PACK = 100
"""Contents of a large pack."""

LARGE_BODY = LOCAL_FROM // LARGE_PACK + 100
"""Octets of each body: a pack is larger than the limit above which it need not pass a socket on one machine."""


def large_packs(number: int, first: int = 0, octets: int = LARGE_BODY) -> list[list[bytes]]:
    """`number` packs of bodies that are all different."""
    return [
        [b"%d-%d" % (pack, index) + bytes(octets) for index in range(LARGE_PACK)]
        for pack in range(first, first + number)
    ]


def write_packs(connection: Connection, packs: list[list[bytes]], **options: Any) -> list[bytes]:
    """Publish each as one pack into `orders`; returns all bodies in order."""
    with connection.writer("orders", packed=True, **options) as writer:
        for values in packs:
            writer.send_pack(batch(values))
    return [body for values in packs for body in values]

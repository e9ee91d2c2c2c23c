"""Numbered contents, written and read through a connection: the bodies say what was lost, doubled or out of order."""

from __future__ import annotations

import pyarrow as pa

from mtl.client import Connection, Reader, Writer
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

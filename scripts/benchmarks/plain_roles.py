"""Roles that are clients of the broker, with this project's client."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import mtl
from benchmarks.looking import read_all_octets
from mtl.wire.packs import SCHEMA

if TYPE_CHECKING:
    from mtl.client.connection import Connection
    from mtl.client.reader import Reader
    from mtl.client.writer import Writer

Result = dict[str, object]
Work = Callable[[], Result]
Prepared = tuple[Result, Work]
"""The facts to report when ready, and the work after the start signal."""

NAMES_PER_LEASE = 500
"""Packs in flight of writers to very many resources; the broker admits twice as many."""


def pack_of(rows: int, octets: int) -> pa.RecordBatch:
    """A batch of `rows` contents of `octets` octets each, as a Spark task sends them."""
    return pa.record_batch(
        [pa.nulls(rows, pa.binary()), pa.array([bytes(octets)] * rows, pa.binary())], schema=SCHEMA
    )


def publish(
    endpoint: str,
    resources: Sequence[str],
    octets: int,
    count: int,
    rows: int = 0,
) -> Prepared:
    """Publish `count` contents in all, in turn to each resource: as packs of `rows`, or one by one if `rows` is 0. The
    leases are closed: a process that only ends leaves them to the broker for a minute.
    """
    connection = mtl.connect(endpoint)
    writers = _writers(connection, resources, packed=bool(rows))
    body, pack = bytes(octets), pack_of(rows, octets) if rows else None
    sends = count // rows if rows else count

    def work() -> Result:
        began = time.monotonic()
        for writer, resource in islice(cycle(writers), sends):
            if pack is None:
                writer.send(body, resource=resource)
            else:
                writer.send_pack(pack, resource=resource)
        for writer in {id(writer): writer for writer, _ in writers}.values():
            writer.flush()
        ended = time.monotonic()
        connection.close()
        return {"began": began, "ended": ended, "count": sends * (rows or 1)}

    return {}, work


def _writers(connection: Connection, resources: Sequence[str], *, packed: bool) -> list[tuple[Writer, str]]:
    """The senders of each resource."""
    writers = []
    for at in range(0, len(resources), NAMES_PER_LEASE):
        names = list(resources[at : at + NAMES_PER_LEASE])
        writer = connection.writer(names, packed=packed)
        writers += [(writer, name) for name in names]
    return writers


def read(
    endpoint: str,
    resource: str,
    count: int,
    *,
    packed: bool,
    start: int | str = "earliest",
    local_reads: bool = True,
) -> Prepared:
    """Read `count` contents of a resource; packs from the broker's files, unless `local_reads` is off."""
    connection = mtl.connect(endpoint, local_reads=local_reads)
    there = connection.describe([resource])[resource]
    first = there.earliest if start == "earliest" else there.next
    reader = connection.reader(resource, start=first, until=first + count, packed=packed)
    read_all = partial(_read_packs, read_octets=read_all_octets()) if packed else _read_contents

    def work() -> Result:
        began = time.monotonic()
        contents, octets = read_all(reader)
        ended = time.monotonic()
        reader.close()
        return {"began": began, "ended": ended, "count": contents, "octets": octets}

    return {}, work


def _read_packs(reader: Reader, read_octets: Callable[[Any], int]) -> tuple[int, int]:
    contents = octets = 0
    for pack in reader.batches():
        contents += pack.count
        octets += read_octets(pack.batch.column(1).buffers()[2])
    return contents, octets


def _read_contents(reader: Reader) -> tuple[int, int]:
    contents = octets = 0
    for content in reader:
        contents += 1
        octets += len(content.body)
    return contents, octets


def confirm(endpoint: str, resource: str, octets: int, count: int) -> Prepared:
    """The time from `send` to Confirm of each of `count` contents, sent one after the other."""
    connection = mtl.connect(endpoint)
    writer = connection.writer(resource)
    body = bytes(octets)

    def work() -> Result:
        latencies = []
        for _ in range(count):
            began = time.perf_counter()
            writer.send(body)
            writer.flush()
            latencies.append(time.perf_counter() - began)
        return {"latencies": latencies}

    return {}, work


def load(endpoint: str, resource: str, octets: int, rows: int) -> Prepared:
    """Publish packs as fast as the broker accepts them, until ended."""
    connection = mtl.connect(endpoint)
    writer = connection.writer(resource, packed=True)
    pack = pack_of(rows, octets)

    def work() -> Result:
        while True:
            writer.send_pack(pack)

    return {}, work


def crowd(endpoint: str, resource: str, connections: int) -> Prepared:
    """Connections that wait for contents that never come, until ended."""
    opened = [mtl.connect(endpoint) for _ in range(connections)]
    readers = [connection.reader(resource, start="latest") for connection in opened]
    for reader in readers:
        reader.next(timeout=0)  # summons

    def work() -> Result:
        while True:
            time.sleep(1.0)

    return {}, work


ROLES: dict[str, Callable[..., Prepared]] = {
    "publish": publish,
    "read": read,
    "confirm": confirm,
    "load": load,
    "crowd": crowd,
}

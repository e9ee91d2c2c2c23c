"""A damaged chunk: every intact content before it is delivered, and then the error is raised. Each way several times,
because the contents and the end of the lease may arrive together or one after the other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

import mtl
from mtl.errors import Refused
from mtl.testing import broker

COUNT, DAMAGED = 40, 15
"""DAMAGED is in the first of two segments: the newest one is checked when it is opened."""
TRIES = 2

Read: TypeAlias = Callable[[str, str, bool, list[int]], None]
"""Reads a resource and notes the sequences of its contents."""


def rows(endpoint: str, name: str, packed: bool, found: list[int]) -> None:
    with (
        mtl.connect(endpoint) as connection,
        connection.reader(name, packed=packed, until=COUNT + 1) as reader,
    ):
        found.extend(content.sequence for content in reader)


def batches(endpoint: str, name: str, packed: bool, found: list[int]) -> None:
    with (
        mtl.connect(endpoint) as connection,
        connection.reader(name, packed=packed, until=COUNT + 1) as reader,
    ):
        for pack in reader.batches():
            found += range(pack.first, pack.first + pack.count)


def some(endpoint: str, name: str, packed: bool, found: list[int]) -> None:
    with (
        mtl.connect(endpoint) as connection,
        connection.reader(name, packed=packed, until=COUNT + 1) as reader,
    ):
        while contents := reader.some(7, 1 << 20):
            found += (content.sequence for content in contents)


def rows_in_a_task(endpoint: str, name: str, packed: bool, found: list[int]) -> None:
    async def main() -> None:
        async with (
            mtl.aio.connect(endpoint) as connection,
            connection.reader(name, packed=packed, until=COUNT + 1) as reader,
        ):
            while (content := await reader.next()) is not None:
                found.append(content.sequence)

    asyncio.run(main())


def batches_in_a_task(endpoint: str, name: str, packed: bool, found: list[int]) -> None:
    async def main() -> None:
        async with (
            mtl.aio.connect(endpoint) as connection,
            connection.reader(name, packed=packed, until=COUNT + 1) as reader,
        ):
            async for pack in reader.batches():
                found.extend(range(pack.first, pack.first + pack.count))

    asyncio.run(main())


def consumed(endpoint: str, name: str, packed: bool, found: list[int]) -> None:
    with mtl.connect(endpoint) as connection:
        confirm = "none" if packed else "full"
        with connection.consumer(name, confirm=confirm) as consumer:  # type: ignore[arg-type]
            for content in consumer:
                found.append(content.sequence)
                if not packed:
                    content.confirm()


READS: list[Read] = [rows, batches, some, rows_in_a_task, batches_in_a_task, consumed]
NAMES = [
    f"{read.__name__}-{packed}-{number}"
    for read in READS
    for packed in (True, False)
    for number in range(TRIES)
]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a resource for each read, as damage stops a resource for all readers."""
    folder = tmp_path_factory.mktemp("damaged")
    config = folder / "broker.toml"
    config.write_text("local-reads = false\nsegment-bytes = 100000\n")
    with broker(data=folder / "data", config=config) as running:
        with mtl.connect(running.endpoint) as connection:
            for name in NAMES:
                connection.create_resource(name, durability="os")
            with connection.writer(NAMES) as writer:
                for number in range(1, COUNT + 1):
                    for name in NAMES:
                        writer.send(b"content %03d " % number * 300, resource=name)
                    writer.flush()  # a chunk of its own
        running.restart()  # contents in memory need no file
        with mtl.connect(running.endpoint) as connection:
            assert {found.next for found in connection.describe(NAMES).values()} == {COUNT + 1}
        damage(running.data)
        yield running.endpoint


def damage(data: Path) -> None:
    for segment in data.glob("resources/*/*.segment"):
        at = segment.read_bytes().find(b"content %03d" % DAMAGED)
        if at >= 0:
            with segment.open("r+b") as file:
                os.pwrite(file.fileno(), b"?", at + 30)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("read", READS)
def test_intact_contents_come_before_the_error(read: Read, packed: bool, endpoint: str) -> None:
    for number in range(TRIES):
        found: list[int] = []
        with pytest.raises(Refused) as refused:
            read(endpoint, f"{read.__name__}-{packed}-{number}", packed, found)
        assert refused.value.reason == "storage"
        if (
            read is consumed and not packed
        ):  # contents that are not answered at the end of a lease are in the queue again
            assert found == [*range(1, len(found) + 1)]
        else:
            assert found == [*range(1, DAMAGED)]

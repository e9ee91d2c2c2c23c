"""Publishing: what a program that knows nothing of Spark does."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mtl.client.connection import Connection

STEP = 1_000
"""Contents between two looks at how many are confirmed."""


def publish(
    connection: Connection, resource: str, contents: Iterable[bytes], moved: Callable[[int, int], None]
) -> None:
    """Send the contents, packed, and wait until the last one is on the broker's disk.

    `moved` is called with the number sent and the number of these that are confirmed, that is on the disk.
    """
    with connection.writer(resource, packed=True) as writer:
        for number, body in enumerate(contents, 1):
            writer.send(body)
            if number % STEP == 0:
                moved(number, writer.confirmed)
        writer.flush()
        moved(writer.confirmed, writer.confirmed)

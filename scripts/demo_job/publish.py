"""Publishing, as a program without Spark does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mtl.client.connection import Connection

STEP = 1_000
"""Contents between two checks of the number of confirmed ones."""


def publish(
    connection: Connection, resource: str, contents: Iterable[bytes], moved: Callable[[int, int], None]
) -> None:
    """Send the contents, packed, and wait until the last one is on the broker's disk.

    `moved` is called with the number of sent contents and the number of confirmed ones, which are on the disk.
    """
    with connection.writer(resource, packed=True) as writer:
        for number, body in enumerate(contents, 1):
            writer.send(body)
            if number % STEP == 0:
                moved(number, writer.confirmed)
        writer.flush()
        moved(writer.confirmed, writer.confirmed)

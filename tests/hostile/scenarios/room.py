"""Free space of the disk: writers that keep requesting leases while it is nearly full."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import mtl
from mtl.errors import Refused
from mtl.testing import RunningBroker
from tests.hostile.harness import scenario
from tests.support.minimal_client import minimal_client

PATIENCE_S = 20.0
WATERMARK = 1 << 60


@scenario(config=f"low-watermark = {WATERMARK}\n", writes=False)
def writers_on_a_disk_that_is_nearly_full(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Every request for a lease to write is refused with the reason; readers, cursors and commits are served."""
    count = 20_000 if heavy else 1_000
    with minimal_client(broker.endpoint) as client, mtl.connect(broker.endpoint) as connection:
        client.ask("Resource.Create", resource="r")
        until = time.monotonic() + PATIENCE_S
        while client.ask("Connection.Writer", resources=["r"])[0] != 503:
            assert time.monotonic() < until, "writers are served"
            time.sleep(0.1)  # the broker checks once a second
        for number in range(count):
            named = {"writer": f"w{number}", "confirm": "full"} if number % 2 else {}
            code, answer = client.ask("Connection.Writer", resources=["r"], **named)
            assert (code, answer["reason"], answer["watermark"]) == (503, "read-only", WATERMARK)
        connection.cursor_open("g", "r")
        connection.stage_commit("app", 1, [])
        connection.reader("r", group="g").close()
    with (
        mtl.connect(broker.endpoint, retry_deadline=0.5) as late,
        pytest.raises(Refused, match="low-watermark"),
    ):
        late.writer("r")
    yield f"{count:,} requests to write"

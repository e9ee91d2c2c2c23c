"""Resources: thousands, each with contents, and their use of the system."""

from __future__ import annotations

import json
from collections.abc import Iterator

from mtl.log.limits import OPEN_FILES
from mtl.testing import RunningBroker
from tests.hostile.harness import open_files, scenario
from tests.hostile.scenarios.control import pipelining
from tests.support.minimal_client import minimal_client

FILES = OPEN_FILES + 100
"""The largest number of files that a broker may have open, for any number of resources."""


@scenario(memory=256)
def resources_by_the_thousand(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Resources are created, written to and described; an idle log must not keep a file open."""
    count = 10_000 if heavy else FILES + 100
    with minimal_client(broker.endpoint) as client:
        dealer = pipelining(client)
        for number in range(count):
            body = json.dumps({"resource": f"r{number}", "durability": "os"}).encode()
            dealer.send_multipart([b"", b"Resource.Create", body])
        for _ in range(count):
            assert dealer.recv_multipart()[1] == b"200"
        for first in range(0, count, 1_000):
            names = [f"r{number}" for number in range(first, min(first + 1_000, count))]
            writer = client.lease("Writer", resources=names, confirm="full")
            for number, name in enumerate(names, 1):
                writer.content(number, b"x", name)
            writer.await_confirm(len(names))
        files = open_files(broker.pid)
        assert files < FILES, f"{files} files are open"
        yield f"{count:,} resources with a content each, {files} files open"

"""File descriptors: connections that say nothing, up to the limit of the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import mtl
from mtl.net.limits import SILENT_CONNECTIONS
from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, open_files, scenario
from tests.support.zmtp import RawPeer

OWN_FILES = 200
"""More than a broker opens for the new resources and for the other user."""


@scenario(users={"late": ("manage late[.].*", "write late[.].*")})
def silent_connections_beside_new_files(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """The oldest silent connections end while there are too many. A client that comes later gets connections, and
    creates resources and writes, which needs new files.
    """
    count, resources = (6_000, 200) if heavy else (SILENT_CONNECTIONS + 100, 5)
    before = open_files(broker.pid)
    with ExitStack() as peers:
        for _ in range(count):
            peers.enter_context(closing(RawPeer(broker.endpoint)))
        with mtl.connect(broker.endpoint, user="late", password=PASSWORD, retry_deadline=20.0) as late:
            for number in range(resources):
                late.create_resource(f"late.{number}")
                with late.writer(f"late.{number}") as writer:
                    writer.send(b"x")
            assert {found.trouble for found in late.describe().values()} == {None}
        files = open_files(broker.pid)
        assert files < before + SILENT_CONNECTIONS + OWN_FILES, (before, files)
        yield f"{count:,} silent connections, {files:,} open files; {resources} resources created meanwhile"

"""Silent connections up to the limit of open files: storage and other clients are served."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mtl
from tests.support.processes import killed_after

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS reports no limit")

MOST_FILES = 256
SILENT = 2 * MOST_FILES
PAUSE_S = 0.05
"""Between two looks of the attacker at its connections."""


@contextmanager
def broker_with_few_files(data: Path) -> Iterator[tuple[str, int]]:
    """The endpoint and the process of a broker that may have MOST_FILES files open."""
    arguments = [
        sys.executable,
        "-m",
        "mtl.cli.main",
        "broker",
        "--endpoint",
        "tcp://127.0.0.1:0",
        "--data",
        str(data),
    ]
    limited = ["sh", "-c", f'ulimit -n {MOST_FILES} && exec "$@"', "sh", *arguments]
    with killed_after(subprocess.Popen(limited, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split("ready at ")[1].split()[0], process.pid


class SilentPeer:
    """Keeps SILENT connections open that say nothing: one that was ended is opened again."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self._place = host, int(port)
        self._selector = selectors.DefaultSelector()
        for _ in range(SILENT):
            self._connect()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        self._selector.register(socket.create_connection(self._place), selectors.EVENT_READ)

    def _keep(self) -> None:
        while not self._over.wait(PAUSE_S):
            for key, _ in self._selector.select(0):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if self._is_ended(connection):
                    self._selector.unregister(connection)
                    connection.close()
                    self._connect()

    @staticmethod
    def _is_ended(connection: socket.socket) -> bool:
        try:
            return not connection.recv(1 << 10)  # the broker's greeting, or nothing at the end
        except OSError:
            return True

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()


def test_silent_connections_leave_descriptors_to_storage_and_to_others(tmp_path: Path) -> None:
    """A client that connects meanwhile creates resources and writes, which needs new files each time."""
    with broker_with_few_files(tmp_path / "data") as (endpoint, process):
        peer = SilentPeer(endpoint)
        try:
            with mtl.connect(endpoint, retry_deadline=20.0) as connection:
                for number in range(12):
                    name = f"r{number}"
                    connection.create_resource(name)
                    with connection.writer(name) as writer:
                        writer.send(b"x")
                troubles = {found.trouble for found in connection.describe().values()}
                assert troubles == {None}
                assert sum(1 for _ in Path(f"/proc/{process}/fd").iterdir()) < MOST_FILES
        finally:
            peer.close()

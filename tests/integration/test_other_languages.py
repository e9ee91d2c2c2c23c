"""The clients in docs/clients, written from PROTOCOL.md alone: publish, read with a group, restarts."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

import mtl
from mtl.testing import RunningBroker
from mtl.wire import control as w
from tests.support.cutting_proxy import BEHIND, HERE, CuttingProxy
from tests.support.doors import await_line
from tests.support.processes import killed_after

CLIENTS = Path(__file__).parents[2] / "docs" / "clients"
PATIENCE_S = 120
BUILD_S = 300
"""With what it gets over the network."""

SILENCE_S = 60.0
"""Four times as long as the slowest client waits."""

COUNT = 20_000


def run(command: list[str], where: Path) -> None:
    """A step of a build; its output is the error message."""
    result = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False, timeout=BUILD_S)
    assert result.returncode == 0, result.stdout + result.stderr


def node(where: Path) -> list[str]:
    run(["npm", "ci", "--no-audit", "--no-fund"], where)
    return ["node", str(where / "client.js")]


def go(where: Path) -> list[str]:
    run(["go", "build", "-o", "client", "."], where)
    return [str(where / "client")]


def java(where: Path) -> list[str]:
    run(["mvn", "-q", "compile", "dependency:copy-dependencies"], where)
    classpath = f"{where / 'target' / 'classes'}:{where / 'target' / 'dependency'}/*"
    return ["java", "-cp", classpath, "Client"]


BUILDS: dict[str, Callable[[Path], list[str]]] = {"node": node, "go": go, "java": java}


@pytest.fixture(scope="module", params=BUILDS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a client, built in a separate directory."""
    name = str(request.param)
    place = tmp_path_factory.mktemp(name) / name
    shutil.copytree(CLIENTS / name, place, ignore=shutil.ignore_patterns("node_modules"))
    return BUILDS[name](place)


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def read_by(client: list[str], endpoint: str, group: str, count: int) -> list[bytes]:
    command = [*client, endpoint, "read", "orders", group, str(count)]
    result = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.split()


@contextmanager
def started(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A client and its output. It is killed after a timeout, so that reading its lines always ends."""
    with killed_after(subprocess.Popen(command, stdout=subprocess.PIPE)) as process:
        assert process.stdout is not None
        stop = threading.Timer(PATIENCE_S, process.kill)
        stop.start()
        try:
            yield process, process.stdout
        finally:
            stop.cancel()


def test_a_client_publishes_and_reads(client: list[str], mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        published = [*client, mtl_broker.endpoint, "publish", "orders", "me", "3000"]
        for _ in range(2):  # the second time the broker has every number already
            subprocess.run(published, check=True, timeout=PATIENCE_S)
        with connection.reader("orders", until=3_001) as reader:
            assert [content.body for content in reader] == numbers(3_000)
        assert connection.describe(["orders"])["orders"].next == 3_001
        for first in (0, 1_000):  # another process of the group continues at the end of the former one
            assert read_by(client, mtl_broker.endpoint, "g", 1_000) == numbers(1_000, first)


class Losing(CuttingProxy):
    """Drops the first reply that grants a lease: the client repeats the request, the broker has granted the lease."""

    lost = False

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        if not self.lost and b'"lease":' in source.recv(1 << 16, socket.MSG_PEEK):
            source.recv(1 << 16)
            self.lost = True
            return
        super()._pass_on(source, target)


@contextmanager
def through(proxy: type[CuttingProxy], running: RunningBroker) -> Iterator[tuple[CuttingProxy, str]]:
    """A proxy for both ports of a broker with a resource, and the endpoint of the proxy."""
    with mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        publish(connection, numbers(3_000))
        lease = connection.request(w.ConnectionWriter(resources=["orders"]))
        assert isinstance(lease, w.DataLease)
    with proxy(int(running.endpoint.rpartition(":")[2]), lease.port) as before:
        yield before, running.endpoint.replace(BEHIND, HERE)


def test_a_lease_with_a_lost_reply_does_not_block_the_group(
    client: list[str], mtl_broker: RunningBroker
) -> None:
    with through(Losing, mtl_broker) as (_, endpoint):
        for first in (0, 1_000):
            assert read_by(client, endpoint, "g", 1_000) == numbers(1_000, first)


def test_a_cut_connection_does_not_block_the_group(client: list[str], mtl_broker: RunningBroker) -> None:
    with through(CuttingProxy, mtl_broker) as (proxy, endpoint):
        reading = [*client, endpoint, "read", "orders", "g", "2000"]
        with started(reading) as (reader, lines):
            lines_read = [lines.readline().strip() for _ in range(10)]
            proxy.cut()
            lines_read += lines.read().split()
            reader.wait(PATIENCE_S)
        assert lines_read == numbers(2_000), "each once, in order"
        assert read_by(client, endpoint, "g", 1_000) == numbers(1_000, 2_000)


def test_a_client_survives_a_restart_of_the_broker(client: list[str], mtl_broker: RunningBroker) -> None:
    endpoint = mtl_broker.endpoint
    with mtl.connect(endpoint) as connection:
        connection.create_resource("orders")
    command = [*client, endpoint, "publish", "orders", "me", str(COUNT)]
    with killed_after(subprocess.Popen(command, stderr=subprocess.PIPE)) as publishing:
        killed_at = once_there_are(endpoint, COUNT // 10)
        mtl_broker.kill()
        mtl_broker.start()
        _, errors = publishing.communicate(timeout=PATIENCE_S)
    assert publishing.returncode == 0, errors.decode()
    assert killed_at < COUNT, "it was done before the broker was killed"
    reading = [*client, endpoint, "read", "orders", "g", str(COUNT)]
    with started(reading) as (reader, lines):
        lines_read = [lines.readline().strip() for _ in range(COUNT // 4)]
        mtl_broker.kill()
        mtl_broker.start()
        lines_read += lines.read().split()
        reader.wait(PATIENCE_S)
    assert lines_read == numbers(COUNT), "each once, in order"
    assert reader.returncode == 0


def test_a_client_detects_a_silent_broker(client: list[str], mtl_broker: RunningBroker) -> None:
    """A stopped process keeps its connections open: only the heartbeats show the loss."""
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        publish(connection, numbers(5))
        command = [*client, mtl_broker.endpoint, "read", "orders", "g", "10"]
        with killed_after(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ) as reader:
            assert reader.stdout is not None
            assert reader.stderr is not None
            lines_read = [reader.stdout.readline().strip() for _ in range(5)]
            os.kill(mtl_broker.pid, signal.SIGSTOP)
            try:
                await_line(reader.stderr.fileno(), r"(again: )", SILENCE_S)
            finally:
                os.kill(mtl_broker.pid, signal.SIGCONT)
            publish(connection, numbers(5, 5))
            rest, _ = reader.communicate(timeout=PATIENCE_S)
        assert lines_read + rest.split() == numbers(10), "each once, in order"
        assert reader.returncode == 0


def publish(connection: mtl.Connection, bodies: list[bytes]) -> None:
    with connection.writer("orders") as writer:
        for body in bodies:
            writer.send(body)


def once_there_are(endpoint: str, count: int) -> int:
    """The number of contents, awaited until there are `count`."""
    with mtl.connect(endpoint) as connection:
        found = connection.describe(["orders"])["orders"].next
        while found <= count:
            found = connection.describe(["orders"], after={"orders": found}, wait=10.0)["orders"].next
        return found - 1

"""The clients in docs/clients, written from PROTOCOL.md alone: they publish, read with a group, survive a restart."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import mtl
from mtl.testing import RunningBroker
from tests.support.processes import killed_after

CLIENTS = Path(__file__).parents[2] / "docs" / "clients"
PATIENCE_S = 120
BUILD_S = 300
"""With what it gets over the network."""

COUNT = 20_000


def run(command: list[str], where: Path) -> None:
    """A step of a build, whose output is the error."""
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
    """The command of a client that is built in a directory of its own."""
    name = str(request.param)
    place = tmp_path_factory.mktemp(name) / name
    shutil.copytree(CLIENTS / name, place, ignore=shutil.ignore_patterns("node_modules"))
    return BUILDS[name](place)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def read_by(client: list[str], endpoint: str, group: str, count: int) -> list[bytes]:
    command = [*client, endpoint, "read", "orders", group, str(count)]
    result = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.split()


def test_what_it_publishes_and_reads(client: list[str], mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        published = [*client, mtl_broker.endpoint, "publish", "orders", "me", "3000"]
        for _ in range(2):  # the second time the broker has every number already
            subprocess.run(published, check=True, timeout=PATIENCE_S)
        with connection.reader("orders", until=3_001) as reader:
            assert [content.body for content in reader] == numbers(3_000)
        assert connection.describe(["orders"])["orders"].next == 3_001
        assert read_by(client, mtl_broker.endpoint, "g", 1_000) == numbers(1_000)


def test_it_survives_a_restart_of_the_broker(client: list[str], mtl_broker: RunningBroker) -> None:
    endpoint = mtl_broker.endpoint
    with mtl.connect(endpoint) as connection:
        connection.create_resource("orders")
    command = [*client, endpoint, "publish", "orders", "me", str(COUNT)]
    with killed_after(subprocess.Popen(command, stderr=subprocess.PIPE)) as publishing:
        killed_at = once_there_are(endpoint, COUNT // 10)
        mtl_broker.kill()
        mtl_broker.start()
        _, said = publishing.communicate(timeout=PATIENCE_S)
    assert publishing.returncode == 0, said.decode()
    assert killed_at < COUNT, "it was done before the broker was killed"
    reading = [*client, endpoint, "read", "orders", "g", str(COUNT)]
    with killed_after(subprocess.Popen(reading, stdout=subprocess.PIPE)) as reader:
        assert reader.stdout is not None
        stop = threading.Timer(PATIENCE_S, reader.kill)
        stop.start()
        got = [reader.stdout.readline().strip() for _ in range(COUNT // 4)]
        mtl_broker.kill()
        mtl_broker.start()
        got += reader.stdout.read().split()
        stop.cancel()
        reader.wait(PATIENCE_S)
    assert got == numbers(COUNT), "each once, in order"
    assert reader.returncode == 0


def once_there_are(endpoint: str, count: int) -> int:
    """How many contents there are as soon as there are so many."""
    with mtl.connect(endpoint) as connection:
        found = connection.describe(["orders"])["orders"].next
        while found <= count:
            found = connection.describe(["orders"], after={"orders": found}, wait=10.0)["orders"].next
        return found - 1

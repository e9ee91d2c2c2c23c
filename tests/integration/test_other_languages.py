"""The clients in docs/clients, written from PROTOCOL.md alone: publish, read with a group, log in, restarts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import mtl
from mtl.broker.access.accounts import Right
from mtl.broker.runtime.users import Users, new_password
from mtl.storage.records import GrantRecord
from mtl.testing import RunningBroker, broker
from mtl.wire import control
from tests.support.cutting_proxy import BEHIND, HERE, CuttingProxy
from tests.support.doors import await_line
from tests.support.minimal_server import MinimalServer
from tests.support.processes import killed_after
from tests.support.users import ITERATIONS

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
    return ["java", "-cp", classpath, "mtl.Client"]


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


def lines(bodies: Iterable[bytes]) -> bytes:
    return b"".join(body + b"\n" for body in bodies)


def finished(
    command: list[str], standard_input: bytes = b"", environment: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        input=standard_input,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        env={**os.environ, **environment},
    )


def publish_by(
    client: list[str], endpoint: str, bodies: Iterable[bytes], environment: Mapping[str, str] = {}
) -> None:
    result = finished([*client, endpoint, "publish", "orders", "me"], lines(bodies), environment)
    assert result.returncode == 0, result.stderr.decode()


def read_by(
    client: list[str], endpoint: str, group: str, count: int, environment: Mapping[str, str] = {}
) -> list[bytes]:
    result = finished([*client, endpoint, "read", "orders", group, str(count)], environment=environment)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.split()


@contextmanager
def started(command: list[str], environment: Mapping[str, str] = {}) -> Iterator[subprocess.Popen[bytes]]:
    """A client with pipes. It is killed after a timeout, so that reading its lines always ends."""
    pipe, variables = subprocess.PIPE, {**os.environ, **environment}
    with killed_after(
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=variables)
    ) as process:
        stop = threading.Timer(PATIENCE_S, process.kill)
        stop.start()
        try:
            yield process
        finally:
            stop.cancel()


def some_lines(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def other_lines(process: subprocess.Popen[bytes]) -> list[bytes]:
    """After `some_lines`, which reads ahead: to the end of the process."""
    assert process.stdout is not None
    rest = process.stdout.read().split()
    process.wait(PATIENCE_S)
    return rest


def write(process: subprocess.Popen[bytes], bodies: Iterable[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(lines(bodies))
    process.stdin.flush()


def await_log(running: RunningBroker, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in running.log.read_text():
        assert time.monotonic() < deadline, text
        time.sleep(0.01)


# --- contents -----------------------------------------------------------------------------------------------


def test_a_client_publishes_and_reads(client: list[str], mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        publish_by(client, mtl_broker.endpoint, numbers(2_000))
        publish_by(client, mtl_broker.endpoint, numbers(3_000))  # it continues after the stored lines
        with connection.reader("orders", until=3_001) as reader:
            assert [content.body for content in reader] == numbers(3_000)
        assert connection.describe(["orders"])["orders"].next == 3_001
        for first in (0, 1_000):  # another process of the group continues at the end of the former one
            assert read_by(client, mtl_broker.endpoint, "g", 1_000) == numbers(1_000, first)


def test_contents_of_a_mebibyte_pass_through_the_window(client: list[str], mtl_broker: RunningBroker) -> None:
    """The window is full after 8 contents: it has to be confirmed by octets, and not only by the number of contents."""
    bodies = [b"%02d" % n + b"x" * 2**20 for n in range(20)]
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        publish_by(client, mtl_broker.endpoint, bodies)
        assert read_by(client, mtl_broker.endpoint, "g", 20) == bodies
        with connection.reader("orders", until=21) as reader:
            assert [content.body for content in reader] == bodies


def test_a_reader_without_an_end_confirms_by_time(client: list[str], mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        publish(connection, numbers(5))
        with started([*client, mtl_broker.endpoint, "read", "orders", "g"]) as reader:
            assert some_lines(reader, 5) == numbers(5)
            deadline = time.monotonic() + PATIENCE_S
            while connection.cursors("g", "orders")[0].position != 6:
                assert time.monotonic() < deadline
                time.sleep(0.05)


# --- errors -------------------------------------------------------------------------------------------------


def test_wrong_arguments_show_the_usage(client: list[str]) -> None:
    for arguments in (
        [],
        ["tcp://127.0.0.1:1", "publish", "orders"],
        ["tcp://127.0.0.1:1", "send", "a", "b"],
    ):
        result = finished([*client, *arguments])
        assert result.returncode == 2
        assert b"usage:" in result.stderr
        assert b"RESOURCE GROUP [COUNT]" in result.stderr


def test_a_final_refusal_ends_a_client(client: list[str]) -> None:
    """A server of RFC 11 alone whose profile has no confirmation: 501, and another attempt would not help."""
    with MinimalServer(profiles=("log",)) as server:
        result = finished([*client, server.endpoint, "publish", "orders", "me"], b"1\n")
    assert result.returncode == 1
    assert b"501" in result.stderr
    assert b"again" not in result.stderr


def test_a_client_meets_every_requirement_of_the_rfc(client: list[str]) -> None:
    one = " ".join(map(shlex.quote, client))
    both = f'printf "1\\n2\\n" | {one} "$MTL_ENDPOINT" publish r w && {one} "$MTL_ENDPOINT" read r g 5'
    tool = [sys.executable, "-m", "mtl.cli.main", "conformance", "--json", "--client", "--", "sh", "-c", both]
    result = finished(tool)
    found = {x["requirement"]: x["verdict"] for x in map(json.loads, result.stdout.splitlines())}
    assert "FAILED" not in found.values(), result.stdout
    assert result.returncode == 0, result.stdout
    unseen = {requirement for requirement, verdict in found.items() if verdict == "not seen"}
    assert unseen == {"MTL-73", "MTL-74", "MTL-75", "MTL-94"}, "it never dismisses and never rejects"


# --- a broker with users ------------------------------------------------------------------------------------

LOGIN = {"MTL_USER": "me", "MTL_PASSWORD": "a secret, with a comma"}


@pytest.fixture
def closed_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker that requires a log-in, with the resource `orders` and one user."""
    config, data = tmp_path / "broker.toml", tmp_path / "data"
    config.write_text("[authentication]\nanonymous = false\n")
    data.mkdir()
    with Users(data) as users:
        users.add("me", new_password(LOGIN["MTL_PASSWORD"], os.urandom, ITERATIONS), [])
        for right in (Right.READ, Right.WRITE, Right.MANAGE, Right.WRITER):
            users.grant("me", [GrantRecord("/", right.value, ".*")])
    with broker(data, config) as running:
        yield running


@pytest.fixture
def orders(closed_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[mtl.Connection]:
    monkeypatch.setenv("THE_PASSWORD", LOGIN["MTL_PASSWORD"])
    with mtl.connect(closed_broker.endpoint, user="me", password_env="THE_PASSWORD") as connection:
        connection.create_resource("orders")
        yield connection


def test_a_client_logs_in_and_again(
    client: list[str], closed_broker: RunningBroker, orders: mtl.Connection
) -> None:
    """After a restart of the broker, whose sessions are new, and after a 401 to the session that it has."""
    endpoint = closed_broker.endpoint
    with started([*client, endpoint, "publish", "orders", "me"], LOGIN) as publisher:
        write(publisher, numbers(5))
        await_end(orders, 6)
        closed_broker.kill()
        closed_broker.start()
        write(publisher, numbers(5, 5))
        await_end(orders, 11)
        with Users(closed_broker.data) as users:
            password = new_password(LOGIN["MTL_PASSWORD"], os.urandom, ITERATIONS)
            users.set_password("me", password, keep_sessions=True)
        await_log(closed_broker, "password-changed")
        before = closed_broker.log.read_text().count("audit: login ")
        _, errors = publisher.communicate(timeout=PATIENCE_S)  # Lease.Close gets the 401
        assert publisher.returncode == 0, errors.decode()
        assert closed_broker.log.read_text().count("audit: login ") == before + 1
    assert read_by(client, endpoint, "me.g", 10, LOGIN) == numbers(10)


def test_a_refused_log_in_ends_a_client(client: list[str], closed_broker: RunningBroker) -> None:
    wrong = {**LOGIN, "MTL_PASSWORD": "wrong"}
    for variables, message in ((wrong, b"the log-in as"), ({}, b"SCRAM-SHA-256")):
        result = finished(
            [*client, closed_broker.endpoint, "read", "orders", "me.g", "1"], environment=variables
        )
        assert result.returncode == 1
        assert message in result.stderr


# --- losses -------------------------------------------------------------------------------------------------


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
        lease = connection.request(control.ConnectionWriter(resources=["orders"]))
        assert isinstance(lease, control.DataLease)
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
        with started(reading) as reader:
            lines_read = some_lines(reader, 10)
            proxy.cut()
            lines_read += other_lines(reader)
        assert lines_read == numbers(2_000), "each once, in order"
        assert read_by(client, endpoint, "g", 1_000) == numbers(1_000, 2_000)


def test_a_client_survives_a_restart_of_the_broker(client: list[str], mtl_broker: RunningBroker) -> None:
    endpoint = mtl_broker.endpoint
    with mtl.connect(endpoint) as connection:
        connection.create_resource("orders")
    with started([*client, endpoint, "publish", "orders", "me"]) as publisher:
        write(publisher, numbers(COUNT // 10))
        with mtl.connect(endpoint) as connection:
            await_end(connection, COUNT // 10)
        mtl_broker.kill()
        mtl_broker.start()
        _, errors = publisher.communicate(lines(numbers(COUNT)[COUNT // 10 :]), timeout=PATIENCE_S)
    assert publisher.returncode == 0, errors.decode()
    reading = [*client, endpoint, "read", "orders", "g", str(COUNT)]
    with started(reading) as reader:
        lines_read = some_lines(reader, COUNT // 4)
        mtl_broker.kill()
        mtl_broker.start()
        lines_read += other_lines(reader)
    assert lines_read == numbers(COUNT), "each once, in order"
    assert reader.returncode == 0


def test_a_reader_does_not_take_its_group_back(client: list[str], mtl_broker: RunningBroker) -> None:
    """A newer reader has the group. After a restart the broker learns this by the epoch that the older one names."""
    reading = [*client, mtl_broker.endpoint, "read", "orders", "g"]
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        publish(connection, numbers(5))
        with started(reading) as older:
            assert some_lines(older, 5) == numbers(5)
            with started(reading) as newer:
                deadline = time.monotonic() + PATIENCE_S
                while connection.cursors("g", "orders")[0].epoch != 2:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                mtl_broker.kill()
                mtl_broker.start()
                _, errors = older.communicate(timeout=PATIENCE_S)
                assert older.returncode == 1
                assert b"fenced" in errors
                publish(connection, [b"last"])
                while some_lines(newer, 1) != [b"last"]:
                    assert newer.poll() is None


def test_a_client_detects_a_silent_broker(client: list[str], tmp_path: Path) -> None:
    """A stopped process keeps its connections open: only the heartbeats show the loss."""
    config = tmp_path / "broker.toml"
    config.write_text("heartbeat = 1.0\n")
    with broker(tmp_path / "data", config) as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        publish(connection, numbers(5))
        with started([*client, running.endpoint, "read", "orders", "g", "10"]) as reader:
            assert reader.stderr is not None
            lines_read = some_lines(reader, 5)
            os.kill(running.pid, signal.SIGSTOP)
            try:
                await_line(reader.stderr.fileno(), r"(again: )", SILENCE_S)
            finally:
                os.kill(running.pid, signal.SIGCONT)
            publish(connection, numbers(5, 5))
            lines_read += other_lines(reader)
        assert lines_read == numbers(10), "each once, in order"
        assert reader.returncode == 0


def publish(connection: mtl.Connection, bodies: list[bytes]) -> None:
    with connection.writer("orders") as writer:
        for body in bodies:
            writer.send(body)


def await_end(connection: mtl.Connection, end: int) -> None:
    """Wait until the resource has all contents before `end`."""
    found = connection.describe(["orders"])
    while found["orders"].next < end:
        connection.describe(["orders"], since=found.state, wait=10.0)
        found = connection.describe(["orders"])

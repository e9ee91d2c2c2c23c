"""The loop around the core, in this process: start, refusals, stop.

Tests that need a separate process are in tests/integration/test_broker_process.py.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from mtl.broker import limits as broker_limits
from mtl.broker.actions import Now
from mtl.broker.runtime.config import BrokerConfig
from mtl.broker.runtime.idle_memory import IdleDetector
from mtl.broker.runtime.server import Server, clock, secret
from mtl.broker.runtime.users import Users
from mtl.errors import DirectoryInUse, OldRecords, OptionError, StorageFailed, UnknownFormat
from mtl.net.origin import NO_ORIGIN
from mtl.net.ports import Port
from mtl.net.router import BindFailed
from mtl.storage.api import Trim
from mtl.storage.database import VERSION
from mtl.storage.directory import DirectoryEngine
from mtl.storage.local import Storage
from mtl.storage.records import GrantRecord
from mtl.storage.sqlite import SqliteStore

OPEN = b'{"protocol": {"name": "MTL", "version": 1}}'


def config(data: Path, **more: Any) -> BrokerConfig:
    return BrokerConfig(data=str(data), endpoint=more.pop("endpoint", "tcp://127.0.0.1:0"), **more)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """A server in its own thread, stopped at the end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except BaseException as e:  # noqa: BLE001 shown below
            failed.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(30)
    assert not failed, failed


@contextmanager
def req(endpoint: str) -> Iterator[Any]:
    """A REQ socket that sends requests one after the other."""
    context = zmq.Context()
    asking = context.socket(zmq.REQ)
    asking.setsockopt(zmq.LINGER, 0)
    asking.setsockopt(zmq.RCVTIMEO, 10_000)
    asking.connect(endpoint)

    def ask(name: bytes, body: bytes) -> tuple[int, dict[str, Any]]:
        asking.send_multipart([name, body])
        code, text = asking.recv_multipart()
        return int(code), json.loads(text)

    yield ask
    asking.close()
    context.term()


def test_a_server_serves_and_stops(tmp_path: Path) -> None:
    with running(Server(config(tmp_path))) as server, req(server.endpoint) as ask:
        code, body = ask(b"Connection.Open", OPEN)
        assert (code, body["status"]) == (201, "Ready")
        assert ask(b"Connection.Profile", b'{"profile": "log"}')[0] == 200
        assert ask(b"Resource.Create", b'{"resource": "a"}')[0] == 200
    with running(Server(config(tmp_path))) as server, req(server.endpoint) as ask:
        ask(b"Connection.Open", OPEN)
        ask(b"Connection.Profile", b'{"profile": "log"}')
        assert ask(b"Resource.Describe", b'{"resource": "a"}')[0] == 200


def test_the_loop_waits_no_longer_than_until_the_next_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Server(config(tmp_path))) as server:
        core = type(server._broker)
        monkeypatch.setattr(core, "busy", False)
        for due, least, most in ((0.05, 1, 51), (-1.0, 0, 0), (60.0, 1000, 1000)):
            monkeypatch.setattr(core, "next_due", time.monotonic() + due)
            assert least <= server._patience_ms() <= most


def test_an_idle_server_returns_memory_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = threading.Event()
    monkeypatch.setattr(IdleDetector, "became_idle", lambda _: not given.is_set())
    monkeypatch.setattr("mtl.broker.runtime.server.return_memory", given.set)
    with running(Server(config(tmp_path))):
        assert given.wait(30)


def test_the_turn_of_one_socket_is_limited_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other sockets follow, however many messages wait on the first."""
    server = Server(config(tmp_path))
    now = 100.0
    handled = 0

    def control(*_: object) -> None:
        nonlocal now, handled
        now += broker_limits.DRAIN_S / 4
        handled += 1

    with monkeypatch.context() as patch:
        patch.setattr(server._sockets, "requests", lambda: repeat(([b"id", b"", b"", b""], NO_ORIGIN), 100))
        patch.setattr(server._broker, "control", control)
        patch.setattr("mtl.broker.runtime.server.clock", lambda: Now(now, 0))
        patch.setattr("mtl.broker.runtime.server.time", SimpleNamespace(monotonic=lambda: now))
        server._drain(Port.CONTROL)
    assert handled == 5
    with running(server):
        pass


def test_an_ipc_server_has_endpoints_instead_of_ports(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/s"
    with running(Server(config(tmp_path / "data", endpoint=endpoint))) as server, req(endpoint) as ask:
        assert server.endpoint == endpoint
        ask(b"Connection.Open", OPEN)
        ask(b"Connection.Profile", b'{"profile": "test"}')
        code, lease = ask(b"Connection.Reader", b'{"resources": []}')
        assert (code, lease["endpoint"]) == (202, f"{endpoint}.plain")


@pytest.mark.requirement("MTL-56")
def test_a_shared_socket_is_the_endpoint_of_every_lease(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/s"
    given = config(tmp_path / "data", endpoint=endpoint, shared_socket=True)
    with running(Server(given)), req(endpoint) as ask:
        ask(b"Connection.Open", OPEN)
        ask(b"Connection.Profile", b'{"profile": "log"}')
        ask(b"Resource.Create", b'{"resource": "a"}')
        for packed in (b"true", b"false"):
            code, lease = ask(b"Connection.Reader", b'{"resources": ["a"], "packed": %s}' % packed)
            assert (code, lease["endpoint"]) == (202, endpoint)
            ask(b"Lease.Close", b'{"lease": "%s"}' % lease["lease"].encode())


def test_a_directory_in_use_by_a_broker_is_refused(tmp_path: Path) -> None:
    with running(Server(config(tmp_path))), pytest.raises(DirectoryInUse, match=str(os.getpid())):
        Server(config(tmp_path))
    with running(Server(config(tmp_path))):
        pass


@pytest.mark.parametrize("which", ["endpoint", "packed_port", "plain_port"])
def test_a_failed_start_on_a_used_port_releases_the_directory(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given: dict[str, Any] = {which: f"tcp://127.0.0.1:{port}" if which == "endpoint" else port}
        with pytest.raises(BindFailed, match=str(port)):
            Server(config(tmp_path, **given))
    with running(Server(config(tmp_path, **given))):
        pass


def test_a_failed_start_on_a_newer_format_releases_the_directory(tmp_path: Path) -> None:
    store = SqliteStore(f"{tmp_path}/broker.db")
    store._db.execute(f"PRAGMA user_version={VERSION + 1}")
    store.close()
    for _ in range(2):
        with pytest.raises(UnknownFormat):
            Server(config(tmp_path))


def test_a_damaged_secret_is_generated_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def made(letter: bytes) -> bytes:
        engine = DirectoryEngine(str(tmp_path), 1 << 20)
        try:
            return secret(engine, engine.restore(), lambda n: letter * n)
        finally:
            engine.close(lambda _: None)

    assert made(b"a") == b"a" * 32
    assert made(b"b") == b"a" * 32
    store = SqliteStore(f"{tmp_path}/broker.db")
    store._db.execute("UPDATE record SET value = x'00' WHERE kind = 'secret'")
    store.close()
    assert made(b"b") == b"b" * 32
    assert made(b"c") == b"b" * 32
    assert "other random octets" in caplog.text


def test_records_of_an_older_copy_prevent_the_start(tmp_path: Path) -> None:
    with running(Server(config(tmp_path))):
        pass
    older = (tmp_path / "broker.db").read_bytes()
    with running(Server(config(tmp_path))):
        pass
    (tmp_path / "broker.db").write_bytes(older)
    for _ in range(2):
        with pytest.raises(OldRecords, match="mtl recover"):
            Server(config(tmp_path))


def test_a_failed_start_releases_directory_and_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = f"ipc://{tmp_path}/socket"
    with monkeypatch.context() as patch:
        patch.setattr("mtl.broker.runtime.server.LOCAL_KEY", "nowhere/local-key")
        with pytest.raises(OptionError, match="local-key"):
            Server(config(tmp_path / "data", endpoint=endpoint))
    with running(Server(config(tmp_path / "data", endpoint=endpoint))):
        pass


def test_a_data_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot use"):
        Server(config(tmp_path / "file" / "data"))
    with pytest.raises(OptionError, match="cannot use"):
        Server(config(tmp_path / "file"))


def test_an_exception_in_a_worker_thread_ends_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server raises, instead of leaving clients without answers."""
    monkeypatch.setattr(broker_limits, "STOP_S", 0)

    def bug(_: object, __: object) -> object:
        raise AssertionError("a bug")

    server = Server(config(tmp_path))
    monkeypatch.setattr(Storage, "perform", bug)
    server._broker._outbox.submit(lambda number: Trim(number, "x", 1))
    with pytest.raises(AssertionError, match="a bug"):
        server.run()
    with pytest.raises(StorageFailed, match="not synced"):  # the action that failed was not performed
        server._finish()


def test_the_clock_of_the_server_is_monotonic() -> None:
    first, second = clock(), clock()
    assert first.mono <= second.mono
    assert first.wall_us > 1_700_000_000_000_000


def test_users_together_with_an_unlimited_anonymous_are_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for warned in (False, True):
        with running(Server(config(tmp_path / "data"))):
            assert ("there are users" in caplog.text) is warned
        with Users(tmp_path / "data") as users:
            users.grant("anonymous", [GrantRecord("/", "read", ".*")])

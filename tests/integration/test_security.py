"""Users, grants and encryption with a real broker, by the commands of an administrator."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mtl
from mtl.broker.access.accounts import Right
from mtl.broker.runtime.users import Users, new_password
from mtl.client.connection import Connection
from mtl.errors import Refused, Unreachable
from mtl.storage.records import GrantRecord
from mtl.testing import RunningBroker, broker
from mtl.wire import control
from tests.integration.test_cli import run

CLOSED = "[authentication]\nanonymous = false\n"
QUICK: dict[str, Any] = {"request_timeout": 2.0, "retry_deadline": 10.0}
PATIENCE_S = 20.0


class Place:
    """A broker that requires credentials, its data directory, and a file with the password."""

    def __init__(self, running: RunningBroker, password: Path) -> None:
        self.running = running
        self.endpoint = running.endpoint
        self.password = str(password)
        self.data = str(running.data)

    def mtl(self, *arguments: str, code: int = 0) -> str:
        return run(*arguments, "--data", self.data, code=code)

    def add(self, name: str, *, grant: bool = True) -> None:
        add(self.running.data, name, grant=grant)

    def connect(self, user: str | None = "etl", password: str | None = "secret", **more: Any) -> Connection:
        return mtl.connect(self.endpoint, user=user, password=password, **(QUICK | more))

    def comes(self, happened: Callable[[], bool]) -> None:
        """Wait until a running broker has loaded a change, which takes up to a second."""
        until = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < until
            time.sleep(0.3)  # there is no event for it; slower than the limit of log-ins


def add(data: Path, name: str, *, grant: bool = True) -> None:
    """Add a user with the password "secret" and all rights."""
    with Users(data) as users:
        users.add(name, new_password("secret", os.urandom, 4096), [])
        if grant:
            users.grant(name, [GrantRecord("/", right.value, ".*") for right in Right])


def refused(work: Callable[[], object]) -> int:
    """The status of the refusal; 0 without one."""
    try:
        work()
    except Refused as error:
        return error.status
    return 0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_with(tmp_path, CLOSED) as place:
        yield place


@contextmanager
def place_with(tmp_path: Path, configuration: str) -> Iterator[Place]:
    """A broker with the user etl, whose password is "secret"."""
    config, password, data = tmp_path / "broker.toml", tmp_path / "password", tmp_path / "data"
    config.write_text(configuration)
    password.write_text("secret\n")
    data.mkdir()
    add(data, "etl")
    with broker(data, config) as running:
        yield Place(running, password)


# --- users --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-24", "MTL-27", "MTL-31", "MTL-32", "MTL-33")
def test_only_valid_credentials_are_accepted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETL_PASSWORD", "secret")
    for how in ({"password": "secret"}, {"password_file": place.password}, {"password_env": "ETL_PASSWORD"}):
        with mtl.connect(place.endpoint, user="etl", **(QUICK | how)) as connection:
            connection.create_resource("orders", exist_ok=True)
    assert refused(lambda: place.connect(None, None)) == 401
    assert refused(lambda: place.connect(password="wrong")) == 401
    assert refused(lambda: place.connect("nobody")) == 401
    assert refused(lambda: place.connect(sasl_mechanism="PLAIN")) == 401, (
        "not on a connection others can read"
    )
    listed = place.mtl("user", "list")
    assert "etl" in listed
    assert "manage .* in /" in listed


def test_users_survive_a_restart_of_the_broker(place: Place) -> None:
    place.running.kill()
    place.running.restart()
    with place.connect() as connection:
        connection.list_resources()


def test_failed_log_ins_are_limited(place: Place) -> None:
    statuses = [refused(lambda: place.connect(password="a guess")) for _ in range(12)]
    assert statuses[0] == 401
    assert statuses[-1] == 403
    assert refused(place.connect) == 403, "also with the right password, until a minute is over"
    place.add("other")
    place.comes(lambda: refused(lambda: place.connect("other").close()) == 0)


@pytest.mark.requirement("MTL-28", "MTL-29")
@pytest.mark.parametrize("keeps", [False, True])
def test_a_connected_client_logs_in_again_after_a_new_password(
    place: Place, tmp_path: Path, keeps: bool
) -> None:
    """The client reads the new password from its file, logs in again, and its writer continues: with another lease,
    unless the administrator keeps them.
    """
    file = tmp_path / "mine"
    file.write_text("secret")
    other = place.connect()
    with mtl.connect(place.endpoint, user="etl", password_file=file, **QUICK) as connection:
        connection.create_resource("orders")
        with connection.writer("orders") as writer:
            writer.send(b"before")
            writer.flush()
            lease = writer._part.lease
            file.write_text("changed it")
            keep = ["--keep-sessions"] if keeps else []
            place.mtl("user", "password", "etl", "--password-file", str(file), "--iterations", "4096", *keep)
            place.comes(lambda: refused(other.list_resources) == 401)
            assert connection.describe(["orders"])["orders"].contents == 1
            writer.send(b"after")
            writer.flush()
            assert (writer._part.lease is lease) == keeps
        assert connection.describe(["orders"])["orders"].contents == 2
    other.close()


@pytest.mark.requirement("MTL-28")
def test_a_user_removed_while_connected_is_refused(place: Place) -> None:
    place.add("other")
    with place.connect() as admin:
        admin.create_resource("orders")
    place.comes(lambda: refused(lambda: place.connect("other").close()) == 0)
    connection = place.connect("other")
    writer = connection.writer("orders")
    writer.send(b"x")
    writer.flush()
    place.mtl("user", "remove", "other")
    place.comes(lambda: refused(connection.list_resources) == 401)

    def write() -> None:  # the end of the lease is sent at once, so `send` may raise it already
        writer.send(b"y")
        writer.flush()

    assert refused(write) == 401
    writer.abandon()
    connection.close()


# --- grants -------------------------------------------------------------------------------------------------


def test_users_have_only_their_granted_rights(place: Place) -> None:
    place.add("reader", grant=False)
    place.mtl("grant", "reader", "--read", "orders.*")
    with place.connect() as admin:
        admin.create_resource("orders")
        admin.create_resource("salaries")
        place.comes(lambda: refused(lambda: place.connect("reader").close()) == 0)
        with place.connect("reader") as connection:
            assert [r.resource for r in connection.list_resources()] == ["orders"]
            with connection.reader("orders", start="earliest"):
                pass
            for work in (
                lambda: connection.reader("salaries", start="earliest"),
                lambda: connection.writer("orders"),
                lambda: connection.create_resource("orders2"),
                lambda: connection.delete_resource("orders"),
                lambda: connection.describe(["salaries"]),
            ):
                assert refused(work) == 403
            place.mtl("grant", "reader", "--write", "orders")
            place.comes(lambda: refused(lambda: connection.writer("orders").close()) == 0)
            place.mtl("revoke", "reader", "--all")
            place.comes(lambda: refused(lambda: connection.describe(["orders"])) == 403)
    assert refused(lambda: place.connect("reader")) == 403, "nothing to do in this virtual host"


def test_names_without_user_prefix_need_a_grant(place: Place) -> None:
    """One right on a resource suffices for names with the user's prefix; the error names the grant for others."""
    place.add("bi", grant=False)
    place.mtl("grant", "bi", "--read", "orders", "--write", "orders")
    with place.connect() as admin:
        admin.create_resource("orders")
        place.comes(lambda: refused(lambda: place.connect("bi").close()) == 0)
        with place.connect("bi") as connection:
            with connection.writer("orders") as writer:
                writer.send(b"by a name that is made up")
            with connection.writer("orders", name="bi.w") as writer:
                writer.send(b"x")
            with connection.writer(
                "orders", stage=control.StageSpec(application="bi.app", version=1)
            ) as writer:
                writer.send(b"y")
                stage = writer.seal().stage
            connection.stage_commit("bi.app", 1, [stage])
            with connection.reader("orders", group="bi.g", start="earliest") as reader:
                assert next(iter(reader)).body == b"by a name that is made up"
            admin.cursor_open("g", "orders")
            admin.stage_commit("app", 1, [])
            for work, command in (
                (lambda: connection.writer("orders", name="w").close(), "mtl grant bi --writer w"),
                (lambda: connection.cursor_reset("g", "orders", to="latest"), "mtl grant bi --group g"),
                (lambda: connection.cursor_delete("g", "orders"), "mtl grant bi --group g"),
                (lambda: connection.stage_commit("app", 1 << 60, []), "mtl grant bi --application app"),
                (lambda: connection.stage_forget("app"), "mtl grant bi --application app"),
                (lambda: connection.consumer("orders").close(), "mtl grant bi --queue default"),
            ):
                with pytest.raises(Refused) as caught:
                    work()
                assert caught.value.status == 403
                assert f"`{command}` gives the right" in caught.value.message
            place.mtl("grant", "bi", "--queue", "default")
            place.comes(
                lambda: (
                    "bi --write 'orders\\.dead'"
                    in refusal_message(lambda: connection.consumer("orders").close())
                )
            )
            place.mtl("grant", "bi", "--write", "orders\\.dead")
            place.comes(lambda: refused(lambda: connection.consumer("orders").close()) == 0)
            place.mtl("revoke", "bi", "--queue", "default")
            place.comes(lambda: refused(lambda: connection.consumer("orders").close()) == 403)
    assert "queue default" not in place.mtl("user", "list")


def refusal_message(work: Callable[[], object]) -> str:
    """The message of the refusal."""
    with pytest.raises(Refused) as caught:
        work()
    return caught.value.message


# --- CURVE --------------------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    for name in ("broker", "etl", "stranger"):
        run("keys", str(tmp_path / name))
        assert stat.S_IMODE((tmp_path / f"{name}.key").stat().st_mode) == 0o600
    assert "not overwritten" in run("keys", str(tmp_path / "broker"), code=1)
    return tmp_path


def curve(keys: Path, own: str | None = None, server: str = "broker") -> dict[str, Any]:
    options: dict[str, Any] = {"curve_server_key": keys / f"{server}.pub"}
    return options if own is None else {**options, "curve_key_file": keys / f"{own}.key"}


def use(connection: Connection, name: str) -> None:
    """Write and read, to use every socket."""
    connection.create_resource(name)
    for packed in (True, False):
        with connection.writer(name, packed=packed) as writer:
            writer.send(b"x")
        with connection.reader(name, start="earliest", until=2, packed=packed) as reader:
            assert [x.body for x in reader] == [b"x"]


def test_clients_connect_encrypted(keys: Path) -> None:
    with place_with(keys, CLOSED + f'[curve]\nkey-file = "{keys}/broker.key"\n') as place:
        place.mtl("user", "key", "etl", str(keys / "etl.pub"))
        with place.connect(**curve(keys)) as connection:
            use(connection, "with-password")
        with place.connect(**curve(keys), sasl_mechanism="PLAIN") as connection:
            use(connection, "with-plain")
        place.comes(lambda: refused(lambda: place.connect(None, None, **curve(keys, "etl")).close()) == 0)
        with place.connect(None, None, **curve(keys, "etl")) as connection:
            use(connection, "with-key")
        assert refused(lambda: place.connect(None, None, **curve(keys, "stranger"))) == 401
        for wrong in ({}, curve(keys, server="stranger")):
            with pytest.raises(Unreachable, match="CURVE handshake"):
                place.connect(**wrong, request_timeout=0.5, retry_deadline=1.5)


def test_only_known_keys_are_accepted(keys: Path) -> None:
    with place_with(keys, CLOSED + f'[curve]\nkey-file = "{keys}/broker.key"\nclients = "known"\n') as place:
        place.mtl("user", "key", "etl", str(keys / "etl.pub"))
        with place.connect(None, None, **curve(keys, "etl")) as connection:
            use(connection, "mine")
        with pytest.raises(Unreachable, match="CURVE handshake"):
            place.connect(**curve(keys, "stranger"), request_timeout=0.5, retry_deadline=1.5)


def test_the_command_line_adds_users_and_logs_in(keys: Path) -> None:
    with place_with(keys, CLOSED + f'[curve]\nkey-file = "{keys}/broker.key"\n') as place:
        login = (
            "--user",
            "etl",
            "--password-file",
            place.password,
            "--curve-server-key",
            str(keys / "broker.pub"),
        )
        at = ("--endpoint", place.endpoint)
        longer = keys / "longer"
        longer.write_text("long enough\n")
        key = ("--key", str(keys / "stranger.pub"))
        assert "at least 8" in place.mtl("user", "add", "new", "--password-file", place.password, code=1)
        assert "hunter2" not in place.mtl("user", "add", "new", "--password-file", "hunter2", code=1)
        assert "hunter2" not in place.mtl("user", "add", "new", "--password-env", "hunter2", code=1)
        place.mtl("user", "add", "new", "--password-file", str(longer), *key)
        assert "already" in place.mtl("user", "add", "new", "--no-password", code=1)
        assert "no user" in place.mtl("grant", "nobody", "--read", ".*", code=1)
        assert "no right is given" in place.mtl("grant", "new", code=1)
        place.mtl("user", "key", "new", str(keys / "stranger.pub"), "--remove")
        [new] = [
            x for x in map(json.loads, place.mtl("user", "list", "--json").splitlines()) if x["user"] == "new"
        ]
        assert new == {"user": "new", "password": True, "keys": [], "grants": []}
        run(*login, *at, "resource", "create", "orders")
        assert "orders" in run(*login, *at, "resource", "list")
        assert "401" in run("--curve-server-key", str(keys / "broker.pub"), *at, "resource", "list", code=1)

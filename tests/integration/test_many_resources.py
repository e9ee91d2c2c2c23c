"""One above each limit that a larger system reaches: a real broker, its client and the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mtl
from mtl.client.connection import Connection
from mtl.client.holder_part import HeldPosition
from mtl.errors import DataLoss, Fenced, Refused
from mtl.testing import RunningBroker, broker

COUNT = 1_001
NAMES = [f"many.{number:04}" for number in range(COUNT)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with 1,001 resources of one content each. Two lease requests create them."""
    config = tmp_path_factory.mktemp("many") / "broker.toml"
    config.write_text('auto-create = ["many.*"]\n')
    with broker("memory:", config) as running, mtl.connect(running.endpoint) as connection:
        for part in (NAMES[:1_000], NAMES[1_000:]):
            with connection.writer(part) as writer:
                for name in part:
                    writer.send(name.encode(), resource=name)
        yield running


@pytest.fixture
def connection(running: RunningBroker) -> Iterator[Connection]:
    with mtl.connect(running.endpoint) as connection:
        yield connection


def test_resources_are_listed_and_described(connection: Connection) -> None:
    assert [found.resource for found in connection.list_resources()] == NAMES
    assert list(connection.describe(pattern="many.*")) == NAMES
    assert list(connection.describe(NAMES, history=True)) == NAMES
    assert list(connection.describe([*NAMES, "none"], missing_ok=True)) == NAMES
    with pytest.raises(Refused, match="404"):
        connection.describe([*NAMES, "none"])


@pytest.mark.parametrize("names", [NAMES, None], ids=["names", "pattern"])
def test_changes_are_awaited(connection: Connection, names: list[str] | None) -> None:
    pattern = None if names else "many.*"
    before = connection.describe(names, pattern)
    assert connection.describe(names, pattern, since=before.state, wait=0.05) == {}
    with connection.writer(NAMES[-1]) as writer:
        writer.send(b"more")
    assert list(connection.describe(names, pattern, since=before.state, wait=20.0)) == [NAMES[-1]]


def test_the_command_line_lists_all(running: RunningBroker) -> None:
    command = [
        sys.executable,
        "-m",
        "mtl.cli.main",
        "resource",
        "list",
        "--endpoint",
        running.endpoint,
        "--json",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert all(name in listed.stdout for name in (NAMES[0], NAMES[-1]))


def test_a_holder_confirms_in_all_resources(connection: Connection) -> None:
    leases = [
        connection.hold(dict.fromkeys(part, HeldPosition(1)), holder="me", group="held")
        for part in (NAMES[:1_000], NAMES[1_000:])
    ]
    assert [len(lease.held) for lease in leases] == [1_000, 1]
    for lease in leases:
        for name in lease.held:
            lease.confirm(name, 1)
        lease.ping()
    assert [cursor.resource for cursor in connection.cursors("held")] == NAMES
    assert {cursor.position for cursor in connection.cursors("held")} == {2}
    with connection.hold({NAMES[0]: HeldPosition(1)}, holder="other", group="held"):
        with pytest.raises(Fenced):
            leases[0].ping()
        with pytest.raises(Fenced):
            leases[0].add({NAMES[1]: HeldPosition(1)})
        leases[1].ping()
    for lease in leases:
        lease.close()


def test_a_holder_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    with broker(tmp_path) as running, mtl.connect(running.endpoint) as connection:
        for name in ("a", "b"):
            connection.create_resource(name)
            with connection.writer(name) as writer:
                writer.send(b"1")
                writer.send(b"2")
        positions = {
            "a": HeldPosition(1),
            "b": HeldPosition(2),
            "none": HeldPosition(1),
            "c": HeldPosition(9),
        }
        connection.create_resource("c")
        with connection.hold(positions, holder="me", group="g") as holder:
            assert set(holder.held) == {"a", "b"}
            assert isinstance(holder.unheld["c"], DataLoss)
            assert holder.unheld["none"].reason == "unknown-resource"
            holder.confirm("a", 1)
            holder.confirm("b", 1)  # before its position: processed by an earlier holder
            holder.ping()
            assert {x.resource: x.position for x in connection.cursors("g")} == {"a": 2, "b": 2}
            running.kill()
            running.start()
            holder.confirm("b", 2)
            holder.ping()
            assert {x.resource: x.position for x in connection.cursors("g")} == {"a": 2, "b": 3}
            connection.delete_resource("a")
            holder.add({"c": HeldPosition(1)})
            assert set(holder.held) == {"b", "c"}
            holder.forget("b")
            holder.add({"c": HeldPosition(1)})
            assert set(holder.held) == {"c"}

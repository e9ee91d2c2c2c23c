"""Real data directories with losses: their start, and the output of `mtl verify` and `mtl recover`."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mtl
from mtl.errors import Refused, Unreachable
from mtl.testing import broker
from mtl.wire.control import StageSpec

PATIENCE_S = 60


def run(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mtl.cli.main", *arguments],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a resource, a group at half of it, and a commit; no broker uses it."""
    data = tmp_path / "data"
    with broker(data) as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        with connection.writer("orders") as writer:
            for number in range(10):
                writer.send(b"%d" % number)
        connection.cursor_open("group", "orders", start=6)
        commit(connection, 1)
    return data


def commit(connection: mtl.Connection, version: int) -> None:
    with connection.writer("orders", stage=StageSpec(application="app", version=version)) as writer:
        writer.send(b"committed")
        stage = writer.seal().stage
    connection.stage_commit("app", version, [stage])


@contextmanager
def serving(data: Path) -> Iterator[mtl.Connection]:
    with broker(data) as running, mtl.connect(running.endpoint) as connection:
        yield connection


def bodies(connection: mtl.Connection, name: str = "orders") -> list[bytes]:
    end = connection.describe(name)[name].next
    with connection.reader(name, start="earliest", until=end) as reader:
        return [content.body for content in reader]


def test_an_intact_directory(data: Path) -> None:
    assert "no problems" in run("verify", str(data))
    assert "nothing to recover" in run("recover", str(data))
    with serving(data) as connection:
        assert "no problems" in run("verify", str(data))
        assert "using" in run("recover", str(data), code=1)
        assert len(bodies(connection)) == 11
    assert "not a data directory" in run("recover", str(data / "resources"), code=1)


def change(data: Path, sql: str) -> None:
    with sqlite3.connect(data / "broker.db") as db:
        db.execute(sql)
    db.close()


def test_a_damaged_record_of_a_resource_is_restored(data: Path) -> None:
    change(data, "UPDATE record SET value = x'00' WHERE kind = 'resource'")
    assert "resource [" in run("verify", str(data), code=1)
    with serving(data) as connection:
        assert len(bodies(connection)) == 11
    assert "no problems" in run("verify", str(data))


def test_a_group_with_a_damaged_record_is_refused_until_removed(data: Path) -> None:
    change(data, "UPDATE record SET value = replace(value, ':6', ':1') WHERE kind = 'cursor'")
    with serving(data) as connection:
        with pytest.raises(Refused, match="cannot be read") as refused:
            connection.cursor_open("group", "orders", start=1)
        assert (refused.value.status, refused.value.reason) == (503, "storage")
        assert len(bodies(connection)) == 11
    (damaged,) = [json.loads(text) for text in run("recover", str(data), "--json").splitlines()]
    assert damaged["what"].startswith("cursor [")
    run("recover", str(data), "--forget", damaged["what"])
    assert "not a damaged record" in run("recover", str(data), "--forget", damaged["what"], code=1)
    with serving(data) as connection:
        assert connection.cursor_open("group", "orders", start=1).created
    assert "no problems" in run("verify", str(data))


def test_a_commit_with_a_damaged_record_is_not_repeated(data: Path) -> None:
    change(data, "UPDATE record SET value = x'00' WHERE kind = 'application'")
    with serving(data) as connection:
        with pytest.raises((Refused, Unreachable), match="cannot be read"):
            commit(connection, 1)
        assert len(bodies(connection)) == 11


def test_a_log_without_record_is_kept_and_can_be_restored(data: Path) -> None:
    (log,) = (data / "resources").iterdir()
    for file in ("broker.db", "generation"):
        (data / file).unlink()
    for left in data.glob("broker.db-*"):
        left.unlink()
    with serving(data) as connection:
        assert connection.describe() == {}
        connection.create_resource("orders")
    assert (data / "lost+found" / f"resource-{log.name}" / "manifest").exists()
    name = f"resource-{log.name}"
    assert "resource 'orders' of virtual host '/', contents 1 to 11" in run("recover", str(data))
    assert "give this one another name" in run("recover", str(data), name, code=1)
    run("recover", str(data), name, "--as", "found")
    with serving(data) as connection:
        assert len(bodies(connection, "found")) == 11
        assert bodies(connection, "orders") == []
    assert "no problems" in run("verify", str(data))


def test_an_older_copy_of_the_records_is_refused_until_accepted(data: Path) -> None:
    older = (data / "broker.db").read_bytes()
    with serving(data) as connection:
        connection.create_resource("more")
        with connection.writer("more") as writer:
            writer.send(b"x")
    (data / "broker.db").write_bytes(older)
    assert "older copy" in run("verify", str(data), code=1)
    assert "mtl recover" in run("broker", "--data", str(data), "--endpoint", "tcp://127.0.0.1:0", code=1)
    assert "--accept-records" in run("recover", str(data))
    assert "was created again" in run("recover", str(data), "--accept-records")
    with serving(data) as connection:
        assert bodies(connection, "more") == [b"x"]
        assert len(bodies(connection)) == 11


def test_a_missing_write_ahead_log_is_detected(data: Path) -> None:
    with broker(data) as running:
        with mtl.connect(running.endpoint) as connection:
            connection.create_resource("more")
        running.kill()
    for name in ("broker.db-wal", "broker.db-shm"):
        (data / name).unlink()
    assert "older copy" in run("verify", str(data), code=1)
    assert "broker.db-wal" in run("broker", "--data", str(data), "--endpoint", "tcp://127.0.0.1:0", code=1)
    assert len(list((data / "resources").iterdir())) == 2, "nothing was removed"


def test_a_missing_or_damaged_manifest_is_rebuilt(data: Path) -> None:
    (log,) = (data / "resources").iterdir()
    for damage in (None, b"x"):
        (log / "manifest").unlink()
        if damage is not None:
            (log / "manifest").write_bytes(damage)
        run("verify", str(data), code=1)
        assert "--manifests" in run("recover", str(data))
        assert "has a manifest again" in run("recover", str(data), "--manifests")
        assert "no problems" in run("verify", str(data))
    with serving(data) as connection:
        assert len(bodies(connection)) == 11


def test_verify_compares_records_and_logs(data: Path) -> None:
    (log,) = (data / "resources").iterdir()
    shutil.copytree(log, data / "resources" / "another")
    assert "resources/another: no record names it" in run("verify", str(data), code=1)
    shutil.rmtree(data / "resources" / "another")
    log.rename(data / "moved")
    found = [json.loads(text) for text in run("verify", str(data), "--json", code=1).splitlines()]
    assert found == [
        {
            "record": f"resources/{log.name}",
            "problems": [{"message": "the log of resource 'orders' of '/' is not there"}],
        }
    ]


def test_verify_reports_a_file_that_is_not_a_database(data: Path) -> None:
    (data / "broker.db").write_bytes(b"not a database" * 100)
    assert "file is not a database" in run("verify", str(data), code=1)
    assert "--accept-records" in run("broker", "--data", str(data), "--endpoint", "tcp://127.0.0.1:0", code=1)
    run("recover", str(data), "--accept-records")
    with serving(data) as connection:
        assert len(bodies(connection)) == 11

"""`mtl broker --data memory:` as a process: all client operations, no files, and a reported bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mtl
import mtl.testing
from mtl.errors import MtlError, Refused
from mtl.wire import control

WAIT_S = 60.0


def refusal(*arguments: str) -> str:
    """The error of a failing command."""
    command = [sys.executable, "-m", "mtl.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_contents_groups_and_commits_work_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bodies = [b"%d" % n for n in range(5_000)]
    with mtl.testing.broker(data="memory:") as broker, mtl.connect(broker.endpoint) as connection:
        connection.create_resource("orders")
        with connection.writer("orders", name="w", packed=True) as writer:
            for body in bodies:
                writer.send(body)
        with connection.writer("orders", name="w") as writer:
            assert writer.last == {"orders": 5_000}
            writer.send(b"plain")
        with connection.writer("orders", stage=control.StageSpec(application="app", version=1)) as writer:
            writer.send(b"staged")
            sealed = writer.seal().stage
        committed, again = (connection.stage_commit("app", 1, [sealed]) for _ in range(2))
        assert committed.resources == again.resources
        with connection.reader("orders", start="earliest", until=5_003, group="g") as reader:
            assert [content.body for content in reader] == [*bodies, b"plain", b"staged"]
            reader.confirm(5_002)
            assert reader.ping_holder() == 5_003
        assert connection.describe(["orders"])["orders"].contents == 5_002
        assert list(tmp_path.iterdir()) == []


def test_a_restarted_broker_is_empty() -> None:
    with mtl.testing.broker(data="memory:") as broker:
        with mtl.connect(broker.endpoint) as connection:
            connection.create_resource("orders")
        broker.restart()
        with mtl.connect(broker.endpoint) as connection:
            assert connection.describe() == {}


def test_a_full_memory_is_reported_and_writable_again_with_space(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("memory-bytes = 1_000_000\nlow-watermark = 1\n")
    with (
        mtl.testing.broker(data="memory:", config=config) as broker,
        mtl.connect(broker.endpoint) as connection,
    ):
        connection.create_resource("large")
        connection.create_resource("small")
        with connection.writer("large") as writer:
            writer.send(bytes(990_000))
        with connection.writer("small") as writer:
            for _ in range(100):
                writer.send(bytes(1_000))
            with pytest.raises(MtlError):
                writer.flush(2.0)
            trouble = connection.describe(["small"])["small"].trouble
            assert trouble is not None
            assert "memory for contents is full" in trouble
            error = refused(connection)
            assert (error.status, error.reason) == (503, control.STORAGE)
            assert "memory-bytes" in error.message
            connection.delete_resource("large")
            writer.flush(WAIT_S)
        with connection.reader("small", start="earliest", until=101) as reader:
            assert len(list(reader)) == 100


def refused(connection: mtl.Connection) -> Refused:
    """The refusal of a new resource, which needs little space."""
    for number in range(100):
        try:
            connection.create_resource(f"another{number}")
        except Refused as error:
            return error
    raise AssertionError("there is room")


def test_options_without_effect_in_memory_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('data = "memory:"\n[authentication]\nanonymous = false\n')
    assert "has no users" in refusal("broker", "--config", str(config))
    assert "memory-bytes" in refusal("broker", "--data", "memory:1GiB")
    assert "has no users" in refusal("user", "list", "--data", "memory:")

"""A broker whose disk has less free space than its low watermark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import mtl
from mtl.errors import Refused
from mtl.testing import broker
from mtl.wire import control

NEVER = 1 << 60
"""A watermark that every disk is below."""

PATIENCE_S = 20.0


def refused_writer(endpoint: str) -> Refused:
    """Wait until writers are refused: a broker checks its disk once a second."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with mtl.connect(endpoint, retry_deadline=1.0) as connection:
            try:
                connection.writer("orders").abandon()
            except Refused as error:
                return error
    raise AssertionError("writers are served")


def test_below_the_watermark_readers_and_commits_work_and_writers_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("low-watermark = 1\n")
    stage = control.StageSpec(application="app", version=1)
    with broker(tmp_path / "data", config) as running:
        with mtl.connect(running.endpoint) as connection:
            connection.create_resource("orders")
            with connection.writer("orders") as writer:
                writer.send(b"before")
            with connection.writer("orders", stage=stage) as writer:
                writer.send(b"staged before")
                sealed = writer.seal().stage
        running.stop()
        config.write_text(f"low-watermark = {NEVER}\n")
        running.start()
        error = refused_writer(running.endpoint)
        assert (error.status, error.reason) == (503, control.READ_ONLY)
        assert "low-watermark" in error.message
        assert error.members["watermark"] == NEVER
        with mtl.connect(running.endpoint) as connection:
            connection.stage_commit("app", 1, [sealed])
            with connection.reader("orders", start="earliest", until=3, group="g") as reader:
                bodies = []
                for content in reader:
                    bodies.append(content.body)
                    reader.confirm(content.sequence)
            assert bodies == [b"before", b"staged before"]
        running.stop()
        config.write_text("low-watermark = 1\n")
        running.start()
        with mtl.connect(running.endpoint) as connection, connection.writer("orders") as writer:
            writer.send(b"after")


def test_a_writer_waits_below_the_watermark_and_continues_above(tmp_path: Path) -> None:
    """Across a restart, because a test cannot fill the disk: the writer waits up to its deadline."""
    config = tmp_path / "broker.toml"
    config.write_text("low-watermark = 1\n")
    with broker(tmp_path / "data", config) as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("orders")
        with connection.writer("orders") as writer:
            writer.send(b"1")
            writer.flush()
            running.stop()
            config.write_text(f"low-watermark = {NEVER}\n")
            running.start()
            refused_writer(running.endpoint)
            writer.send(b"2")
            with pytest.raises(mtl.errors.MtlError):
                writer.flush(1.0)
            running.stop()
            config.write_text("low-watermark = 1\n")
            running.start()
            writer.flush()
        with connection.reader("orders", start="earliest", until=3) as reader:
            assert [content.body for content in reader] == [b"1", b"2"]

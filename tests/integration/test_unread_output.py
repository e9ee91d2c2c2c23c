"""A broker and a door whose output nobody reads: they serve, log without waiting, and stop within their bound."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mtl
from mtl.testing import RunningBroker
from tests.support.processes import killed_after
from tests.support.unread import OUTPUTS, full_pipe

STOP_S = 20.0
"""A stop without work takes a second, and the last lines wait for LAST_TEXT_S."""


def run(arguments: list[str], output: int) -> subprocess.Popen[bytes]:
    """`mtl` with this descriptor as standard output and standard error."""
    return subprocess.Popen(
        [sys.executable, "-m", "mtl.cli.main", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )


def publish(endpoint: str) -> None:
    """Create a resource, which is a line in the audit log, and store a content."""
    with mtl.connect(endpoint, retry_deadline=30) as connection:
        connection.create_resource("r")
        with connection.writer("r") as writer:
            writer.send(b"x")
            writer.flush()


def stop(process: subprocess.Popen[bytes], number: int) -> int:
    process.send_signal(number)
    return process.wait(STOP_S)


@pytest.mark.parametrize(
    ("output", "number"),
    [
        ("full pipe", signal.SIGTERM),
        ("paused terminal", signal.SIGINT),
        ("pipe without reader", signal.SIGTERM),
        ("full disk", signal.SIGINT),
    ],
)
def test_a_broker_and_its_door_serve_and_stop(tmp_path: Path, output: str, number: int) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('[doors.mc0]\nlisten = "tcp://127.0.0.1:0"\ncreate = ["*"]\n')
    endpoint = f"ipc://{tmp_path / 's'}"
    arguments = ["--config", str(config), "--endpoint", endpoint, "--data", str(tmp_path / "data")]
    with (
        OUTPUTS[output]() as unread,
        killed_after(run(["broker", *arguments, "--log-level", "debug"], unread.descriptor)) as process,
    ):
        publish(endpoint)
        os.kill(process.pid, signal.SIGHUP)
        assert stop(process, number) == 0


def test_a_door_serves_and_stops(mtl_broker: RunningBroker, tmp_path: Path) -> None:
    socket = tmp_path / "door"
    arguments = [
        "mc0",
        "--connect",
        mtl_broker.endpoint,
        "--listen",
        f"ipc://{socket}",
        "--log-level",
        "debug",
    ]
    with full_pipe() as unread, killed_after(run(["door", *arguments], unread.descriptor)) as process:
        until = time.monotonic() + 30
        while not socket.exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        assert stop(process, signal.SIGTERM) == 0


def test_lines_are_there_when_the_reader_reads_again(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path / 's'}"
    arguments = ["broker", "--endpoint", endpoint, "--data", "memory:"]
    with full_pipe() as unread, killed_after(run(arguments, unread.descriptor)) as process:
        publish(endpoint)
        text = b""
        while b"resource-created" not in text:
            assert select.select([unread.reader], [], [], 20)[0], text
            text += os.read(unread.reader, 1 << 16)
        assert b"mtl broker ready at " in text
        assert stop(process, signal.SIGTERM) == 0
        assert b"stopped: " in os.read(unread.reader, 1 << 16)


def test_an_interrupt_ends_a_command_whose_output_nobody_reads(mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("r")
        with connection.writer("r") as writer:
            writer.send(b"x")
    arguments = ["--endpoint", mtl_broker.endpoint, "consume", "r"]
    with full_pipe() as unread, killed_after(run(arguments, unread.descriptor)) as process:
        until = time.monotonic() + 30
        with mtl.connect(mtl_broker.endpoint) as connection:
            while not any(queue.delivered for queue in connection.queues()):
                assert time.monotonic() < until
                time.sleep(0.05)
        assert stop(process, signal.SIGINT) == 128 + signal.SIGINT

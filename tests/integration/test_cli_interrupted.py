"""Ctrl-C ends a command soon, whether the broker works, is stopped or is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import mtl
import mtl.testing
from mtl.testing import RunningBroker

SOON_S = 6.0
"""Two seconds, and the delays of a loaded machine. Without the limits of the client it was 8 to 15."""

COMMANDS = {
    "tail": ["tail", "r", "--follow", "--from", "earliest"],
    "consume": ["consume", "r"],
    "publish": ["publish", "r"],
}


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """One that may be killed."""
    with mtl.testing.broker() as running:
        yield running


@pytest.mark.parametrize("fate", ["works", "stopped", "gone"])
def test_an_interrupted_command_ends_soon(broker: RunningBroker, fate: str) -> None:
    with mtl.connect(broker.endpoint) as connection:
        connection.create_resource("r")
        with connection.writer("r") as writer:
            writer.send(b"first")
        commands = {name: begun(broker, arguments) for name, arguments in COMMANDS.items()}
        publishing = commands["publish"]
        assert publishing.stdin is not None
        publishing.stdin.write(b"last\n")
        publishing.stdin.flush()
        for name in ("tail", "consume"):
            output = commands[name].stdout
            assert output is not None
            assert output.readline() == b"first\n"
            assert name == "consume" or output.readline() == b"last\n"
    pid = broker.pid
    if fate == "stopped":
        os.kill(pid, signal.SIGSTOP)
    elif fate == "gone":
        broker.kill()
    try:
        began = time.monotonic()
        for command in commands.values():
            command.send_signal(signal.SIGINT)
        for name, command in commands.items():
            _, errors = command.communicate(timeout=60)
            assert time.monotonic() - began < SOON_S, name
            assert b"Traceback" not in errors
            assert command.returncode != 0
            assert name != "publish" or b"1 contents published to r are durable" in errors
    finally:
        for command in commands.values():
            command.kill()
        if fate == "stopped":
            os.kill(pid, signal.SIGCONT)


def begun(broker: RunningBroker, arguments: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mtl.cli.main", "--endpoint", broker.endpoint, *arguments]
    pipes = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipes, stdout=pipes, stderr=pipes)

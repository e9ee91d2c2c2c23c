"""Ctrl-C ends a command soon, whether the broker works, is stopped or is gone, and whatever the command waits for."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import mtl
import mtl.testing
from mtl.testing import RunningBroker
from tests.bridging.ends import DOORS
from tests.support import command_table
from tests.support.forked_commands import ForkedCommands
from tests.support.minimal_server import MinimalServer

SOON_S = 2.0
"""Seconds from the signal to the end of the process, on a machine without load."""

PATIENCE_S = 30.0

SERVING = {"broker", "door"}
"""Commands that serve. A door is below, with a real broker; a stopped broker is not in the hands of its command."""

COMMANDS = {
    name: command
    for name, command in command_table.commands().items()
    if command_table.talks(command) and name not in SERVING
}


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkedCommands]:
    with ForkedCommands() as started:
        yield started


def interrupt(forks: ForkedCommands, commands: dict[str, int]) -> dict[str, int]:
    """Interrupt all of them at once. Returns their exit codes; each has to end soon."""
    for pid in commands.values():
        forks.interrupt(pid)
    ends = {name: forks.wait(pid, PATIENCE_S) for name, pid in commands.items()}
    late = {
        name: end and f"{end.seconds:.2f} s" for name, end in ends.items() if not end or end.seconds > SOON_S
    }
    assert not late
    return {name: end.code for name, end in ends.items() if end is not None}


# --- every command that asks a broker -----------------------------------------------------------------------


class MuteServer(MinimalServer):
    """Answers the first requests, and then none; `reached` is set at the first that it does not answer."""

    def __init__(self, answers: int) -> None:
        super().__init__(profiles=("log", "queue", "test"), full=True)
        self.reached = threading.Event()
        self._answers = answers

    def decide(self, peer: bytes, name: str, body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        code, members = super().decide(peer, name, body)
        return code, members | {"session": "token"} if name == "connection.open" else members

    def reply(self, envelope: list[bytes], name: str, frames: list[bytes]) -> None:
        if len(self.requests) > self._answers:
            self.reached.set()
        else:
            super().reply(envelope, name, frames)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The values of required arguments."""
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    (checkpoint / "offsets").mkdir()
    held = '{"resources": {"r": {"i": "i", "n": 1}}, "version": 1}'
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{held}\n")
    return {"directory": str(checkpoint), "to": "earliest"}


@pytest.mark.parametrize("fate", ["stopped", "gone"])
@pytest.mark.parametrize("answers", [0, 2], ids=["log-in", "request"])
def test_every_command_ends_soon_after_an_interrupt(
    forks: ForkedCommands, values: dict[str, str], tmp_path: Path, fate: str, answers: int
) -> None:
    with ExitStack() as stack:
        servers = {name: MuteServer(answers) for name in COMMANDS}
        serving = {name: stack.enter_context(ExitStack()) for name in COMMANDS}
        started = {}
        for name, command in COMMANDS.items():
            endpoint = serving[name].enter_context(servers[name]).endpoint
            words = command_table.arguments(name, command, values)
            started[name] = forks.start(["--endpoint", endpoint, *words], tmp_path / name)
        for name, server in servers.items():
            assert server.reached.wait(PATIENCE_S), (name, (tmp_path / name).read_text())
        if fate == "gone":
            for served in serving.values():
                served.close()
        codes = interrupt(forks, started)
    for name, code in codes.items():
        assert code == 128 + signal.SIGINT, name
        assert "Traceback" not in (tmp_path / name).read_text(), name


@pytest.mark.parametrize("answers", [0, 1])
def test_a_starting_door_ends_soon_after_an_interrupt(
    forks: ForkedCommands, tmp_path: Path, answers: int
) -> None:
    # The first connection only finds out whether there is a broker; the second one is the door's.
    with MuteServer(answers) as server:
        words = ["--endpoint", server.endpoint, "door", "mc0", "--listen", "tcp://127.0.0.1:0"]
        door = forks.start(words, tmp_path / "output")
        assert server.reached.wait(PATIENCE_S), (tmp_path / "output").read_text()
        assert interrupt(forks, {"door": door}) == {"door": 0}


# --- with a real broker: contents under way -----------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """One that may be killed."""
    with mtl.testing.broker() as running:
        yield running


@pytest.mark.parametrize("fate", ["works", "stopped", "gone"])
def test_commands_in_the_middle_of_their_work_end_soon(
    forks: ForkedCommands, broker: RunningBroker, tmp_path: Path, fate: str
) -> None:
    os.mkfifo(tmp_path / "lines")
    with mtl.connect(broker.endpoint) as connection:
        connection.create_resource("r")
        with connection.writer("r") as writer:
            writer.send(b"first")
    commands = {
        "tail": ["tail", "r", "--follow", "--from", "earliest"],
        "consume": ["consume", "r"],
        "publish": ["publish", "r", str(tmp_path / "lines")],
        **{name: ["door", name, "--listen", end.listen, "--create", "*"] for name, end in DOORS.items()},
    }
    outputs = {name: tmp_path / name for name in commands}
    started = {
        name: forks.start(["--endpoint", broker.endpoint, *words], outputs[name])
        for name, words in commands.items()
    }
    with (tmp_path / "lines").open("wb", buffering=0) as lines:
        lines.write(b"last\n")
        await_line(outputs["consume"], "(first)\n")
        await_line(outputs["tail"], "(last)\n")
        places = {name: await_line(outputs[name], r"ready at (\S+) ") for name in DOORS}
        codes = asyncio.run(interrupt_used_doors(forks, started, places, broker, fate))
    for name, code in codes.items():
        assert code == (0 if name in DOORS else 128 + signal.SIGINT), name
        assert "Traceback" not in outputs[name].read_text(), name
    assert "1 contents published to r are durable" in outputs["publish"].read_text()


@contextmanager
def met_by(broker: RunningBroker, fate: str) -> Iterator[None]:
    """The broker works, is stopped, or is gone during the block."""
    if fate == "gone":
        broker.kill()
    if fate != "stopped":
        yield
        return
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


async def interrupt_used_doors(
    forks: ForkedCommands,
    started: dict[str, int],
    places: Mapping[str, str],
    broker: RunningBroker,
    fate: str,
) -> dict[str, int]:
    """Interrupt everything while each door has a reader, and a content under way to the broker."""
    async with AsyncExitStack() as stack:
        writers = {}
        for name, place in places.items():
            end = DOORS[name]
            connection = await stack.enter_async_context(end.connect(place))
            await end.reader(connection, "r", "latest").__aenter__()  # not left: that would wait for the door
            writers[name] = await end.writer(connection, "r").__aenter__()
            await end.put(writers[name], b"before", {})
            await writers[name].flush()
        with met_by(broker, fate):
            for name, writer in writers.items():
                await DOORS[name].put(writer, b"under way", {})
            return interrupt(forks, started)


def await_line(output: Path, pattern: str) -> str:
    """The pattern's group in the output of a process."""
    until = time.monotonic() + PATIENCE_S
    while not (found := re.search(pattern, output.read_text() if output.exists() else "")):
        assert time.monotonic() < until, output.read_text()
        time.sleep(0.02)
    return found[1]

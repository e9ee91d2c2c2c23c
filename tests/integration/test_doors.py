"""Doors as processes: beside the broker by its configuration, and apart from it by `mtl door`."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mtl.broker.users import Users
from mtl.client import aio
from mtl.doors.mc0 import client as mc0
from mtl.doors.reactive import client as reactive
from mtl.errors import Unreachable
from mtl.net.curve import read_public, write_keys
from mtl.testing import RunningBroker, broker
from tests.integration.test_security import CLOSED, add, place_with
from tests.support.aio import in_loop, until
from tests.support.doors import PATIENCE_S, await_line, door_process


@in_loop
async def test_a_door_apart_from_the_broker_stops_cleanly(mtl_broker: RunningBroker) -> None:
    arguments = ["mc0", "--connect", mtl_broker.endpoint, "--listen", "tcp://127.0.0.1:0"]
    with door_process(*arguments) as process:
        assert process.stdout is not None
        place = await_line(process.stdout.fileno(), r"mtl door mc0 ready at (\S+) ")
        async with mc0.connect(place) as c, c.writer("orders") as w:
            await (await w.send(b"through"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@in_loop
async def test_what_a_killed_door_had_confirmed_is_there(mtl_broker: RunningBroker) -> None:
    arguments = ["reactive", "--connect", mtl_broker.endpoint, "--listen", "127.0.0.1:0"]
    with door_process(*arguments) as process:
        assert process.stdout is not None
        place = await_line(process.stdout.fileno(), r"mtl door reactive ready at (\S+) ")
        c = await reactive.connect(place)
        w = await c.writer("orders")
        sent = [await w.send(b"%d" % n) for n in range(500)]
        await sent[100]
        process.kill()
        await until(lambda: w.error is not None)  # all may have been confirmed before it died
        confirmed = sum(one.exception() is None for one in sent)
        assert confirmed > 100
        with pytest.raises(Unreachable):
            await w.send(b"late")
        await c.close()
    async with aio.connect(mtl_broker.endpoint) as beside, beside.reader("orders", until=confirmed + 1) as r:
        assert [content.body async for content in r] == [b"%d" % n for n in range(confirmed)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], b"there is no door"),
        (["mc0", "--listen", "tcp://127.0.0.1:1:2"], b"cannot listen"),
        (["mbws", "--key-file", "key.pem"], b"belong together"),
    ],
)
def test_what_cannot_be_is_one_line(mtl_broker: RunningBroker, arguments: list[str], words: bytes) -> None:
    command = [sys.executable, "-m", "mtl.cli.main", "door", *arguments, "--connect", mtl_broker.endpoint]
    done = ended(command)
    assert done.returncode == 1
    assert words in done.stderr.splitlines()[-1]
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_door_beside_the_broker_ends_with_it(
    tmp_path: Path, how: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f"ipc://{tmp_path}/mc0"
    config = tmp_path / "broker.toml"
    config.write_text(f'[doors.mc0]\nlisten = "{place}"\n')

    async def use() -> None:
        async with mc0.connect(place) as c, c.writer("orders") as w:
            await (await w.send(b"beside"))

    with broker(tmp_path / "data", config) as running:
        in_loop(use)()
        (door,) = children(running.pid)
        ended = os.pidfd_open(door)
        if how is signal.SIGTERM:
            running.stop()
        else:
            running.kill()
        assert select.select([ended], [], [], PATIENCE_S)[0], "the door outlives its broker"
        os.close(ended)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A broker's pair and a door's."""
    for name in ("broker", "door"):
        write_keys(tmp_path / name)
    return tmp_path


@in_loop
async def test_a_door_comes_in_at_a_broker_that_demands_credentials_and_curve(keys: Path) -> None:
    with place_with(keys, CLOSED + f'[curve]\nkey-file = "{keys}/broker.key"\n') as place:
        encrypted = ["--curve-server-key", f"{keys}/broker.pub"]
        login = ["--user", "etl", "--password-file", place.password, *encrypted]
        door = ["door", "reactive", "--connect", place.endpoint, "--listen", "127.0.0.1:0"]
        with door_process(*door[1:], before=login) as process:
            assert process.stdout is not None
            listening = await_line(process.stdout.fileno(), r"mtl door reactive ready at (\S+) ")
            async with reactive.connect(listening) as c, c.reader("orders") as r, c.writer("orders") as w:
                await w.send(b"through")
                assert (await r.next()).body == b"through"
        command = [sys.executable, "-m", "mtl.cli.main", *encrypted, *door]
        done = await asyncio.to_thread(ended, command)
        assert done.returncode == 1
        assert b"401" in done.stderr


@in_loop
async def test_a_door_beside_the_broker_comes_in_by_its_key(keys: Path) -> None:
    place = f"ipc://{keys}/mc0"
    configuration = (
        f'{CLOSED}[curve]\nkey-file = "{keys}/broker.key"\n'
        f'[doors.mc0]\nlisten = "{place}"\nuser = "etl"\ncurve-server-key = "{keys}/broker.pub"\n'
        f'curve-client-key-file = "{keys}/door.key"\n'
    )
    config, data = keys / "broker.toml", keys / "data"
    config.write_text(configuration)
    data.mkdir()
    add(data, "etl")
    with Users(data) as users:
        users.add_key("etl", read_public(f"{keys}/door.pub").decode())
    with broker(data, config):
        async with mc0.connect(place) as c, c.writer("orders") as w:
            await (await w.send(b"beside"))


def ended(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False)
    return [int(line) for line in listed.stdout.split()]

"""Doors as processes: started by the broker's configuration, and separately by `mtl door`."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mtl.broker.runtime.users import Users
from mtl.client import aio
from mtl.doors.addresses import DEFAULTS
from mtl.doors.mc0 import client as mc0
from mtl.doors.reactive import client as reactive
from mtl.doors.running import DOORS
from mtl.errors import Unreachable
from mtl.net.curve import read_public, write_keys
from mtl.testing import RunningBroker, broker
from tests.integration.test_security import CLOSED, add, place_with
from tests.support.aio import in_loop, until
from tests.support.doors import PATIENCE_S, await_line, door_process
from tests.support.processes import killed_after


@in_loop
async def test_a_separate_door_stops_cleanly(mtl_broker: RunningBroker) -> None:
    arguments = ["mc0", "--connect", mtl_broker.endpoint, "--listen", "tcp://127.0.0.1:0"]
    with door_process(*arguments) as process:
        assert process.stdout is not None
        place = await_line(process.stdout.fileno(), r"mtl door mc0 ready at (\S+) ")
        async with mc0.connect(place) as c, c.writer("orders") as w:
            await (await w.send(b"through"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


@in_loop
async def test_contents_confirmed_by_a_killed_door_are_stored(mtl_broker: RunningBroker) -> None:
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
        confirmed = sum(future.exception() is None for future in sent)
        assert confirmed > 100
        with pytest.raises(Unreachable):
            await w.send(b"late")
        await c.close()
    async with (
        aio.connect(mtl_broker.endpoint) as broker_client,
        broker_client.reader("orders", until=confirmed + 1) as r,
    ):
        assert [content.body async for content in r] == [b"%d" % n for n in range(confirmed)]


@pytest.mark.parametrize("name", DOORS)
def test_a_door_has_no_python_thread_except_its_event_loop(mtl_broker: RunningBroker, name: str) -> None:
    """Threads of libzmq are not Python threads, and that of pyzmq only releases memory that was sent."""
    done = ended([sys.executable, "-m", "tests.support.door_threads", name, mtl_broker.endpoint])
    assert (done.returncode, done.stdout) == (0, b"MainThread\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], b"there is no door"),
        (["mc0", "--listen", "ipc:///none/mc0"], b"cannot listen"),
        (["mc0", "--listen", "0.0.0.0:0"], b"clients need no credentials"),
        (["mc0", "--page"], b"page has no meaning"),
        (["mc0", "--config", "/dev/null"], b"/dev/null has no table [doors.mc0]"),
        (["mc0", "--config", "none.toml"], b"cannot read none.toml"),
        *(([name, "--listen", "127.0.0.1:99999"], b"not HOST:PORT") for name in DOORS),
    ],
)
def test_an_invalid_command_is_one_line_of_error(
    mtl_broker: RunningBroker, arguments: list[str], words: bytes
) -> None:
    command = [sys.executable, "-m", "mtl.cli.main", "door", *arguments, "--connect", mtl_broker.endpoint]
    done = ended(command)
    assert done.returncode == 1
    assert words in done.stderr.splitlines()[-1]
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_configured_door_ends_with_the_broker(
    tmp_path: Path, how: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f"ipc://{tmp_path}/mc0"
    config = tmp_path / "broker.toml"
    config.write_text(f'[doors.mc0]\nlisten = "{place}"\ncreate = ["*"]\n')

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


def test_a_configured_door_uses_the_log_format_of_the_broker(tmp_path: Path) -> None:
    place = f"ipc://{tmp_path}/mc0"
    config = tmp_path / "broker.toml"
    config.write_text(f'[log]\nformat = "json"\n[doors.mc0]\nlisten = "{place}"\n')

    async def use() -> None:
        async with mc0.connect(place):
            pass

    with broker(tmp_path / "data", config) as running:
        in_loop(use)()
        running.stop()  # waits until the door has ended
        lines = [json.loads(line) for line in running.log.read_text().splitlines()]
    assert [x["message"] for x in lines if x["logger"] == "mtl.doors"] == [f"door mc0 listens at {place}"]


def test_an_error_of_a_configured_door_names_the_door(tmp_path: Path) -> None:
    """Also if the mistake is detected only at its start."""
    config = tmp_path / "broker.toml"
    command = [sys.executable, "-m", "mtl.cli.main", "broker", "--config", str(config), "--endpoint"]
    command += [f"ipc://{tmp_path}/broker", "--data", str(tmp_path / "data")]
    config.write_text('[doors.mbws]\n[doors.mc0]\nlisten = "127.0.0.1:0"\nkey-file = "k"\n')
    assert b"[doors.mc0]: certificate-file and key-file belong together" in ended(command).stderr
    config.write_text('[doors.reactive]\nlisten = "256.0.0.1:0"\ninsecure = true\n')
    with killed_after(subprocess.Popen(command, stderr=subprocess.PIPE)) as process:
        assert process.stderr is not None
        await_line(process.stderr.fileno(), r"(\[doors.reactive\]: cannot listen at 256.0.0.1:0)")
        process.terminate()


@in_loop
async def test_a_door_has_its_table_of_a_file_and_options_replace_members(
    mtl_broker: RunningBroker, keys: Path
) -> None:
    config = keys / "doors.toml"
    config.write_text(f'[doors.mc0]\nlisten = "127.0.0.1:1"\ncurve-key-file = "{keys}/door.key"\n')
    arguments = ["mc0", "--config", str(config), "--connect", mtl_broker.endpoint, "--listen", "127.0.0.1:0"]
    with door_process(*arguments) as process:
        assert process.stdout is not None
        place = await_line(process.stdout.fileno(), r"mtl door mc0 ready at (\S+) ")
        key = read_public(f"{keys}/door.pub").decode()
        async with mc0.connect(place, curve_server=key) as c, c.writer("orders") as w:
            await (await w.send(b"encrypted"))
        with pytest.raises(Unreachable):
            await mc0.connect(place, retry_deadline=0.2)


@contextmanager
def waiting(name: str, endpoint: str, *before: str) -> Iterator[subprocess.Popen[bytes]]:
    """A door without a reachable broker, once it has reported that."""
    command = [sys.executable, "-m", "mtl.cli.main", *before, "door", name, "--connect", endpoint]
    with killed_after(
        subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    ) as process:
        assert process.stderr is not None
        await_line(process.stderr.fileno(), rf"(no broker answers at {endpoint})")
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", DOORS)
def test_a_door_without_a_broker_reports_that_and_stops_at_a_signal(
    tmp_path: Path, name: str, how: signal.Signals
) -> None:
    with waiting(name, f"ipc://{tmp_path}/broker", "--timeout", "600") as process:
        process.send_signal(how)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert b"Traceback" not in errors


@pytest.mark.parametrize("name", DOORS)
def test_a_door_waits_for_its_broker_until_the_timeout(tmp_path: Path, name: str) -> None:
    with waiting(name, f"ipc://{tmp_path}/broker", "--timeout", "5") as process:
        assert process.wait(PATIENCE_S) == 1


@pytest.mark.parametrize("name", DOORS)
def test_a_door_continues_when_its_broker_appears(tmp_path: Path, name: str) -> None:
    config, endpoint = tmp_path / "broker.toml", f"ipc://{tmp_path}/broker"
    config.write_text(f'endpoint = "{endpoint}"\n')
    with waiting(name, endpoint, "--timeout", "600") as process, broker(tmp_path / "data", config, endpoint):
        assert process.stdout is not None
        await_line(process.stdout.fileno(), rf"(mtl door {name} ready)")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_the_help_has_one_syntax_of_listen_and_the_default_of_each_door() -> None:
    command = [sys.executable, "-m", "mtl.cli.main", "door", "--help"]
    done = subprocess.run(
        command, capture_output=True, timeout=PATIENCE_S, check=True, env={**os.environ, "COLUMNS": "400"}
    )
    [line] = [line for line in done.stdout.decode().splitlines() if "--listen" in line]
    assert "[TRANSPORT://]HOST:PORT" in line
    assert all(f"{name} {DEFAULTS[name]}" in line for name in DOORS), line


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A key pair of a broker and one of a door."""
    for name in ("broker", "door"):
        write_keys(tmp_path / name)
    return tmp_path


@in_loop
async def test_a_door_logs_in_at_a_broker_with_credentials_and_curve(keys: Path) -> None:
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
async def test_a_configured_door_logs_in_by_its_key(keys: Path) -> None:
    place = f"ipc://{keys}/mc0"
    configuration = (
        f'{CLOSED}[curve]\nkey-file = "{keys}/broker.key"\n'
        f'[doors.mc0]\nlisten = "{place}"\ncreate = ["*"]\nuser = "etl"\ncurve-server-key = "{keys}/broker.pub"\n'
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

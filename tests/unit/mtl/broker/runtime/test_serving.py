"""`mtl broker` and its signals."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.broker.runtime.config import BrokerConfig
from mtl.broker.runtime.serving import serve
from mtl.broker.runtime.users import Users
from mtl.errors import OptionError

PATIENCE_S = 20.0


def config(data: Path, endpoint: str = "tcp://127.0.0.1:0") -> BrokerConfig:
    return BrokerConfig(endpoint=endpoint, data=str(data))


@pytest.fixture
def handlers() -> Iterator[None]:
    """The signal handlers are restored at the end."""
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_serve_checks_the_exposure_first(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="insecure"):
        serve(config(tmp_path / "data", endpoint="tcp://0.0.0.0:0"))
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("handlers")
def test_serve_prints_one_line_and_stops_on_sigterm(tmp_path: Path) -> None:
    printed: list[str] = []

    def print_line(line: str) -> None:
        printed.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    assert serve(config(tmp_path), print_line) == 0
    (line,) = printed
    assert line.startswith("mtl broker ready at tcp://127.0.0.1:")
    assert f"pid {os.getpid()}" in line


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("wrong", [False, True])
def test_sighup_reloads_users_and_settings_without_a_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: bool
) -> None:
    caplog.set_level("INFO")

    def print_line(_: str) -> None:
        with Users(tmp_path) as users:
            users.add("alice", None, [])
        os.kill(os.getpid(), signal.SIGHUP)

    def reload() -> None:
        threading.Timer(0.05, stop).start()
        if wrong:
            raise OptionError("no such level")

    def stop() -> None:
        until = time.monotonic() + PATIENCE_S
        while "user-added" not in caplog.text and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    assert serve(config(tmp_path), print_line, reload=reload) == 0
    assert 'user-added user="alice"' in caplog.text
    assert ("no such level" in caplog.text) is wrong

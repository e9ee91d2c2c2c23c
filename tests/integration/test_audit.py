"""The audit log of a broker process: lines, secrets, SIGHUP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtl.testing import RunningBroker
from tests.integration.test_security import CLOSED, PATIENCE_S, place_with, refused

JSON = '[log]\nformat = "json"\nlevel = "{level}"\n'


def lines(running: RunningBroker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in running.log.read_text().splitlines()]


def comes(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)  # a process writes to a file


def test_each_event_is_one_line_without_secrets(tmp_path: Path) -> None:
    with place_with(tmp_path, CLOSED + JSON.format(level="info")) as place:
        assert refused(lambda: place.connect(password="hunter22")) == 401
        assert refused(lambda: place.connect(user="hunter22")) == 401
        with place.connect() as connection:
            connection.create_resource("orders")
            with connection.writer("orders") as writer:
                writer.send(b"x")
            connection.delete_resource("orders")
        place.running.stop()
    found = [x for x in lines(place.running) if x["logger"] == "mtl.audit"]
    events = dict.fromkeys((x["event"], x.get("user"), x["address"]) for x in found)
    assert list(events) == [  # a client has several sessions
        ("login-refused", "etl", "127.0.0.1"),
        ("login-refused", None, "127.0.0.1"),
        ("login", "etl", "127.0.0.1"),
        ("resource-created", "etl", "127.0.0.1"),
        ("resource-deleted", "etl", "127.0.0.1"),
    ]
    text = place.running.log.read_text()
    assert "hunter22" not in text
    assert "secret" not in text


def test_sighup_reloads_users_and_log_settings_without_a_stop(tmp_path: Path) -> None:
    with place_with(tmp_path, CLOSED + JSON.format(level="error")) as place, place.connect() as connection:
        connection.create_resource("orders")
        assert lines(place.running) == []
        (tmp_path / "broker.toml").write_text(CLOSED + JSON.format(level="info"))
        place.add("new")
        os.kill(place.running.pid, signal.SIGHUP)
        comes(lambda: "user-added" in place.running.log.read_text())
        place.connect("new").close()
        (tmp_path / "broker.toml").write_text("[log]\nlevel = 7\n")
        os.kill(place.running.pid, signal.SIGHUP)
        comes(lambda: "settings are unchanged" in place.running.log.read_text())
        assert connection.describe(["orders"])["orders"].contents == 0


def test_options_of_the_command_line_override_the_file(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('[log]\nformat = "text"\nlevel = "error"\n')
    command = [sys.executable, "-m", "mtl.cli.main", "broker", "--config", str(config), "--until-eof"]
    command += ["--data", str(tmp_path / "data"), "--endpoint", "tcp://127.0.0.1:0"]
    command += ["--log-level", "info", "--log-format", "json"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
    assert [json.loads(line)["level"] for line in ended.stderr.splitlines()] == ["info"]

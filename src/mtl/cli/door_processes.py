"""Runs the doors of a broker, each in a process of its own, so that their protocols cannot slow the broker's loop.

A door's standard input is a pipe from the broker's process. The door stops at the end of the pipe, so it does not
outlive the broker, even if the broker is killed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from mtl.broker.runtime.config import LogConfig
from mtl.doors.limits import DOOR_STOP_S

_GRACE_S = 2 * DOOR_STOP_S


class DoorProcesses:
    """The processes of the doors, whose tables `mtl.doors.config.load` returns. `start` them when the broker is ready,
    and `stop` them before it stops, since a door waits for Confirms. Their log lines have the level and format in
    `log`, the broker's at its start.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, Any]], log: LogConfig) -> None:
        self._tables = tables
        self._log = log
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, endpoint: str) -> None:
        """Run the doors; each prints a line on standard output when it is ready, and errors on standard error."""
        for name, table in self._tables.items():
            command = [
                sys.executable,
                "-m",
                "mtl.cli.main",
                "door",
                name,
                "--connect",
                endpoint,
                "--until-eof",
            ]
            command += ["--log-level", self._log.level, "--log-format", self._log.format]
            command += ["--table", msgspec.json.encode(table).decode()]
            # A session of its own: an interrupt at the terminal reaches only the broker, which stops the doors first.
            self._processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))

    def stop(self) -> None:
        """Stop the doors, and wait for their end; kill those that are not done within _GRACE_S together."""
        with self._lock:
            processes, self._processes = self._processes, []
            for process in processes:
                if process.stdin is not None:
                    process.stdin.close()
            until = time.monotonic() + _GRACE_S
            for process in processes:
                try:
                    process.wait(max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

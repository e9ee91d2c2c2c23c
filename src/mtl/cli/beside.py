"""The doors that run beside a broker: each in a process of its own, so that no protocol of theirs can slow its loop.

A door's standard input is a pipe from the broker's process, and it stops when that ends: however the broker dies, no
door outlives it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping

import msgspec

from mtl.broker.runtime.config import LogConfig
from mtl.doors.config import DoorConfig
from mtl.doors.limits import DOOR_STOP_S

_GRACE_S = 2 * DOOR_STOP_S


class Doors:
    """`start` when the broker is ready, `stop` before it stops: a door has contents that it still wants confirmed.
    Their log lines have the level and the format in `log`, the broker's at its start.
    """

    def __init__(self, configs: Mapping[str, DoorConfig], log: LogConfig) -> None:
        self._configs = configs
        self._log = log
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, endpoint: str) -> None:
        """Run them; each says on standard output when it is ready, and on standard error why it is not."""
        for name, config in self._configs.items():
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
            command += ["--config", msgspec.json.encode(config).decode()]
            # A session of their own: an interrupt at the terminal is for the broker, which stops them first.
            self._processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))

    def stop(self) -> None:
        """Let them end, and wait until they have; one that does not is killed."""
        with self._lock:
            processes, self._processes = self._processes, []
            for process in processes:
                if process.stdin is not None:
                    process.stdin.close()
            for process in processes:
                try:
                    process.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

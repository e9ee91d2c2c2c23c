"""Runs a real broker for tests: a process of its own on a free port, with a directory of its own.

    with mtl.testing.broker() as broker:
        with mtl.connect(broker.endpoint) as connection: ...

Use `kill` and `restart` to test durability. The pytest fixture `mtl_broker` is the same. With `broker(data="memory:")`
nothing is written to a disk, and a restarted broker is empty. The broker's standard input is a pipe from this process.
The broker stops at the end of the pipe, so it does not outlive the test.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtl.errors import MtlError

MEMORY = "memory:"
"""Given as `data`: a broker that keeps all data in memory."""

READY_S = 30.0
"""Seconds that a broker may take to become ready, including the recovery of its data."""

STOP_S = 35.0
"""Seconds that a broker may take to stop: a little more than its own limit for its last writes to the disk."""

_READY = re.compile(r"mtl broker ready at (\S+) ")


class BrokerFailed(MtlError):
    """The broker process failed to start or stop; the message has the end of its log."""


class RunningBroker:
    """A broker process. `data` is its `--data` option, `log` the file with its standard error."""

    def __init__(self, data: Path, log: Path, config: Path | None, endpoint: str) -> None:
        self.data = data
        self.log = log
        self._config = config
        self._asked = endpoint
        self._process: subprocess.Popen[str] | None = None
        self.endpoint = ""

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._running().pid

    def start(self) -> None:
        """Start the broker and wait until it is ready. After the first time it uses the same endpoint again."""
        command = [sys.executable, "-m", "mtl.cli.main", "broker", "--until-eof", "--data", str(self.data)]
        command += ["--endpoint", self.endpoint or self._asked]
        if self._config is not None:
            command += ["--config", str(self._config)]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # a process group of its own, which `kill` ends as a whole
            )
        self.endpoint = self._await_ready()

    def stop(self) -> None:
        """Send SIGTERM and wait for a clean end: all confirmed contents are on disk. `BrokerFailed` for any other."""
        process = self._running()
        process.terminate()
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(
                f"the broker did not stop within {STOP_S:.0f} s; its log ends:\n{self._tail()}"
            ) from None
        self._forget()
        if code != 0:
            raise BrokerFailed(f"the broker stopped with exit code {code}; its log ends:\n{self._tail()}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send SIGKILL (or another signal that ends it) to the process group, as a power cut would end it."""
        process = self._running()
        os.killpg(process.pid, number)
        process.wait()
        self._forget()

    def restart(self) -> None:
        """Start again on the same endpoint and directory, after `kill` or `stop`; stops it first if it runs."""
        if self._process is not None:
            self.stop()
        self.start()

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise BrokerFailed("the broker is not running")
        return self._process

    def _forget(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
        self._process = None

    def _await_ready(self) -> str:
        process = self._running()
        assert process.stdout is not None
        deadline = time.monotonic() + READY_S
        line = ""
        while time.monotonic() < deadline:
            if not select.select([process.stdout], [], [], deadline - time.monotonic())[0]:
                break
            line = process.stdout.readline()
            ready = _READY.match(line)
            if ready is not None:
                return ready[1]
            if not line:
                process.wait()
                break
        if process.poll() is None:
            self.kill()
        self._forget()
        raise BrokerFailed(f"the broker did not become ready; its log ends:\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])


@contextmanager
def broker(
    data: Path | str | None = None, config: Path | str | None = None, endpoint: str = "tcp://127.0.0.1:0"
) -> Iterator[RunningBroker]:
    """Run a broker for the block, then stop it (and without `data` remove its directory).

    `data` is a directory, or "memory:" for a broker that keeps all data in memory. A process that was forked in the
    block leaves it without stopping or removing anything. Raises `BrokerFailed` if the broker does not become ready.
    """
    in_memory = str(data) == MEMORY
    temporary = Path(tempfile.mkdtemp(prefix="mtl-broker-")) if data is None or in_memory else None
    place = temporary / "data" if temporary is not None else Path(str(data))
    place.parent.mkdir(parents=True, exist_ok=True)
    kept = Path(MEMORY) if in_memory else place
    log = place.parent / f"{place.name}.log"
    running = RunningBroker(kept, log, Path(config) if config is not None else None, endpoint)
    owner = os.getpid()
    try:
        running.start()
        yield running
        if os.getpid() == owner and running.running:
            running.stop()
    finally:
        if os.getpid() == owner:
            if running.running:
                running.kill()
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

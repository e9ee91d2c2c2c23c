"""A real broker for tests, in one line: a process of its own on a free port, with a directory of its own.

    with mtl.testing.broker() as broker:
        with mtl.connect(broker.endpoint) as connection: ...

`kill` and `restart` are what durability is tested with. The pytest fixture `mtl_broker` is the same. With
`broker(data="memory:")` nothing is written to a disk, and a broker that starts again is empty. Its standard input
is a pipe from this process, and it stops when that ends: however the test dies, no broker outlives it.
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
"""Given as `data`: a broker that keeps everything in memory."""

READY_S = 30.0
"""How long a broker may take to say that it is ready; it has to recover its data before."""

STOP_S = 35.0
"""How long it may take to stop; a little more than it gives its own disk."""

_READY = re.compile(r"mtl broker ready at (\S+) ")


class BrokerFailed(MtlError):
    """The broker process did not do what it was asked; its output is in the message."""


class RunningBroker:
    """A broker process and where it keeps its data, as `--data` says it. `log` has what it wrote to standard error."""

    def __init__(self, data: Path, log: Path, config: Path | None, endpoint: str) -> None:
        self.data = data
        self.log = log
        self._config = config
        self._asked = endpoint
        self._process: subprocess.Popen[str] | None = None
        self.endpoint = ""

    @property
    def pid(self) -> int:
        """Of the running process."""
        return self._running().pid

    def start(self) -> None:
        """Start it and wait until it is ready: on the endpoint it had before, if it had one."""
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
                start_new_session=True,  # a group of its own, so that nothing of it outlives a kill
            )
        self.endpoint = self._await_ready()

    def stop(self) -> None:
        """SIGTERM, and a clean end: everything confirmed is on disk. Raises `BrokerFailed` for any other."""
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
        """SIGKILL to the whole process group: what a power cut is to the process. Or another signal that ends it."""
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
        """Whether the process is there."""
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
            found = _READY.match(line)
            if found is not None:
                return found[1]
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
    """A running broker, stopped (and without `data` its directory removed) at the end of the block.

    `data` is a directory, or "memory:" for a broker that keeps everything in memory. Raises `BrokerFailed` when it does
    not become ready.
    """
    in_memory = str(data) == MEMORY
    temporary = Path(tempfile.mkdtemp(prefix="mtl-broker-")) if data is None or in_memory else None
    place = temporary / "data" if temporary is not None else Path(str(data))
    place.parent.mkdir(parents=True, exist_ok=True)
    kept = Path(MEMORY) if in_memory else place
    log = place.parent / f"{place.name}.log"
    running = RunningBroker(kept, log, Path(config) if config is not None else None, endpoint)
    try:
        running.start()
        yield running
        if running.running:
            running.stop()
    finally:
        if running.running:
            running.kill()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)

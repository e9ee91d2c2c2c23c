"""The Spark application as a process: start, commands, inspection, kill. Only on Linux: it reads /proc."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kills import holds
from tests.kills.app import Job
from tests.support import java

ROOT = Path(__file__).parents[2]

PATIENCE_S = 240.0
"""A timeout that no query here reaches, on a busy machine."""


@dataclass(frozen=True)
class Process:
    """One line of /proc."""

    pid: int
    parent: int
    session: int
    command: str


def processes() -> Iterator[Process]:
    """The present processes."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if fields[0] != "Z":
            yield Process(int(place.name), int(fields[1]), int(fields[3]), command)


class Application:
    """tests.kills.app in its own session. The output of Spark goes to `log`; `master` is Spark's master URL."""

    def __init__(self, place: Path, master: str, holds_: Path) -> None:
        self.log = place / "spark.log"
        scratch = place / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            holds.VARIABLE: str(holds_),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(ROOT / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(scratch),
            "TMPDIR": str(scratch),
            java.VARIABLE: java.options(scratch),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kills.app", master],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def begin(self, job: Job) -> None:
        """Start a query; `result` returns its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def over(self) -> str | None:
        """The error that has ended the query or the application; None while it runs."""
        if not self.running:
            return f"the application ended; its log ends: {self.tail()}"
        assert self._process.stdout is not None
        return "the query is over" if select.select([self._process.stdout], [], [], 0)[0] else None

    def result(self) -> str | None:
        """The error text of the query, or None if it completed."""
        output = self._process.stdout
        assert output is not None
        assert select.select([output], [], [], PATIENCE_S)[0], f"no query ends: {self.tail()}"
        line = output.readline()
        assert line, f"the application ended; its log ends: {self.tail()}"
        error: str | None = json.loads(line)["error"]
        return error

    def workers(self) -> list[int]:
        """The executor's Python workers: children of the daemon that forks them."""
        own = [process for process in processes() if process.session == self._process.pid]
        daemons = {process.pid for process in own if "pyspark.daemon pyspark.worker" in process.command}
        return [process.pid for process in own if process.parent in daemons]

    def kill(self) -> None:
        """SIGKILL for all processes at once: Python, the JVM, and the workers, which have their own process group."""
        for process in processes():
            if process.session == self._process.pid:
                os.kill(process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])


def kill(pid: int) -> None:
    """SIGKILL, and wait until the process has ended; another process reaps it."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    holds.await_(lambda: all(process.pid != pid for process in processes()), f"process {pid} does not die")

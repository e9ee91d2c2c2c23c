"""Spark applications as separate processes, each with a process group that can be killed, and a log file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from demo_job.held import ANSWERED

ROOT = Path(__file__).parents[2]

STOP_S = 10.0
"""The timeout for a requested end of a process."""

TAIL = 40
"""Lines of the log that are shown after a failure."""


_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Options of a JVM that lives for seconds: half the processor time without optimizing compiler and parallel collector,
and no file in /tmp.
"""


class Failed(Exception):
    """The demo cannot continue, or its result is wrong; the message is for people."""


class Spark:
    """The application query.py: Python, the JVM that it starts, and Spark's Python workers. With a `hook` its sink
    waits after a commit (`held`).

    Its output is written to `log`, and files that Spark leaves after a kill are under `place` too.
    """

    def __init__(self, place: Path, *arguments: str, hook: Path | None = None) -> None:
        self.log = place / f"spark-{arguments[0]}.log"
        self._place = place
        self._arguments = arguments
        self._hook = hook
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the application; it begins to work after some seconds."""
        application = "demo_job.query" if self._hook is None else "demo_job.held"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", application, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=self._place,
                start_new_session=True,
            )

    def wait(self, timeout: float) -> int | None:
        """The exit code; None if it still runs after `timeout` seconds."""
        try:
            return self._running().wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """SIGKILL for the whole group: no process in it runs on.

        Killing Python alone would leave the JVM alive for seconds.
        """
        process = self._running()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """Kill the application if it was started."""
        process = self._process
        if process is None:
            return
        process.terminate()
        self.wait(STOP_S)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all processes have ended, as expected
        process.wait()

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-TAIL:])

    def _environment(self) -> dict[str, str]:
        scratch = self._place / "scratch"
        scratch.mkdir(exist_ok=True)
        environment = {
            "SPARK_CONF_DIR": str(ROOT / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]),
            "SPARK_LOCAL_DIRS": str(scratch),
            "TMPDIR": str(scratch),
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={scratch} {_SHORT_LIVED}",
        }
        if self._hook is not None:
            environment[ANSWERED] = str(self._hook)
        return environment

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was not started"
        return self._process

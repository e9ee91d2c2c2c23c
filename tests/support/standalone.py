"""A Standalone cluster of Spark on this machine, for one block: a master and a worker out of the pip package.

    with standalone.cluster(tmp_path / "cluster") as master:
        ...  # spark-submit --master "$master", or SparkSession.builder.master(master)

Ports are chosen by the system, and everything that the two write lies below the directory given.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.support import java

READY_S = 60.0
"""The timeout in seconds for the start of a JVM on a busy machine."""

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_JOINED = re.compile(r"Successfully registered with master")


def spark_home() -> Path:
    """The directory with `bin` and `jars`: SPARK_HOME if set, otherwise that of the pip package."""
    if given := os.environ.get("SPARK_HOME"):
        return Path(given)
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent


@contextmanager
def cluster(
    place: Path, *, cores: int = 2, memory: str = "1g", hosts: Sequence[str] = ("127.0.0.1",)
) -> Iterator[str]:
    """The master's URL, once a worker with so many cores and so much memory has joined on each of these addresses of
    this machine: one is enough, unless Spark must use two hosts. All are killed at the end.
    """
    with ExitStack() as running:
        log = running.enter_context(_daemon(place / "master", "Master", hosts[0], "--port", "0"))
        master = _await(log, _MASTER)[1]
        joining = []
        for host in hosts:
            own = place / f"worker-{host}"
            options = ("--cores", str(cores), "--memory", memory, "--work-dir", str(own / "work"))
            joining.append(running.enter_context(_daemon(own, "Worker", host, *options, master)))
        for log in joining:
            _await(log, _JOINED)
        yield master


@contextmanager
def _daemon(place: Path, role: str, host: str, *arguments: str) -> Iterator[Path]:
    """A daemon of Spark, whose log shows when it is ready: the settings of this project would hide it."""
    place.mkdir(parents=True)
    home, log = spark_home(), place / f"{role.lower()}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(place),
        "SPARK_LOCAL_DIRS": str(place),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": java.options(place),
    }
    daemon = f"org.apache.spark.deploy.{role.lower()}.{role}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", daemon, "--host", host, "--webui-port", "0", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a worker's executors are in its group, and end with it
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(log: Path, line: re.Pattern[str]) -> re.Match[str]:
    """The first matching line of the log."""
    deadline = time.monotonic() + READY_S
    while (found := line.search(log.read_text(errors="replace"))) is None:
        assert time.monotonic() < deadline, (
            f"no {line.pattern!r} in {log}:\n{log.read_text(errors='replace')[-3000:]}"
        )
        time.sleep(0.02)  # another process writes the file
    return found

"""Spark dies at the one moment that makes exactly-once hard: the broker has published, and Spark does not know."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mtl
import mtl.testing
from pyspark_mtl import hooks
from tests.support.queries import logged

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180


def start(arguments: list[str], log: Path, hook: Path | None = None) -> subprocess.Popen[bytes]:
    """The application, in a process group of its own, so that a kill takes the JVM and its workers along."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **({} if hook is None else {hooks.AFTER_COMMIT: str(hook)}),
    }
    environment.pop("SPARK_HOME", None)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.copy_app", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def await_mark(mark: Path, application: subprocess.Popen[bytes], log: Path) -> tuple[str, int]:
    """The query and the batch that were published just now."""
    deadline = time.monotonic() + PATIENCE_S
    while not mark.exists():
        assert application.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < deadline, "no batch was published"
        time.sleep(0.02)  # another process writes the file
    query, batch = mark.read_text().split()
    return query, int(batch)


def test_a_batch_that_was_published_when_spark_died_is_published_once(tmp_path: Path) -> None:
    mark, log, checkpoint = tmp_path / "mark", tmp_path / "log", tmp_path / "checkpoint"
    bodies = [str(number) for number in range(2500)]
    with mtl.testing.broker() as broker, mtl.connect(broker.endpoint) as connection:
        for name in ("in", "out"):
            connection.create_resource(name)
        with connection.writer("in", packed=True) as writer:
            for body in bodies:
                writer.send(body.encode())

        arguments = [broker.endpoint, "in", "out", str(checkpoint)]
        (tmp_path / "mark.hold").touch()
        application = start(arguments, log, mark)
        try:
            query, batch = await_mark(mark, application, log)
        finally:
            os.killpg(application.pid, signal.SIGKILL)
            application.wait()
        assert batch == 0
        assert connection.describe(["out"])["out"].contents == 1000, "the broker has published it"
        assert logged(checkpoint, "offsets") == [0]
        assert not (checkpoint / "commits" / "0").exists(), "and Spark does not know"

        application = start(arguments, log)
        assert application.wait(PATIENCE_S) == 0, log.read_text(errors="replace")[-3000:]
        with connection.reader("out", start="earliest", until=2501) as reader:
            assert [content.body.decode() for content in reader] == bodies
        assert connection.describe(["out"])["out"].next == 2501
        (known,) = connection.stages(query).applications
        assert (known.version, known.replays) == (2, 1)

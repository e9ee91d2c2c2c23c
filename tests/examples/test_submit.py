"""Submission of jobs: the commands of spark-submit-examples that can run here copy a resource.

local/submit.sh is what notebooks/exactly_once.ipynb submits with.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mtl
from mtl.testing import RunningBroker
from tests.support import java, standalone

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "spark-submit-examples"
PATIENCE_S = 600
BODIES = [str(number) for number in range(1000)]


def environment(place: Path, **more: str) -> dict[str, str]:
    """The environment of a user with activated .venv; files of Spark are below `place`."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(place),
        "SPARK_LOCAL_IP": "127.0.0.1",
        java.VARIABLE: java.options(place),
        **more,
    }


def copies(command: Path, place: Path, broker: RunningBroker, **more: str) -> list[str]:
    """The contents of the target after the command has run copy_resource.py."""
    with mtl.connect(broker.endpoint) as connection:
        connection.create_resource("orders")
        with connection.writer("orders", packed=True) as writer:
            for body in BODIES:
                writer.send(body.encode())
        job = ["copy_resource.py", "--source", "orders", "--target", "copies"]
        job += ["--endpoint", broker.endpoint, "--checkpoint", str(place / "checkpoint")]
        done = subprocess.run(
            [command, *job],
            cwd=place,
            env=environment(place, **more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-5000:]
        assert done.stdout == "rows: 1,000, batches: 1\n"
        with connection.reader("copies", start="earliest", until=len(BODIES) + 1) as reader:
            return [content.body.decode() for content in reader]


@contextmanager
def served(place: Path, port: int) -> Iterator[None]:
    """A running connect/serve.sh that answers on the port."""
    log = place / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [EXAMPLES / "connect" / "serve.sh"],
            cwd=place,
            env=environment(place, MASTER="local[2,4]", PORT=str(port)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not answers(port):
            assert process.poll() is None, log.read_text(errors="replace")[-5000:]
            assert time.monotonic() < deadline, "the Connect server did not start"
            time.sleep(0.05)  # only the port shows it
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def packed(place: Path) -> Path:
    """The archive of pack.sh, made offline: an environment with pyspark-mtl and links to its dependencies."""
    venv.create(place, symlinks=True)
    own, ours = (Path(sysconfig.get_path("purelib", vars={"base": str(at)})) for at in (place, sys.prefix))
    for package in ("mtl", "pyspark_mtl"):
        shutil.copytree(ROOT / "src" / package, own / package)
    for name in ("zmq", "pyzmq.libs", "pyarrow", "msgspec", "google_crc32c", "google_crc32c.libs", "xxhash"):
        if (ours / name).exists():
            (own / name).symlink_to(ours / name)
    archive = place.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        file.add(place, arcname=".")
    return archive


@pytest.mark.spark
def test_standalone_with_a_packed_environment(tmp_path: Path, mtl_broker: RunningBroker) -> None:
    more = {"EXECUTOR_MEMORY": "512m", "PACKED": str(packed(tmp_path / "packed"))}
    with standalone.cluster(tmp_path / "cluster") as master:
        command = EXAMPLES / "standalone" / "submit.sh"
        assert copies(command, tmp_path, mtl_broker, MASTER=master, **more) == BODIES
    assert list((tmp_path / "cluster").rglob("work/app-*/*/environment/bin/python"))


@pytest.mark.spark
def test_a_job_is_submitted_to_spark_connect(tmp_path: Path, mtl_broker: RunningBroker) -> None:
    port = free_port()
    with served(tmp_path, port):
        command = EXAMPLES / "connect" / "submit.sh"
        assert copies(command, tmp_path, mtl_broker, SPARK_REMOTE=f"sc://127.0.0.1:{port}") == BODIES


@pytest.mark.parametrize(
    "script", sorted(EXAMPLES.rglob("*.sh")), ids=lambda path: str(path.relative_to(EXAMPLES))
)
def test_every_command_is_a_shell_program(script: Path) -> None:
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

"""`mtl verify` beside a running broker: it reports real damage, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mtl
from mtl.testing import RunningBroker, broker
from mtl.wire.control import Retention, StageSpec

RUNS = 3
SEGMENT_BYTES = 1_000_000
"""Small, so that segments are sealed and removed in every run."""


@contextmanager
def writing(running: RunningBroker) -> Iterator[None]:
    """Writers of all kinds: single contents, many contents, commits, resources that are made and deleted."""
    over = threading.Event()

    def write() -> None:
        with mtl.connect(running.endpoint) as connection:
            connection.create_resource("kept")
            connection.create_resource("trimmed", retention=Retention(bytes=500_000))
            with connection.writer(["kept", "trimmed"]) as writer:
                while not over.is_set():
                    for name in ("kept", "trimmed"):
                        writer.send(bytes(100), resource=name)
                    writer.flush()  # small groups: zeros follow them, as room for the next ones

    def commit() -> None:
        with mtl.connect(running.endpoint) as connection:
            connection.create_resource("committed")
            version = 0
            while not over.is_set():
                version += 1
                with connection.writer(
                    "committed", stage=StageSpec(application="verifying", version=version)
                ) as writer:
                    for _ in range(5):
                        writer.send(bytes(30_000))
                    stage = writer.seal().stage
                connection.stage_commit("verifying", version, [stage])
                connection.create_resource(f"made-{version}")
                connection.delete_resource(f"made-{version}")

    threads = [threading.Thread(target=work) for work in (write, commit)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_verify_beside_writers_reports_no_damage(tmp_path: Path) -> None:
    """In a process of its own: in this one the writers would wait for it."""
    config = tmp_path / "broker.toml"
    config.write_text(f"segment-bytes = {SEGMENT_BYTES}\n")
    with broker(data=tmp_path / "data", config=config) as running, writing(running):
        for _ in range(RUNS):
            verifying = subprocess.run(
                [sys.executable, "-m", "mtl.cli.main", "verify", str(running.data)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert "no problems" in verifying.stdout, verifying.stdout + verifying.stderr

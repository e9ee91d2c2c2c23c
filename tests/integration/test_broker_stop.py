"""A broker stopped while its disk is dead: it exits with status 1, and names the unsynced logs."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import mtl
from mtl.errors import MtlError
from tests.support.processes import killed_after
from tests.support.unread import full_pipe

BROKER = """
import sys, threading
from pathlib import Path
from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.net import limits as net_limits
from mtl.broker.runtime import stopping
from mtl.storage.sqlite import SqliteStore
from mtl.cli.main import main
from mtl.errors import StorageFailed
from mtl.log.files import RealFile

broker_limits.STOP_S, stopping.STUCK_S, net_limits.ZMTP_HEARTBEAT_MS = 4.0, 3.0, 1_000
what, how, dead = sys.argv.pop(1), sys.argv.pop(1), Path(sys.argv.pop(1))

def wrap(kind, name, error):
    work = getattr(kind, name)
    def wrapped(*arguments):
        if dead.exists():
            if how == "hangs":
                dead.with_name("hanging").touch()
                threading.Event().wait()
            raise error
        return work(*arguments)
    setattr(kind, name, wrapped)

if what in {"logs", "everything"}:
    for name in ("sync", "writev", "truncate"):
        wrap(RealFile, name, OSError(5, "Input/output error"))
if what in {"records", "everything"}:
    wrap(SqliteStore, "save", StorageFailed("disk I/O error"))
main()
"""


class Desk:
    """A broker process whose disk can be made dead."""

    def __init__(self, place: Path, what: str, how: str, errors: int = subprocess.PIPE) -> None:
        self._dead = place / "dead"
        arguments = [what, how, str(self._dead), "broker", "--endpoint", "tcp://127.0.0.1:0"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", BROKER, *arguments, "--data", str(place / "data")],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert self.process.stdout is not None
        self.endpoint = self.process.stdout.readline().split()[4]

    def die(self) -> None:
        self._dead.touch()

    def stop(self) -> tuple[int, str, float]:
        """Exit status, the last line on standard error, seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            _, errors = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, errors = self.process.communicate()
            raise AssertionError(f"it does not end: {errors[-2_000:]}") from None
        return self.process.returncode, errors.splitlines()[-1], time.monotonic() - began


def flood(endpoint: str, flowing: threading.Event, over: threading.Event) -> None:
    """Send more than the broker's queues hold, and disconnect without waiting."""
    connection = mtl.connect(endpoint, retry_deadline=1.0)
    try:
        writer = connection.writer("a")
        for number in range(1_000_000):
            writer.send(bytes(1_000))
            if number == 100:
                flowing.set()
            if over.is_set():
                break
    except MtlError:
        pass  # no more confirms arrive
    finally:
        connection.drop()


@pytest.mark.parametrize(
    ("what", "how", "named"),
    [
        ("logs", "hangs", ["resource 'a'"]),
        ("records", "hangs", ["the records (broker.db)"]),
        ("records", "fails", ["the records (broker.db)"]),
        ("everything", "hangs", ["resource 'a'"]),
        ("everything", "fails", ["the records (broker.db)"]),
    ],
)
def test_a_broker_with_a_dead_disk_stops(tmp_path: Path, what: str, how: str, named: list[str]) -> None:
    desk = Desk(tmp_path, what, how)
    with mtl.connect(desk.endpoint) as connection:
        connection.create_resource("a")
    flowing, over = threading.Event(), threading.Event()
    writer = threading.Thread(target=flood, args=(desk.endpoint, flowing, over))
    writer.start()
    assert flowing.wait(30)
    holder = mtl.connect(desk.endpoint, retry_deadline=1.0)
    reader = holder.reader("a", group="g", start="earliest")
    first = next(iter(reader))
    desk.die()
    reader.confirm(first.sequence)  # the records have something to write
    time.sleep(0.5)  # until the queues are full
    threading.Timer(1.0, over.set).start()  # the peer disconnects while its queue is full
    code, line, seconds = desk.stop()
    over.set()
    writer.join()
    holder.drop()
    assert (code, "not synced" in line) == (1, True), line
    assert all(name in line for name in named), line
    assert seconds < 20


def test_a_broker_with_a_dead_disk_stops_although_nobody_reads_its_last_line(tmp_path: Path) -> None:
    with full_pipe() as unread:
        desk = Desk(tmp_path, "logs", "hangs", unread.descriptor)
        with killed_after(desk.process), mtl.connect(desk.endpoint) as connection:
            connection.create_resource("a")
            writer = connection.writer("a")
            desk.die()
            writer.send(b"x")
            until = time.monotonic() + 20
            while not (tmp_path / "hanging").exists():
                assert time.monotonic() < until
                time.sleep(0.02)
            desk.process.send_signal(signal.SIGTERM)
            try:
                assert desk.process.wait(20) == 1
            finally:
                connection.drop()

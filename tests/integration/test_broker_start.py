"""Start of a broker: before its logs are open, and on a full disk."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

import mtl
from mtl.broker.runtime.config import BrokerConfig
from mtl.broker.runtime.server import Server
from mtl.errors import Refused, StorageError
from mtl.log.change import LogOptions
from mtl.log.files import Mode, RealDisk, RealFile
from mtl.log.frugal import FrugalDisk
from mtl.storage import directory as directory_module
from mtl.storage.api import Append, CreateLog, Draft, OpenLog, Save
from mtl.storage.keys import log_key
from mtl.storage.local import Storage
from mtl.storage.records import ResourceRecord, encode_owner
from mtl.storage.sqlite import SqliteStore
from mtl.testing import broker

MANY = 2_000
SEGMENT_BYTES = 1 << 20

MNT_DETACH = 2
"""umount2(2): a segment may still be mapped, for contents that somebody holds."""


class Hasty(RealDisk):
    """A disk without syncs: data directories are created in a fraction of the time."""

    def open(self, path: str, mode: Mode) -> RealFile:
        return HastyFile(super().open(path, mode)._fd)

    def fsync_dir(self, path: str) -> None:
        pass


class HastyFile(RealFile):
    def sync(self) -> None:
        pass


def fill(data: Path, resources: int) -> None:
    """The data directory of a cleanly stopped broker, with one content in every resource."""
    data.mkdir()
    store = SqliteStore(f"{data}/broker.db")
    storage = Storage(FrugalDisk(Hasty()), str(data), store, SEGMENT_BYTES)
    storage.restore()
    records = [ResourceRecord("/", f"r{n:05d}", f"i{n}", f"l{n}") for n in range(resources)]
    for record in records:
        key = log_key(record)
        made = storage.perform(CreateLog(1, key, LogOptions(SEGMENT_BYTES), encode_owner(record)))
        assert not isinstance(made, StorageError), made
        added = storage.perform(Append(2, key, (Draft((record.name.encode(),), None, ()),), 1))
        assert not isinstance(added, StorageError), added
    assert storage.perform(Save(3, tuple(records))) is None
    storage.close()


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """A server in its own thread, stopped at the end."""
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(60)
    assert not thread.is_alive()


def config(data: Path) -> BrokerConfig:
    return BrokerConfig(data=str(data), endpoint="tcp://127.0.0.1:0", segment_bytes=SEGMENT_BYTES)


def print_line(line: str) -> None:
    """Print a line for pytest -s and for failed tests."""
    sys.stdout.write(f"{line}\n")


# --- many resources -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker with MANY resources."""
    data = tmp_path_factory.mktemp("many") / "data"
    fill(data, MANY)
    return data


def test_a_broker_serves_before_it_has_opened_its_logs(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It once opened all logs before it answered."""
    opened: list[str] = []
    perform = Storage.perform

    def counting(storage: Storage, action: Any) -> object:
        result = perform(storage, action)
        if isinstance(action, OpenLog):
            opened.append(action.log)
        return result

    monkeypatch.setattr(Storage, "perform", counting)
    with running(Server(config(many))) as server:
        with mtl.connect(server.endpoint) as connection:
            assert connection.describe(["r01999"])["r01999"].next == 2
            described = len(opened)
            with connection.writer("r01998") as writer:
                writer.send(b"first")
                writer.flush()
            confirmed = len(opened)
            assert len(connection.list_resources()) == MANY
        print_line(
            f"of {MANY} logs {described} were open at the first answer, {confirmed} at the first Confirm"
        )
        assert confirmed < MANY / 2
        assert len(set(opened)) == len(opened) == MANY


def test_the_duration_of_the_start_is_printed(many: Path, tmp_path: Path) -> None:
    """The duration is not asserted: it depends on the machine and its load."""
    fill(tmp_path / "one", 1)
    for data in (tmp_path / "one", many):
        began = time.monotonic()
        with broker(data) as process:
            ready = time.monotonic() - began
            with mtl.connect(process.endpoint) as connection:
                assert connection.describe(["r00000"])["r00000"].next == 2
                described = time.monotonic() - began
                with connection.writer("r00000") as writer:
                    writer.send(b"first")
                    writer.flush()
                confirmed = time.monotonic() - began
        print_line(
            f"{data}: ready after {ready:.2f} s, first answer {described:.2f} s, "
            f"first Confirm {confirmed:.2f} s"
        )


# --- a full disk --------------------------------------------------------------------------------------------


class FullDisk(RealDisk):
    """A disk on which no file below a directory can be created while it is `full`."""

    full = False
    below = ""

    def open(self, path: str, mode: Mode) -> RealFile:
        if self.full and mode == "create" and path.startswith(self.below):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open(path, mode)


class Small:
    """The directory of the logs: a file system of 4 MiB if mounting is allowed, otherwise a disk that reports full."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.mounted = self._libc.mount(b"tmpfs", bytes(directory), b"tmpfs", 0, b"size=4m") == 0

    def fill(self) -> None:
        FullDisk.full, FullDisk.below = not self.mounted, str(self.directory)
        if self.mounted:
            with (
                (self.directory / "ballast").open("wb", buffering=0) as ballast,
                pytest.raises(OSError, match="space"),
            ):
                ballast.writelines(repeat(bytes(4096)))

    def free(self) -> None:
        FullDisk.full = False
        if self.mounted:
            (self.directory / "ballast").unlink()

    def close(self) -> None:
        FullDisk.full = False
        if self.mounted:
            assert self._libc.umount2(bytes(self.directory), MNT_DETACH) == 0


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    monkeypatch.setattr(directory_module, "RealDisk", FullDisk)
    small = Small(tmp_path / "small")
    (tmp_path / "small" / "resources").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "resources").symlink_to(tmp_path / "small" / "resources")
    yield small
    small.close()


def test_logs_that_failed_to_open_on_a_full_disk_open_with_free_space(tmp_path: Path, small: Small) -> None:
    """Such logs were once reported to end at 1 until the next start."""
    bodies = [b"%d" % n + bytes(60_000) for n in range(30)]  # more than one segment
    with running(Server(config(tmp_path / "data"))) as server, mtl.connect(server.endpoint) as connection:
        connection.create_resource("a")
        with connection.writer("a") as writer:
            for body in bodies:
                writer.send(body)
                writer.flush()
    (index,) = small.directory.glob("resources/*/*.index")
    index.unlink()  # it is rebuilt, which takes space
    small.fill()
    with running(Server(config(tmp_path / "data"))) as server, mtl.connect(server.endpoint) as connection:
        found = connection.describe(["a"])["a"]
        assert (found.state, found.known_earliest, found.known_next) == ("stopped", None, None)
        assert "space" in (found.trouble or "")
        with pytest.raises(Refused, match="503 storage"):
            connection.reader("a", start="earliest", until=len(bodies) + 1).__enter__()
        small.free()
        deadline = time.monotonic() + 60
        while (found := (all_ := connection.describe(["a"]))["a"]).known_next is None:
            assert time.monotonic() < deadline
            connection.describe(["a"], since=all_.state, wait=1.0)  # answered when it opens
        assert (found.state, found.earliest, found.next) == ("serving", 1, len(bodies) + 1)
        with connection.reader("a", start="earliest", until=len(bodies) + 1) as reader:
            assert [bytes(content.body) for content in reader] == bodies

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.broker.runtime.users import Users
from mtl.storage import precedence
from mtl.storage.precedence import Precedence
from mtl.storage.records import UserRecord
from mtl.storage.sqlite import SqliteStore


class Busy:
    """A broker's store that saves continuously in a thread, and counts the saves."""

    def __init__(self, data: Path) -> None:
        self.saved = 0
        self._over = threading.Event()
        self._store = SqliteStore(str(data / "broker.db"))
        self._thread = threading.Thread(target=self._save)
        self._thread.start()

    def _save(self) -> None:
        records = [UserRecord(f"busy{n}") for n in range(100)]
        while not self._over.is_set():
            self._store.save(records, ())
            self.saved += 1

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._store.close()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    started = Busy(tmp_path)
    yield started
    started.stop()


def test_an_edit_waits_for_few_transactions_of_a_busy_broker(tmp_path: Path, busy: Busy) -> None:
    """With SQLite alone it waited for hundreds, or until "database is locked"."""
    waited = []
    for number in range(10):
        with Users(tmp_path) as users:
            before = busy.saved
            users.add(f"new{number}", None, [])
            users.remove(f"new{number}")
            waited.append(busy.saved - before)
    assert sorted(waited)[5] < 50, waited  # a busy machine may stop this thread at any moment
    assert busy.saved > 0


def test_turns_exclude_each_other(tmp_path: Path) -> None:
    mine, other = Precedence(tmp_path, first=True), Precedence(tmp_path, first=False)
    passed = threading.Event()

    def wait() -> None:
        with other.turn():
            passed.set()

    thread = threading.Thread(target=wait)
    with mine.turn():
        thread.start()
        assert not passed.wait(0.1)
    assert passed.wait(10)
    thread.join()
    other.close()


def test_a_suspended_process_blocks_others_only_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precedence, "PRECEDENCE_S", 0.05)
    mine, other = Precedence(tmp_path, first=True), Precedence(tmp_path, first=False)
    with mine.turn():
        began = time.monotonic()
        with other.turn():
            assert time.monotonic() - began >= 0.05
    other.close()


@pytest.mark.parametrize("first", [True, False])
def test_without_a_lock_file_turns_are_unordered(tmp_path: Path, first: bool) -> None:
    precedence = Precedence(tmp_path / "missing", first=first)
    with precedence.turn():
        pass
    precedence.close()

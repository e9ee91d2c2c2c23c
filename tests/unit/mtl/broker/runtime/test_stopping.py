"""The guard of a stop. The case with a real hanging disk is in tests/integration/test_broker_stop.py."""

from __future__ import annotations

import threading
import time

import pytest

from mtl.broker.runtime import stopping
from mtl.broker.runtime.stopping import StopGuard, not_synced


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "STUCK_S", 0.5)
    monkeypatch.setattr(stopping, "_POLL_S", 0.01)


def test_a_stop_without_progress_is_abandoned_and_names_unsynced_logs() -> None:
    lines: list[str] = []
    abandoned = threading.Event()

    def abandon(line: str) -> None:
        lines.append(line)
        abandoned.set()

    last = time.monotonic()
    guard = StopGuard(lambda: last, lambda: ["resource 'a'"], abandon)
    guard.begin()
    guard.begin()
    assert abandoned.wait(10)
    assert time.monotonic() - last >= 0.5
    (line,) = lines
    assert line.endswith("not synced: resource 'a'")


def test_a_stop_with_progress_is_not_abandoned() -> None:
    lines: list[str] = []
    guard = StopGuard(time.monotonic, list, lines.append)
    guard.begin()
    guard.end()
    guard._thread.join(10)
    assert not guard._thread.is_alive()
    assert lines == []


def test_the_line_about_unsynced_logs_is_bounded() -> None:
    assert not_synced(["a", "b"]).endswith("not synced: a, b")
    assert not_synced([]).endswith("not synced: nothing that was confirmed")
    assert not_synced([str(n) for n in range(1_000)]).endswith("8, 9 and 990 more")

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from demo_job import held
from demo_job.chaos import Hook


def test_the_batch_is_recorded_and_the_sink_continues(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "mark")
    assert hook.answered == -1
    held.answered(hook.path, 7)
    assert hook.answered == 7
    assert list(tmp_path.iterdir()) == [hook.path]


def test_the_sink_waits_while_held(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "mark")
    hook.hold()
    waiter = threading.Thread(target=held.answered, args=(hook.path, 7))
    waiter.start()
    waiter.join(0.2)
    assert waiter.is_alive()
    hook.release()
    waiter.join(10)
    assert not waiter.is_alive()


def test_a_hold_ends_after_its_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(tmp_path / "mark")
    hook.hold()
    monkeypatch.setattr(held, "LONGEST_S", 0.1)
    held.answered(hook.path, 7)
    assert hook.answered == 7

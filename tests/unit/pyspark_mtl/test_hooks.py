from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pyspark_mtl import hooks


def test_the_hook_is_off_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(hooks.AFTER_COMMIT, raising=False)
    monkeypatch.chdir(tmp_path)
    hooks.after_commit("query", 7)
    assert list(tmp_path.iterdir()) == []


def test_the_hook_names_the_batch_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv(hooks.AFTER_COMMIT, str(mark))
    hooks.after_commit("query", 7)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mark", "query 7")]


def test_the_hook_waits_while_it_is_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hold = tmp_path / "mark.hold"
    hold.touch()
    monkeypatch.setenv(hooks.AFTER_COMMIT, str(tmp_path / "mark"))
    waiter = threading.Thread(target=hooks.after_commit, args=("query", 7))
    waiter.start()
    waiter.join(0.2)
    assert waiter.is_alive()
    hold.unlink()
    waiter.join(10)
    assert not waiter.is_alive()


def test_a_forgotten_hold_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mark.hold").touch()
    monkeypatch.setenv(hooks.AFTER_COMMIT, str(tmp_path / "mark"))
    monkeypatch.setattr(hooks, "TEST_HOOK_HOLD_S", 0.1)
    hooks.after_commit("query", 7)
    assert (tmp_path / "mark").exists()

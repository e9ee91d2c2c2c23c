from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from pyspark_mtl import workers
from pyspark_mtl.workers import set_modules_aside


@pytest.fixture(autouse=True)
def _nothing_set_aside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "_modules", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_a_worker_freezes_its_loaded_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    set_modules_aside()
    assert gc.get_freeze_count() > len(sys.modules)


def test_a_worker_freezes_again_only_after_more_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    set_modules_aside()
    gc.unfreeze()
    set_modules_aside()
    assert gc.get_freeze_count() == 0
    monkeypatch.setitem(sys.modules, "one_more", ModuleType("one_more"))
    set_modules_aside()
    assert gc.get_freeze_count() > 0


def test_a_process_that_is_not_a_worker_freezes_no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    set_modules_aside()
    assert gc.get_freeze_count() == 0

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


def test_a_worker_sets_aside_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    set_modules_aside()
    assert gc.get_freeze_count() > len(sys.modules)


def test_it_does_so_again_only_when_more_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    set_modules_aside()
    gc.unfreeze()
    set_modules_aside()
    assert gc.get_freeze_count() == 0
    monkeypatch.setitem(sys.modules, "one_more", ModuleType("one_more"))
    set_modules_aside()
    assert gc.get_freeze_count() > 0


def test_a_process_that_is_no_worker_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    set_modules_aside()
    assert gc.get_freeze_count() == 0

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from benchmarks import accounting

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")


def test_what_waits_is_counted_from_the_start_of_the_machine(tmp_path: Path) -> None:
    before = accounting.waiting(tmp_path)
    after = accounting.waiting(tmp_path)
    assert before.keys() == after.keys() >= {"processors: nothing to do"}
    assert all(0 < before[what] <= after[what] for what in before)


def test_threads_of_this_process_have_used_what_it_has() -> None:
    seconds = sum(used for _, used in accounting.threads(os.getpid()).values())
    assert 0 < seconds <= accounting.cpu([os.getpid()]) + 0.1


def test_a_tree_has_its_root_and_its_children() -> None:
    assert os.getpid() in accounting.tree(os.getppid())
    assert accounting.memory(os.getpid()).anonymous > 0

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


def test_exact_accounts_are_of_all_threads_or_of_those_that_are_named() -> None:
    pid = os.getpid()
    before = accounting.exact([pid])
    assert sum(range(1_000_000))
    used = accounting.exact([pid]) - before
    assert 0 < used < accounting.cpu([pid])
    assert accounting.exact([pid], "no such thread") == 0


def test_a_tree_has_its_root_and_its_children() -> None:
    assert os.getpid() in accounting.tree(os.getppid())
    assert accounting.memory(os.getpid()).anonymous > 0

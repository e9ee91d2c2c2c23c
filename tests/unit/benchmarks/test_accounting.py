from __future__ import annotations

import os
import subprocess
import sys

import pytest
from benchmarks import accounting

BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def test_waiting_times_are_counted_since_boot() -> None:
    before = accounting.waiting()
    after = accounting.waiting()
    assert before.keys() == after.keys() >= {"processors: nothing to do"}
    assert all(0 <= before[what] <= after[what] for what in before)


def test_an_ended_child_counts_separately_from_its_parent() -> None:
    here = os.getpid()
    before, ended = accounting.cpu([here]), accounting.ended(here)
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert accounting.ended(here) >= ended + 0.25
    assert accounting.cpu([here]) >= before + 0.25


def test_an_ended_process_has_used_no_time() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert accounting.cpu([process.pid]) == 0
    assert not accounting.command(process.pid)


def test_a_process_tree_has_root_and_children() -> None:
    assert os.getpid() in accounting.tree(os.getppid())
    assert "python" in accounting.command(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_exact_times_are_of_all_or_named_threads() -> None:
    pid = os.getpid()
    before = accounting.exact([pid])
    assert sum(range(1_000_000))
    used = accounting.exact([pid]) - before
    assert 0 < used < accounting.cpu([pid])
    assert accounting.exact([pid], "no such thread") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_memory_of_a_running_process() -> None:
    assert accounting.memory(os.getpid()).anonymous > 0
    assert accounting.memory(0) == accounting.Memory()

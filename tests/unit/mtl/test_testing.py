"""The broker process of `mtl.testing`."""

from __future__ import annotations

import os

import pytest

from mtl.testing import broker


def test_kill_ends_the_whole_process_group_of_the_broker() -> None:
    with broker() as running:
        process = running.pid
        assert os.getpgid(process) == process != os.getpgid(0)
        running.kill()
        assert not running.running


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("failing", [False, True])
def test_a_forked_process_that_leaves_the_block_stops_and_removes_nothing(failing: bool) -> None:
    child = 0
    try:
        with broker() as running:
            child = os.fork()
            if child == 0 and failing:
                raise RuntimeError("of the child")
            if child:
                assert os.waitpid(child, 0) == (child, 0)
                assert running.running
                assert (running.data / "broker.db").exists()
    finally:
        if child == 0:
            os._exit(0)
    assert not running.data.exists()

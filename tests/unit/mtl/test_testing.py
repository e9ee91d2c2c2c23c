"""The broker process of `mtl.testing`."""

from __future__ import annotations

import os

from mtl.testing import broker


def test_kill_ends_the_whole_process_group_of_the_broker() -> None:
    with broker() as running:
        process = running.pid
        assert os.getpgid(process) == process != os.getpgid(0)
        running.kill()
        assert not running.running

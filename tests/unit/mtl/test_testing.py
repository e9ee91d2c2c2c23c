"""The broker process that `mtl.testing` gives to tests."""

from __future__ import annotations

import os

from mtl.testing import broker


def test_the_process_leads_a_group_of_its_own_that_kill_ends_as_a_whole() -> None:
    with broker() as running:
        process = running.pid
        assert os.getpgid(process) == process != os.getpgid(0)
        running.kill()
        assert not running.running

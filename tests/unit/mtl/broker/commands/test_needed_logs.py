"""Which logs each request waits for. That it waits is in test_opening."""

from __future__ import annotations

from mtl.broker.commands.needed_logs import NeededLogs
from mtl.wire import control as w


def test_every_command_has_a_row() -> None:
    """Say in NEEDS which logs a new command looks into."""
    assert set(NeededLogs.NEEDS) == set(w.REQUESTS.values())

"""Signals in their small form; scripts/signals sends 50,000."""

from __future__ import annotations

from mtl.testing import RunningBroker
from tests.signals import doors
from tests.signals.cases import CASES
from tests.signals.storm import interrupt

SIGNALS = 25
"""For each case; some seconds in all."""


def test_signals_interrupt_every_blocking_call_and_leave_the_process_working(
    mtl_broker: RunningBroker,
) -> None:
    with doors.serving(mtl_broker.endpoint):
        interrupt(mtl_broker.endpoint, CASES, SIGNALS)

"""The model detects small faults of the core; otherwise its success would prove little."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from mtl.broker.queues import queue_state
from mtl.broker.queues.queue import QueueLease
from mtl.broker.queues.queue_state import QueueState
from mtl.broker.reading.fanout import FanoutLease
from mtl.broker.writing.writers import Writers
from tests.stateful.machine import BrokerAndModel

_peek = QueueState.peek

Fault = Callable[[pytest.MonkeyPatch], None]

FAULTS: dict[str, Fault] = {
    "a writer may leave numbers out": lambda m: m.setattr(Writers, "_is_in_order", lambda *_: True),
    "a moved reader has its Summon still": lambda m: m.setattr(FanoutLease, "rebound", lambda *_: None),
    "a consumer's window is of no account": lambda m: m.setattr(QueueLease, "room", lambda *_: 9),
    "a consumer never gets again what it sent back": lambda m: m.setattr(
        QueueState,
        "peek",
        lambda queue, end, consumer, others_take: _peek(queue, end, consumer, lambda _: True),
    ),
    "what a lost consumer had is forgotten": lambda m: m.setattr(QueueState, "return_lost", lambda *_: None),
    "what comes again is not marked": lambda m: m.setattr(queue_state, "_COUNTED", frozenset()),
    "a pause never doubles": lambda m: m.setattr(queue_state, "backoff", lambda _: 0.1),
    "no delivery is the last": lambda m: m.setattr(QueueState, "_exhausted", lambda *_: False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_core_is_detected(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            BrokerAndModel,
            settings=settings(
                max_examples=1_000,
                stateful_step_count=50,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                print_blob=False,
                suppress_health_check=list(HealthCheck),
            ),
        )

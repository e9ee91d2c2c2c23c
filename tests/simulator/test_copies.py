"""Restored older copies of the data: every loss is reported, and no false one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.simulator.copies import simulate_copies
from tests.simulator.model import Violation

SEEDS = range(1, 21)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The broker logs every fault, as it should."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_exactly_the_clients_with_losses_get_data_loss() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts.update(simulate_copies(seed))
    assert counts["put-back"] >= len(SEEDS)
    assert min(counts["loss"], counts["writer-loss"], counts["compared"]) >= len(SEEDS), counts


def test_without_the_check_of_epochs_a_loss_stays_unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation detects the defect for which it is made."""
    monkeypatch.setattr("mtl.broker.writing.resources.Resource.check_place", lambda *_: None)

    def run() -> None:
        for seed in SEEDS:
            simulate_copies(seed)

    with pytest.raises(Violation, match="the loss was not reported"):
        run()

"""Commits that fail repeatedly in the middle."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulator.commits import simulate_commits

SEEDS = range(1, 21)
STEPS = 2_500

FAILED_ONCE = (43, 52, 57, 62, 66, 80, 91, 219, 228)
"""Seeds that found, with 3,000 steps, a fault that now has a unit test (tests/simulator/test_simulator.py)."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The broker logs every fault, as it should."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_commits_are_exactly_once_with_disk_failures(seed: int) -> None:
    simulate_commits(seed, STEPS)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    simulate_commits(seed, 3_000)

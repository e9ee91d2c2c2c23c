"""A fixed set of seeds, every seed that ever failed, and that a seed replays."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulator.machine import MemoryMachine
from tests.simulator.simulate import Outcomes, simulate

SEEDS = range(1, 31)
STEPS = 2_500

FAILED_ONCE = (5, 6, 7, 9, 10, 15, 18, 25, 29, 32, 33, 48, 51, 56, 77, 94)
"""With 4,000 steps; what they found has a test of its own, for a seed means something else whenever code changes."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The broker logs every fault, as it should."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_promises_are_kept_whatever_goes_wrong(seed: int) -> None:
    simulate(seed, STEPS)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_what_failed_once_does_not_fail_again(seed: int) -> None:
    simulate(seed, 4_000)


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_promises_are_kept_by_the_engine_in_memory(seed: int) -> None:
    simulate(seed, STEPS, machine=MemoryMachine)


def test_a_seed_replays() -> None:
    def run() -> tuple[list[str], Outcomes]:
        lines: list[str] = []
        return lines, simulate(1, STEPS, lines.append)

    assert run() == run()

"""A fixed set of seeds, every seed that ever failed, and the replay of a seed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulator.machine import MemoryMachine
from tests.simulator.simulate import Outcomes, simulate

SEEDS = range(1, 31)
STEPS = 2_500

FAILED_ONCE = (5, 6, 7, 9, 10, 15, 18, 25, 29, 32, 33, 48, 51, 56, 77, 94)
"""Seeds that failed once, with 4,000 steps. Each found fault also has its own test, since a change of the code changes
the run of a seed.
"""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The broker logs every fault, as it should."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_guarantees_hold_under_all_faults(seed: int) -> None:
    simulate(seed, STEPS)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    simulate(seed, 4_000)


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_guarantees_hold_for_the_engine_in_memory(seed: int) -> None:
    simulate(seed, STEPS, machine=MemoryMachine)


def test_a_seed_gives_the_same_run_twice() -> None:
    def run() -> tuple[list[str], Outcomes]:
        lines: list[str] = []
        return lines, simulate(1, STEPS, lines.append)

    assert run() == run()

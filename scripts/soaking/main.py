"""The implementation of scripts/soak: simulations with random seeds in several processes, until the time is over."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from random import SystemRandom

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.simulator.simulate import STEPS, simulate


def run(seed: int, steps: int) -> tuple[int, int, str]:
    """One simulation: its seed, its steps, and its error, if any."""
    logging.disable(logging.CRITICAL)
    try:
        return seed, simulate(seed, steps).steps, ""
    except Exception as error:  # noqa: BLE001 any exception is a finding
        return seed, 0, f"{type(error).__name__}: {error}"


def results(jobs: int, steps: int, seconds: float) -> Iterator[tuple[int, int, str]]:
    """Results in the order of completion, of as many concurrent simulations as there are jobs."""
    seeds, end = SystemRandom(), time.monotonic() + seconds
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[tuple[int, int, str]]] = set()
        while running or time.monotonic() < end:
            while len(running) < 2 * jobs and time.monotonic() < end:
                running.add(pool.submit(run, seeds.getrandbits(31), steps))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def main() -> int:
    """Exit code 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    seeds = steps = 0
    failed: list[int] = []
    began = time.monotonic()
    for seed, taken, wrong in results(asked.jobs, asked.steps, asked.minutes * 60):
        seeds += 1
        steps += taken
        if wrong:
            failed.append(seed)
            print(f"seed {seed}: {wrong:.300}", flush=True)
    rate = steps / (time.monotonic() - began)
    print(f"{seeds} seeds, {steps} steps, {rate:.0f} steps/s; failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.simulator --seed N [--steps M] [--trace] [--memory]: run one seed again.
python -m tests.simulator --count K [--seed N] [--steps M]: run K seeds from N on (random ones without --seed).

Prints the seeds that fail; exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from random import SystemRandom

from tests.simulator.machine import Machine, MemoryMachine
from tests.simulator.simulate import STEPS, simulate


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--memory", action="store_true", help="the storage engine that is in memory")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    machine = MemoryMachine if asked.memory else Machine
    failed: list[int] = []
    total, began = 0, time.perf_counter()
    for n in range(asked.count):
        seed = SystemRandom().getrandbits(31) if asked.seed is None else asked.seed + n
        try:
            outcomes = simulate(seed, asked.steps, print if asked.trace else None, machine)
        except Exception:  # noqa: BLE001 any exception is a finding
            failed.append(seed)
            print(f"seed {seed} failed:\n{traceback.format_exc(limit=-6)}", flush=True)  # noqa: T201
            continue
        total += outcomes.steps
        if asked.count == 1:
            print(outcomes)  # noqa: T201
    seconds = time.perf_counter() - began
    print(f"{asked.count} seeds, {total} steps, {total / seconds:.0f} steps/s, failed: {failed}")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.signals [--signals N] [NAME...]: interrupt the blocking calls, and print a line for each of them."""

from __future__ import annotations

import argparse
import sys

import mtl.testing
from tests.signals import doors
from tests.signals.cases import CASES
from tests.signals.storm import StormFailed, interrupt

SIGNALS = 50_000


def main() -> int:
    """Exit code 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="scripts/signals", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}")
    parser.add_argument("--signals", type=int, default=SIGNALS, help="the sum over all cases")
    asked = parser.parse_args()
    for name in asked.names:
        if name not in CASES:
            parser.error(f"there is no case {name}; there are {', '.join(CASES)}")
    names = asked.names or list(CASES)
    failed = []
    with mtl.testing.broker() as broker, doors.serving(broker.endpoint):
        for name in names:
            try:
                seconds = interrupt(broker.endpoint, [name], -(-asked.signals // len(names)))
            except StormFailed as error:
                failed.append(name)
                print(f"{name}: FAILED: {error}", flush=True)
            else:
                print(f"{name}: {-(-asked.signals // len(names))} signals in {seconds:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

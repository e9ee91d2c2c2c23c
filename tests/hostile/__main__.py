"""python -m tests.hostile [--light] [NAME...]: run the hostile scenarios and print the measurements as a table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pytest

from tests.hostile import scenarios  # noqa: F401  puts them into the table
from tests.hostile.bystander import Phase
from tests.hostile.harness import SCENARIOS, Measured, arena, measure


def head() -> str:
    """The table's first two lines."""
    return (
        "| scenario | what was done | s | memory before, MiB | at most | after | files "
        "| another user during the attack: answers | failures | slowest, ms "
        "| after it: answers | failures | slowest, ms |\n"
        f"|{'---|' * 13}"
    )


def row(measured: Measured) -> str:
    """One line of the table."""
    return (
        f"| {measured.name} | {measured.done} | {measured.seconds:.1f} | {measured.before:.0f} | {measured.most:.0f} "
        f"| {measured.left:.0f} | {measured.files} | {_served(measured.during)} | {_served(measured.after)} |"
    )


def _served(phase: Phase) -> str:
    return f"{phase.answers:,} | {phase.failures} | {phase.slowest * 1000:.0f}"


def main() -> int:
    """Exit code 1 if a scenario failed."""
    parser = argparse.ArgumentParser(prog="scripts/hostile", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--light", action="store_true", help="as small as in the suite")
    asked = parser.parse_args()
    for name in asked.names:
        if name not in SCENARIOS:
            parser.error(f"there is no scenario {name}; there are {', '.join(SCENARIOS)}")
    failed = []
    print(head())
    for name in asked.names or SCENARIOS:
        with tempfile.TemporaryDirectory() as place:
            try:
                with arena(Path(place), SCENARIOS[name]) as made:
                    print(row(measure(SCENARIOS[name], made, heavy=not asked.light)), flush=True)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 the others run as well
                failed.append(name)
                print(f"| {name} | FAILED: {error} |{' |' * 11}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

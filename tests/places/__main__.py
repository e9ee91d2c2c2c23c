"""python -m tests.places [--list] [--only NAME,...] [--spark VERSION,...]: run the cases and print place by case."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import mtl.testing
from tests.places import environments
from tests.places.cases import CASES
from tests.places.places import PLACES
from tests.places.running import Outcome, run

INSTALLED = "installed"
"""The name of the version of Spark in the project's own environment."""


def main() -> int:
    """Exit code 1 if a case failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that started processes are ended
    asked = _arguments()
    if asked.list:
        for name, what in _all():
            print(f"{name:30} {what}")
        return 0
    places = [name for name in PLACES if not asked.only or name in asked.only]
    names = [name for name in CASES if not asked.only or name in asked.only]
    chosen = (places or list(PLACES), names or list(CASES))
    failed: list[str] = []
    print("| Spark | Java | place |" + "".join(f" {name} |" for name in chosen[1]))
    print("|---|---|---|" + "---|" * len(chosen[1]))
    with mtl.testing.broker() as broker, tempfile.TemporaryDirectory(prefix="mtl-places-") as directory:
        for version in asked.spark:
            python = sys.executable if version == INSTALLED else environments.python(version)
            for place in chosen[0]:
                outcome = run(place, broker.endpoint, chosen[1], Path(directory) / version / place, python)
                print(row(version, place, chosen[1], outcome), flush=True)
                failed += [f"{version}, {place}, {name}:\n{text}" for name, text in outcome.errors.items()]
    for text in failed:
        print(f"\nFAILED {text}", file=sys.stderr)
    return 1 if failed else 0


def row(version: str, place: str, names: list[str], outcome: Outcome) -> str:
    """One line of the table: seconds, or that it failed."""
    cells = ["FAILED" if name in outcome.errors else f"{outcome.seconds[name]:.1f} s" for name in names]
    return "| " + " | ".join([outcome.spark or version, outcome.java, place, *cells]) + " |"


def _all() -> Iterator[tuple[str, str]]:
    for names in (PLACES, CASES):
        for name, function in names.items():
            yield name, (function.__doc__ or "").partition("\n")[0]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/places", description=__doc__)
    parser.add_argument("--list", action="store_true", help="the places and the cases")
    parser.add_argument("--only", type=_names, default=[], metavar="NAME,...", help="some places, some cases")
    parser.add_argument(
        "--spark",
        type=_versions,
        default=[INSTALLED],
        metavar="VERSION,...",
        help="such as 4.1, or installed",
    )
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in {*PLACES, *CASES}:
            raise argparse.ArgumentTypeError(f"there is no place and no case {name!r}; see --list")
    return names


def _versions(text: str) -> list[str]:
    versions = text.split(",")
    for version in versions:
        if version != INSTALLED and not environments.VERSION.fullmatch(version):
            raise argparse.ArgumentTypeError(f"{version!r} is no version of Spark; one looks like 4.1")
    return versions


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.crash: crash a broker in every way, and print what was lost. See scripts/crash."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.outcomes import Outcome, Spec
from tests.crash.rounds import KINDS
from tests.crash.running import LIGHT, LONG, in_a_round, played, specs

BUILD = Path("build") / "crash"


def main() -> int:
    """Exit code 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(prog="scripts/crash", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--light", action="store_true", help="as few faults as the suite has")
    parser.add_argument("--seed", type=int, default=None, help="of everything random (default: a new one)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="rounds at the same time")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="only this kind of fault")
    parser.add_argument(
        "--round", type=int, default=None, help="one round again, by the seed that was printed"
    )
    for fault, count in LONG.items():
        name = fault.replace(" ", "-") + "s"
        parser.add_argument(
            f"--{name}", dest=fault, type=int, metavar="N", help=f"how many (default: {count})"
        )
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    counts = LIGHT if asked.light else LONG
    counts = {
        fault: count if getattr(asked, fault) is None else getattr(asked, fault)
        for fault, count in counts.items()
        if asked.only is None or fault in asked.only
    }
    rounds = list(specs(counts, seed))
    if asked.round is not None:
        rounds = [Spec(fault, in_a_round(fault, count), asked.round) for fault, count in counts.items()]
    print(f"seed {seed}", flush=True)
    with _places() as place:
        outcomes = []
        for outcome in played(rounds, place, asked.jobs):
            print_outcome(outcome)
            outcomes.append(outcome)
    text = table(outcomes)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "crash.md").write_text(f"{text}\n", encoding="utf-8")
    print(f"\n{text}")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


@contextmanager
def _places() -> Iterator[Path]:
    """The directory of the rounds: in memory if possible, because no sync reaches a disk anyway. Directories with
    findings are kept.
    """
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="crash-", dir=memory if memory.is_dir() else None))
    try:
        yield place
    finally:
        for left in (place / "shim.so", place):
            try:
                left.rmdir() if left.is_dir() else left.unlink(missing_ok=True)
            except OSError:
                print(f"what failed is in {place}")


def print_outcome(outcome: Outcome) -> None:
    """Print a line for a round, and its findings."""
    spec = outcome.spec
    print(
        f"{outcome.seconds:5.1f} s  {spec.fault}, round {spec.seed}: {outcome.count} of {spec.count}, "
        f"{outcome.contents} contents{', **FAILED**' if outcome.failed else ''}",
        flush=True,
    )
    for finding in outcome.findings[:20]:
        print(f"         {finding.kind}: {finding.text}", flush=True)


def table(outcomes: Iterable[Outcome]) -> str:
    """One row for each kind of fault."""
    found = list(outcomes)
    lines = ["| fault | count | lost | duplicated | wrong | undetected |", "|---|---|---|---|---|---|"]
    for fault in dict.fromkeys(outcome.spec.fault for outcome in sorted(found, key=_order)):
        mine = [outcome for outcome in found if outcome.spec.fault == fault]
        sums = {
            kind: sum(
                finding.count for outcome in mine for finding in outcome.findings if finding.kind == kind
            )
            for kind in ("lost", "duplicated", "wrong", "undetected")
        }
        count = sum(outcome.count for outcome in mine)
        lines.append(f"| {fault} | {count:,} | {' | '.join(f'{n:,}' for n in sums.values())} |")
    return "\n".join(lines)


def _order(outcome: Outcome) -> int:
    return list(KINDS).index(outcome.spec.fault)


if __name__ == "__main__":
    sys.exit(main())

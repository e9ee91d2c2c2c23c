"""Kill every process at every step, and print the results: scripts/kills, or python -m tests.kills --help.

Results are kept in build/kills; the table there has the last result of every scenario.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.kills.bench import Bench, bench
from tests.kills.matrix import KILLS, LIGHT, MOMENTS, Victim
from tests.kills.scenes import SCENES

BUILD = Path("build") / "kills"
RESULTS, TABLE = BUILD / "played.json", BUILD / "kills.md"


@dataclass
class Played:
    """The result of one scenario."""

    name: str
    outcome: str
    seconds: float
    failed: bool


def play(shared: Bench, number: int, name: str, scenario: Callable[[Bench, str], str]) -> Played:
    """Run a scenario; after a failure the bench is restored for the next one."""
    began = time.monotonic()
    try:
        outcome, failed = scenario(shared, f"q{number}"), False
    except Exception as error:  # noqa: BLE001 a scenario that fails, in whatever way, is not the end of the others
        outcome, failed = f"**FAILED**: {(str(error) or repr(error)).splitlines()[0]}", True
        print(error, file=sys.stderr)
        shared.tidy()
    return Played(name, outcome, time.monotonic() - began, failed)


def matrix(played: dict[str, Played]) -> str:
    """The matrix: steps as rows, victims as columns."""
    lines = [
        f"| {' | '.join(['step of the trigger', *(victim.value for victim in Victim)])} |",
        f"|{'---|' * (len(Victim) + 1)}",
    ]
    for moment in MOMENTS:
        cells = [played.get(f"{victim.value} {moment.name}") for victim in Victim]
        if any(cells):
            cells_of_row = [moment.name, *(cell.outcome if cell else "" for cell in cells)]
            lines.append(f"| {' | '.join(cells_of_row)} |")
    return "\n".join(lines)


def scenes(played: dict[str, Played]) -> str:
    """One row per scene."""
    found = [played[scene.name] for scene in SCENES if scene.name in played]
    lines = ["| what happened | what came of it |", "|---|---|"]
    return "\n".join([*lines, *(f"| {scene.name} | {scene.outcome} |" for scene in found)])


def report(played: dict[str, Played]) -> str:
    """Both tables, and a line of sums."""
    failed = sum(scenario.failed for scenario in played.values())
    seconds = sum(scenario.seconds for scenario in played.values())
    sums = f"{len(played)} scenarios, {failed} failed, {seconds / 60:.0f} minutes"
    return f"{matrix(played)}\n\n{scenes(played)}\n\n{sums}\n"


def earlier() -> dict[str, Played]:
    """The results of former runs."""
    if not RESULTS.exists():
        return {}
    found = (Played(**members) for members in json.loads(RESULTS.read_text(encoding="utf-8")))
    return {result.name: result for result in found}


def keep(played: dict[str, Played]) -> None:
    """Save the results for the next run, and the table for docs/measurements/kills.md."""
    BUILD.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(result) for result in played.values()], indent=1), encoding="utf-8")
    TABLE.write_text(report(played), encoding="utf-8")


def main() -> int:
    """Exit code 1 if a scenario failed."""
    parser = argparse.ArgumentParser(prog="scripts/kills", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--light", action="store_true", help="only what the suite plays")
    parser.add_argument("--list", action="store_true", help="print the names and play nothing")
    parser.add_argument("--keep", action="store_true", help="only what has not passed in the runs before")
    parser.add_argument("--only", action="append", metavar="NAME", help="only those with this in their name")
    asked = parser.parse_args()
    scenarios = {**{kill.name: kill.play for kill in KILLS}, **{scene.name: scene.play for scene in SCENES}}
    known, played = earlier(), dict[str, Played]()
    done = {result.name for result in known.values() if asked.keep and not result.failed}
    names = [name for name in _chosen(LIGHT if asked.light else scenarios, asked.only) if name not in done]
    if asked.list:
        print("\n".join(names))
        return 0
    with tempfile.TemporaryDirectory(prefix="kills-") as place, bench(Path(place)) as shared:
        for number, name in enumerate(names):
            last = played[name] = play(shared, number, name, scenarios[name])
            print(f"{last.seconds:5.1f} s  {name}: {last.outcome}", flush=True)
            keep(known | played)
    print(f"\n{report(known | played if asked.keep else played)}")
    return 1 if any(result.failed for result in played.values()) else 0


def _chosen(names: Iterable[str], only: list[str] | None) -> list[str]:
    return [name for name in names if only is None or any(word in name for word in only)]


if __name__ == "__main__":
    sys.exit(main())

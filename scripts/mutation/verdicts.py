"""The verdict on each mutant: kept in a file, so that a run can be continued, and shown in a table."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

KILLED, ELSEWHERE, SURVIVED = "killed", "elsewhere", "SURVIVED"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`about` is the requirement, or "sample". `by` is the test that failed; "elsewhere" is a test of another name."""

    about: str
    key: str
    line: int
    verdict: str
    by: str

    def row(self, reasons: Mapping[str, str]) -> str:
        """A line of the table."""
        path, _, change = self.key.partition("::")
        by = reasons.get(self.key, self.by) if self.verdict == SURVIVED else self.by
        word = "explained" if self.verdict == SURVIVED and self.key in reasons else self.verdict
        cells = (self.about, f"{path}:{self.line}", f"`{change}`", word, by)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


class Kept:
    """The verdicts of a run, one JSON in a line. `earlier` has the failed test of each mutant in the other runs of the
    directory, which had other code or tests: it is tried first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.all = {(verdict.about, verdict.key): verdict for verdict in _read(path)}
        others = sorted(path.parent.glob("*.jsonl"), key=lambda other: other.stat().st_mtime)
        self.earlier = {
            verdict.key: verdict.by for other in others if other != path for verdict in _read(other)
        }

    def add(self, verdict: Verdict) -> None:
        """Save one verdict."""
        self.all[verdict.about, verdict.key] = verdict
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(asdict(verdict))}\n")


def _read(path: Path) -> list[Verdict]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Verdict(**json.loads(line)) for line in lines]


def reasons(path: Path) -> dict[str, str]:
    """Why some mutants may survive, by their keys. Raises `ValueError` for one without a reason."""
    if not path.exists():
        return {}
    found = {}
    for survivor in tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", ()):
        if not survivor.get("reason"):
            raise ValueError(
                f"{path.name}: {survivor['mutant']!r} has no reason: say why no test can notice it"
            )
        found[survivor["mutant"]] = survivor["reason"]
    return found


def table(verdicts: Iterable[Verdict], explained: Mapping[str, str]) -> str:
    """All verdicts, and how many there are of each."""
    lines = ["| about | where | change | verdict | by |", "|---|---|---|---|---|"]
    counts: Counter[str] = Counter()
    for verdict in verdicts:
        lines.append(verdict.row(explained))
        counts[
            "explained" if verdict.verdict == SURVIVED and verdict.key in explained else verdict.verdict
        ] += 1
    total = sum(counts.values())
    summary = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
    return "\n".join([*lines, "", f"{total} mutants: {summary}"])


def without_killed(verdicts: Iterable[Verdict]) -> list[str]:
    """The requirements whose own tests detected none of their mutants: these tests are weak, or test other code."""
    own: dict[str, bool] = {}
    for verdict in verdicts:
        own[verdict.about] = own.get(verdict.about, False) or verdict.verdict == KILLED
    return [about for about, noticed in own.items() if not noticed]

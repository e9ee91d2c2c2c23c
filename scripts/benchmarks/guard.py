"""The guard: compares the ratios of the short form with the baseline in the repository, and finds what has become
slower.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import differences
from benchmarks.measure import Row

BASELINE = Path(__file__).parent / "baseline.json"

NOISE = 0.08
"""Smaller differences of a ratio count as equal, however small the spreads are: a few rounds do not show all noise.
"""


@dataclass(frozen=True)
class Verdict:
    """How a ratio compares with the baseline's: "slower", "faster", "same", "new", or "not measured"."""

    workload: str
    key: str
    what: str
    now: float | None = None
    then: float | None = None

    def __str__(self) -> str:
        """One line for the console."""
        if self.now is None or self.then is None:
            return f"{self.what:>12}  {self.key}"
        return f"{self.what:>12}  {self.key}: {self.then:.2f} -> {self.now:.2f}"


def save(rows: Sequence[Row], machine: Mapping[str, str], path: Path = BASELINE) -> None:
    """Save the measured ratios; those that were not measured remain if they are of the same machine."""
    kept: dict[str, Any] = {}
    if path.exists() and not other_machine(machine, path):
        kept = _load(path)["rows"]
    for row in rows:
        for key, ratios in _ratios(row).items():
            kept[key] = {
                "better": row.better,
                "ratio": round(median(ratios), 4),
                "low": round(min(ratios), 4),
                "high": round(max(ratios), 4),
            }
    path.write_text(json.dumps({"machine": dict(machine), "rows": kept}, indent=2, ensure_ascii=False) + "\n")


def compare(rows: Sequence[Row], path: Path = BASELINE) -> list[Verdict]:
    """A verdict for each ratio, the slower ones first."""
    then = _load(path)["rows"]
    order = ["slower", "not measured", "new", "faster", "same"]
    return sorted(
        (verdict for row in rows for verdict in _verdicts(row, then)),
        key=lambda verdict: order.index(verdict.what),
    )


def suspects(rows: Sequence[Row], path: Path = BASELINE) -> list[str]:
    """The workloads that seem slower. They are measured again before they are reported."""
    slower = (verdict.workload for verdict in compare(rows, path) if verdict.what == "slower")
    return list(dict.fromkeys(slower))


def _ratios(row: Row) -> dict[str, tuple[float, ...]]:
    """The ratios of the rounds by their keys in the baseline: as measured, and without the fixed cost of the start."""
    found = {row.key: row.ratios, f"{row.key} | batches alone": row.inner}
    return {key: ratios for key, ratios in found.items() if ratios}


def _verdicts(row: Row, then: Mapping[str, Any]) -> Iterator[Verdict]:
    if row.missing:
        yield Verdict(row.workload, row.key, "not measured")
    for key, ratios in _ratios(row).items():
        if key not in then:
            yield Verdict(row.workload, key, "new")
        else:
            what = _difference(ratios, then[key], more_is_better=row.better == "more")
            yield Verdict(row.workload, key, what, median(ratios), then[key]["ratio"])


def _difference(now: Sequence[float], then: Mapping[str, float], *, more_is_better: bool) -> str:
    """Two values differ if each median lies outside of the other's spread, and the difference is above the noise."""
    ratio = median(now)
    less = ratio < then["low"] and max(now) < then["ratio"] and ratio < then["ratio"] * (1 - NOISE)
    more = ratio > then["high"] and min(now) > then["ratio"] and ratio > then["ratio"] * (1 + NOISE)
    if not less and not more:
        return "same"
    return "faster" if more == more_is_better else "slower"


def other_machine(machine: Mapping[str, str], path: Path = BASELINE) -> list[str]:
    """The differences from the baseline's machine, which alone may change the ratios."""
    return differences(_load(path)["machine"], machine)


def _load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content

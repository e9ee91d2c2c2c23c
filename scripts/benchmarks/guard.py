"""The guard: the short form's ratios, kept in the repository, and what got slower than they say beyond the noise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import differences
from benchmarks.measure import Row

BASELINE = Path(__file__).parent / "baseline.json"

NOISE = 0.05
"""A ratio that differs by less is the same, however small the spreads are: five rounds do not show all of the noise."""


@dataclass(frozen=True)
class Verdict:
    """How a row compares with the baseline's: "slower", "faster", "same", "new", or "not measured"."""

    key: str
    what: str
    now: float | None = None
    then: float | None = None

    def __str__(self) -> str:
        """For people."""
        if self.now is None or self.then is None:
            return f"{self.what:>12}  {self.key}"
        return f"{self.what:>12}  {self.key}: {self.then:.2f} -> {self.now:.2f}"


def save(rows: Sequence[Row], machine: Mapping[str, str], path: Path = BASELINE) -> None:
    """Keep the ratios of what was measured; what this run did not measure stays as it was."""
    kept = _load(path)["rows"] if path.exists() else {}
    for row in rows:
        if not row.missing:
            low, high = row.spread
            kept[row.key] = {
                "better": row.better,
                "ratio": round(row.ratio, 4),
                "low": round(low, 4),
                "high": round(high, 4),
            }
    path.write_text(json.dumps({"machine": dict(machine), "rows": kept}, indent=2, ensure_ascii=False) + "\n")


def compare(rows: Sequence[Row], path: Path = BASELINE) -> list[Verdict]:
    """A verdict for each row, the slower ones first."""
    then = _load(path)["rows"]
    order = ["slower", "not measured", "new", "faster", "same"]
    return sorted((_verdict(row, then.get(row.key)) for row in rows), key=lambda one: order.index(one.what))


def _verdict(row: Row, then: Mapping[str, Any] | None) -> Verdict:
    if row.missing:
        return Verdict(row.key, "not measured")
    if then is None:
        return Verdict(row.key, "new")
    low, high = row.spread
    if row.better == "more":
        worse = row.ratio < then["low"] and then["ratio"] > high and row.ratio < then["ratio"] * (1 - NOISE)
        better = row.ratio > then["high"] and then["ratio"] < low and row.ratio > then["ratio"] * (1 + NOISE)
    else:
        worse = row.ratio > then["high"] and then["ratio"] < low and row.ratio > then["ratio"] * (1 + NOISE)
        better = row.ratio < then["low"] and then["ratio"] > high and row.ratio < then["ratio"] * (1 - NOISE)
    what = "slower" if worse else "faster" if better else "same"
    return Verdict(row.key, what, row.ratio, then["ratio"])


def other_machine(machine: Mapping[str, str], path: Path = BASELINE) -> list[str]:
    """What differs from the machine of the baseline; the ratios may then differ for no other reason."""
    return differences(_load(path)["machine"], machine)


def _load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content

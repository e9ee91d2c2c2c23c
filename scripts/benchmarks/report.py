"""The figures as a table for people, as Markdown and as JSON, with the measured machine."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import START_SHARE, Row

HEAD = (
    "| workload | beside | ours | peer | ratio | spread | batches alone | to reach | |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
LEGEND = (
    "Ratios are ours / peer, medians of rounds in which all sides take turns; the spread is their smallest and their "
    "largest. *Batches alone* is the ratio without what starting and ending a job or query costs by itself: by the "
    "micro-batches' own durations, or by the time above that of the same job without rows. Where the start is more "
    "than a quarter of a side's time it hides the difference, and the worse of the two ratios counts: the bold one. "
    "Kafka with a flush moves a tenth of the rows."
)

JSON = "bench.json"

UNSAID = {"seconds", "rows", START_SHARE}
"""Facts that are only in bench.json."""


def markdown(rows: Sequence[Row], machine: Mapping[str, str]) -> str:
    """The table, its notes, and the machine."""
    lines = [HEAD, *map(_line, rows), "", LEGEND, ""]
    notes = [f"- {row.title}, beside {row.peer}: {text}" for row in rows if (text := note(row))]
    if notes:
        lines += [*notes, ""]
    lines.append(", ".join(f"{name} {value}" for name, value in machine.items()))
    return "\n".join(lines) + "\n"


def summary(row: Row) -> str:
    """One line for the console, printed as soon as a row is measured."""
    if row.missing:
        return f"{row.title}, beside {row.peer}: not measured: {row.missing}"
    low, high = row.spread
    goal = "" if row.target is None else f", to reach {_goal(row)}: {'yes' if row.reached else 'NO'}"
    alone = f", batches alone {row.inner_ratio:.2f}" if row.inner_ratio is not None else ""
    return f"{row.title}: {row.ratio:.2f} of {row.peer} ({low:.2f} to {high:.2f}){alone}{goal}"


def _line(row: Row) -> str:
    own = f"{figure(row.ours)} {row.unit}" if row.ours else ""
    if row.missing:
        return f"| {row.title} | {row.peer} | {own} | not measured: {row.missing} | | | | {_goal(row)} | |"
    low, high = row.spread
    ratio, inner = f"{row.ratio:.2f}", "" if row.inner_ratio is None else f"{row.inner_ratio:.2f}"
    ratio, inner = (f"**{ratio}**", inner) if row.judged == row.ratio else (ratio, f"**{inner}**")
    mark = {True: "✓", False: "✗", None: ""}[row.reached]
    return (
        f"| {row.title} | {row.peer} | {own} | {figure(row.theirs)} {row.unit} | {ratio} "
        f"| {low:.2f} to {high:.2f} | {inner} | {_goal(row)} | {mark} |"
    )


def _goal(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{'≥' if row.better == 'more' else '≤'} {row.target:g}"


def figure(values: Sequence[float]) -> str:
    """The median, with its significant digits."""
    value = statistics.median(values)
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def note(row: Row) -> str:
    """The remarks on a ratio: the row's own note, and its facts."""
    facts = "; ".join(
        f"{name} {figure([value])}"
        for name, value in row.facts.items()
        if name.removeprefix("peer: ") not in UNSAID
    )
    return ". ".join(filter(None, [row.note, facts]))


def save(rows: Sequence[Row], machine: Mapping[str, str], run: Mapping[str, object], directory: Path) -> None:
    """Write bench.md and bench.json; the description of the `run` is in the latter."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "bench.md").write_text(markdown(rows, machine))
    content = {"machine": dict(machine), **run, "rows": [_json(row) for row in rows]}
    (directory / JSON).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _json(row: Row) -> dict[str, Any]:
    common = {
        "workload": row.workload,
        "title": row.title,
        "peer": row.peer,
        "unit": row.unit,
        "better": row.better,
        "target": row.target,
        "ours": list(row.ours),
    }
    if row.missing:
        return {**common, "not measured": row.missing}
    return {
        **common,
        "theirs": list(row.theirs),
        "ratios": list(row.ratios),
        "ratio": row.ratio,
        "spread": list(row.spread),
        "batches alone": list(row.inner),
        "reached": row.reached,
        "note": row.note,
        "facts": dict(row.facts),
    }


def row_of(saved: Mapping[str, Any]) -> Row:
    """The row that `save` wrote to bench.json."""
    return Row(
        saved["workload"],
        saved["title"],
        saved["peer"],
        saved["unit"],
        saved["better"],
        saved["target"],
        tuple(saved["ours"]),
        tuple(saved.get("theirs", ())),
        tuple(saved.get("batches alone", ())),
        saved.get("note", ""),
        saved.get("not measured", ""),
        saved.get("facts", {}),
    )

"""The figures as a table for people, Markdown and JSON, with the machine they were measured on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.measure import Row


def machine() -> dict[str, str]:
    """Where and with what this was measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "pyarrow", "pyzmq")},
    }


def markdown(rows: Sequence[Row]) -> str:
    """The table."""
    lines = [
        "| workload | beside | ours, rows/s | peer, rows/s | ratio | spread | to reach |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row.spread
        lines.append(
            f"| {row.workload} | {row.peer} | {row.ours_per_s:,.0f} | {row.peer_per_s:,.0f} "
            f"| **{row.ratio:.2f}** | {low:.2f} to {high:.2f} | {row.target:.2f} |"
        )
    lines += ["", ", ".join(f"{name} {value}" for name, value in machine().items())]
    return "\n".join(lines)


def save(rows: Sequence[Row], directory: Path) -> None:
    """bench.md and bench.json."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "bench.md").write_text(markdown(rows) + "\n")
    figures = [{**asdict(row), "ratio": row.ratio} for row in rows]
    (directory / "bench.json").write_text(
        json.dumps({"machine": machine(), "rows": figures}, indent=2) + "\n"
    )

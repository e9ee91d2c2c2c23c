"""The headline figures as one picture of at most eight bars, from the table of docs/measurements/speed.md."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image


class Bar(NamedTuple):
    """A row of the table, by the beginning of its workload and of its peer, and its title in the picture."""

    workload: str
    peer: str
    title: str


HEADLINES = (
    Bar("drain, batch, 100 B", "Kafka", "read a batch, 100 B, vs Kafka"),
    Bar("drain, batch, 1024 B", "Kafka", "read a batch, 1 KiB, vs Kafka"),
    Bar("drain, AvailableNow, 1024 B", "Kafka", "read a stream, 1 KiB, vs Kafka"),
    Bar("write to one resource, 1024 B", "Kafka sink (", "write, 1 KiB, vs Kafka without a sync"),
    Bar("write to one resource, 1024 B", "Kafka sink, flush", "write, 1 KiB, vs Kafka with a flush"),
    Bar(
        "copy in a stream, 1024 B",
        "Kafka topic to topic (",
        "copy in a stream, 1 KiB, vs Kafka without a sync",
    ),
    Bar("drain, batch, 1024 B", "in-memory", "read a batch, 1 KiB, vs rows made in memory"),
    Bar(
        "plain publish and read, 100 B, our client",
        "raw pyzmq forwarder, not",
        "one by one, 100 B, vs a bare forwarder",
    ),
)
"""From top to bottom."""

COLOURS = 64
"""The number of colours of the saved picture: few, because its size counts in the repository."""


def ratios(page: str) -> list[tuple[str, float]]:
    """Title and ratio of every bar, from the page's table. ValueError for a missing row."""
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")]
    return [(bar.title, _ratio(bar, rows)) for bar in HEADLINES]


def _ratio(bar: Bar, rows: list[list[str]]) -> float:
    for workload, peer, _, _, ratio, *_ in rows:
        if workload.strip() == bar.workload and peer.strip().startswith(bar.peer):
            return float(re.sub(r"[^\d.]", "", ratio))
    raise ValueError(f"the table has no row {bar.workload!r} beside {bar.peer!r}")


def draw(page: str, path: Path) -> None:
    """Save the picture as a PNG."""
    bars = ratios(page)
    figure = Figure(figsize=(8.5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_xscale("log")
    for at, (title, ratio) in enumerate(bars):
        axes.barh(at, ratio - 1, left=1, height=0.6, color="#3b6fb6" if ratio >= 1 else "#b07a2a")
        beside = max(ratio, 1.0) * 1.06
        axes.text(beside, at, f"{ratio:.2f}\N{MULTIPLICATION SIGN}", va="center", fontsize=9)
        axes.text(-0.01, at, title, transform=axes.get_yaxis_transform(), va="center", ha="right", fontsize=9)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlim(0.4, 45)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    axes.set_xlabel("throughput, times that of the peer", fontsize=9)
    axes.minorticks_off()
    axes.spines[["top", "right", "left"]].set_visible(False)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=110)
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(path, optimize=True)

"""The figures as pictures: ratios with their spreads and targets, rates side by side, and how costs grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.measure import Row
from benchmarks.report import figure

GOOD, BAD, NEUTRAL, THEIRS = "#2a7f3f", "#b3352c", "#4a6a8a", "#b9b9b9"
LINE_IN = 0.32
"""Inches of a line."""


def save(rows: Sequence[Row], directory: Path) -> list[Path]:
    """The pictures that these rows make: ratios.png, rates.png, growth.png."""
    measured = [row for row in rows if not row.missing and row.theirs]
    growing = [row for row in measured if row.workload.startswith("grow-")]
    others = [row for row in measured if row not in growing]
    rates = [row for row in others if row.unit.endswith("/s")]
    pictures = (
        (others, "ratios.png", _ratios),
        (rates, "rates.png", _rates),
        (growing, "growth.png", _growth),
    )
    saved = []
    for chosen, name, draw in pictures:
        if chosen:
            figure_, axes = plt.subplots(figsize=(10, 1.5 + LINE_IN * len(chosen)))
            draw(axes, chosen)
            figure_.savefig(directory / name, dpi=120, bbox_inches="tight")
            plt.close(figure_)
            saved.append(directory / name)
    return saved


def _ratios(axes: Axes, rows: Sequence[Row]) -> None:
    colours = {True: GOOD, False: BAD, None: NEUTRAL}
    for at, row in enumerate(rows):
        low, high = row.spread
        axes.plot([low, high], [at, at], color=colours[row.reached], linewidth=3, alpha=0.4)
        axes.plot([row.ratio], [at], "o", color=colours[row.reached])
        if row.target is not None:
            axes.plot([row.target], [at], marker="|", markersize=14, color="black")
    axes.axvline(1.0, color="black", linewidth=0.5)
    axes.set_xscale("log")
    _lines(axes, [f"{row.title}  {'↑' if row.better == 'more' else '↓'}  {row.peer}" for row in rows])
    axes.set_xlabel(
        "ours / peer (↑ more is better, ↓ less is better); bars are spreads, black marks are targets"
    )


def _rates(axes: Axes, rows: Sequence[Row]) -> None:
    for at, row in enumerate(rows):
        top = max(median(row.ours), median(row.theirs))
        for shift, values, colour in ((-0.2, row.ours, NEUTRAL), (0.2, row.theirs, THEIRS)):
            axes.barh(at + shift, median(values) / top, 0.36, color=colour)
            axes.text(
                median(values) / top, at + shift, f" {figure(values)} {row.unit}", va="center", fontsize=7
            )
    axes.set_xlim(0, 1.25)
    _lines(axes, [f"{row.title}, {row.peer}" for row in rows])
    axes.set_xlabel("ours (dark) and peer (light), each pair to its own scale")


def _growth(axes: Axes, rows: Sequence[Row]) -> None:
    for at, row in enumerate(rows):
        axes.barh(at, row.ratio, 0.6, color=GOOD if row.reached else BAD)
        now, then = row.facts.get("broker MB"), row.facts.get("peer: broker MB")
        if now is not None and then is not None:
            axes.text(row.ratio, at, f"  broker {then:.0f} → {now:.0f} MB", va="center", fontsize=7)
    axes.axvline(1.0, color="black", linewidth=0.5)
    axes.axvline(1.1, color="black", linewidth=0.5, linestyle=":")
    axes.margins(x=0.25)
    _lines(axes, [row.title for row in rows])
    axes.set_xlabel("cost per content, relative to the smallest size; the memory is the broker's own")


def _lines(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)

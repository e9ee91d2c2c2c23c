"""The figures as pictures: the ratio of each workload to its peers and targets, and the growth of costs and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

from benchmarks.measure import Row
from benchmarks.report import figure

GOOD, BAD, NEUTRAL, FAINT = "#2a7f3f", "#b3352c", "#4a6a8a", "#777777"
COLOURS = {True: GOOD, False: BAD, None: NEUTRAL}
TIMES = "\N{MULTIPLICATION SIGN}"
LINE_IN = 0.2
"""The height of a line in inches."""
LEFT, RIGHT = -0.5, 1.6
"""The left and right end of the text, in widths of the axes."""
PALETTE = 64
"""The number of colours of a saved picture: few, since its size counts in the repository."""

_NUMBER = re.compile(r"\d[\d,.]*")
_ASIDE = re.compile(r" \(([^)]*)\)")


def save(rows: Sequence[Row], directory: Path) -> list[Path]:
    """The pictures of these rows: ratios.png, growth.png."""
    measured = [row for row in rows if not row.missing and row.theirs]
    growing = [row for row in measured if row.workload.startswith("grow-") and _NUMBER.search(row.peer)]
    others = [row for row in measured if row not in growing]
    saved = []
    for chosen, name, draw in ((others, "ratios.png", _ratios), (growing, "growth.png", _growth)):
        if chosen:
            picture = draw(chosen)
            _write(picture, directory / name)
            saved.append(directory / name)
    return saved


def _write(picture: Figure, path: Path) -> None:
    drawn = BytesIO()
    picture.savefig(drawn, dpi=110, bbox_inches="tight")
    plt.close(picture)
    Image.open(drawn).convert("RGB").quantize(PALETTE).save(path, optimize=True)


FARTHEST = 1_000.0
"""The largest ratio that a picture shows; an idle query may have no measurable processor time."""


# --- ratios -------------------------------------------------------------------------------------------------


def _ratios(rows: Sequence[Row]) -> Figure:
    """A bar for each row, from 1 to the ratio that counts, below its title; right is better, also where less is
    better.
    """
    lines = _lines(rows)
    picture, axes = plt.subplots(figsize=(7, 1.0 + LINE_IN * len(lines)))
    axes.set_xscale("log")
    for at, line in enumerate(lines):
        if isinstance(line, Row):
            _bar(axes, at, line)
        else:
            _title(axes, at, line)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.xaxis.set_major_locator(LogLocator(2))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{TIMES}"))
    axes.set_yticks([])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    asides = sorted({aside for row in rows for aside in _ASIDE.findall(row.peer)})
    axes.set_xlabel(
        "times as good as the peer\nheavy mark: the target (green: reached); thin line: spread of the rounds"
        + "".join(f"\nKafka by the {aside}" for aside in asides),
        fontsize=8,
    )
    return picture


def _lines(rows: Sequence[Row]) -> list[Row | str]:
    """The rows from top to bottom: each title, then the rows of its peers."""
    groups = groupby(rows, key=lambda row: row.title)
    return [line for title, members in groups for line in (title, *members)]


def _title(axes: Axes, at: int, title: str) -> None:
    axes.axhline(at - 0.5, xmin=LEFT, xmax=RIGHT, color="#dddddd", linewidth=0.6, clip_on=False)
    axes.text(LEFT, at, title, transform=axes.get_yaxis_transform(), va="center", fontsize=8, weight="bold")


def _bar(axes: Axes, at: int, row: Row) -> None:
    colour = COLOURS[row.reached]
    axes.barh(at, _better(row, row.judged) - 1, left=1, height=0.62, color=colour)
    axes.plot([_better(row, ratio) for ratio in row.spread], [at, at], color="black", linewidth=1)
    if row.target is not None:
        goal = _better(row, row.target)
        axes.plot([goal, goal], [at - 0.42, at + 0.42], color="black", linewidth=2.5)
    beside = axes.get_yaxis_transform()
    peer = _ASIDE.sub("", row.peer)
    axes.text(-0.02, at, peer, transform=beside, va="center", ha="right", fontsize=8, color=FAINT)
    ratio = f"{_better(row, row.judged):.2f}{TIMES}"
    axes.text(
        1.1, at, ratio, transform=beside, va="center", ha="right", fontsize=8, color=colour, weight="bold"
    )
    both = f"{figure(row.ours)} vs {figure(row.theirs)} {row.unit}"
    axes.text(1.12, at, both, transform=beside, va="center", fontsize=8, color=FAINT)


def _better(row: Row, ratio: float) -> float:
    """The ratio, above 1 if ours is better; at most FARTHEST, where the cost is too small to be measured."""
    return ratio if row.better == "more" else 1 / max(ratio, 1 / FARTHEST)


# --- growth -------------------------------------------------------------------------------------------------


def _growth(rows: Sequence[Row]) -> Figure:
    """A line for each growth series, by its factor over the smallest size."""
    picture, (costs, memory) = plt.subplots(1, 2, figsize=(11, 4.2))
    for number, name in enumerate(dict.fromkeys(map(_line_of, rows))):
        points = sorted((row for row in rows if _line_of(row) == name), key=_times)
        sizes = [1.0, *map(_times, points)]
        colour = f"C{number}"
        ratios = [1.0, *(row.ratio for row in points)]
        spreads = [(0.0, 0.0), *((row.ratio - row.spread[0], row.spread[1] - row.ratio) for row in points)]
        costs.errorbar(
            sizes, ratios, list(zip(*spreads, strict=True)), fmt="o-", capsize=3, color=colour, label=name
        )
        octets = [points[0].facts.get("peer: broker MB"), *(row.facts.get("broker MB") for row in points)]
        if None not in octets:
            memory.plot(sizes, octets, "o-", color=colour)
    costs.axhline(
        next((row.target for row in rows if row.target), 1.0), color="black", linestyle=":", linewidth=1
    )
    costs.set_ylabel("cost per content, relative to the smallest")
    costs.set_ylim(bottom=0)
    memory.set_ylabel("memory of the broker's own, MB")
    memory.set_ylim(bottom=0)
    for axes in (costs, memory):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}{TIMES}"))
        axes.set_xlabel("size, relative to the smallest")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    picture.legend(loc="upper center", ncols=3, fontsize=8, frameon=False, bbox_to_anchor=(0.5, 0.0))
    return picture


def _line_of(row: Row) -> str:
    """A title without its size: "read a log of 10 GB" becomes "read a log of … GB"."""
    return _NUMBER.sub("…", row.title)


def _times(row: Row) -> float:
    """The factor of a size over its peer, the smallest: from the numbers in their names."""
    own, smallest = (float(_NUMBER.findall(text)[0].replace(",", "")) for text in (row.title, row.peer))
    return own / smallest

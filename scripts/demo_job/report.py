"""The result of the demo: whether every window has the expected figures, in words, as a table, and as a picture."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.table import Table

from demo_job.flights import FIGURES, Figures, Key

SHOWN = 10
"""The largest number of differing windows that are listed; there may be thousands."""

_COLORS = {"EWR": "#3b6fb6", "JFK": "#d1495b", "LGA": "#3f9c6b"}


@dataclass(frozen=True)
class Comparison:
    """Every window in the result, compared with every expected window."""

    equal: int = 0
    missing: list[Key] = field(default_factory=list)
    unexpected: list[Key] = field(default_factory=list)
    doubled: list[Key] = field(default_factory=list)
    different: list[tuple[Key, Figures, Figures]] = field(default_factory=list)
    """A window, its expected figures, and its figures in the result."""

    @property
    def is_exact(self) -> bool:
        """Whether no window is missing, double or wrong."""
        return not (self.missing or self.unexpected or self.doubled or self.different)

    @property
    def summary(self) -> str:
        """One line for people."""
        counts = {
            "missing": len(self.missing),
            "unexpected": len(self.unexpected),
            "more than once": len(self.doubled),
            "with other figures": len(self.different),
        }
        return ", ".join([f"{self.equal:,} windows equal", *(f"{n:,} {how}" for how, n in counts.items())])

    def trouble(self) -> list[str]:
        """A line for each of the first windows that differ from the expected ones."""
        lines = [f"missing: {_name(key)}" for key in self.missing]
        lines += [f"unexpected: {_name(key)}" for key in self.unexpected]
        lines += [f"more than once: {_name(key)}" for key in self.doubled]
        lines += [f"{_name(key)}: {_differences(must, found)}" for key, must, found in self.different]
        return lines[:SHOWN]


def compare(expected: Mapping[Key, Figures], found: Iterable[tuple[Key, Figures]]) -> Comparison:
    """Compare window by window and figure by figure, exactly: all figures are integers."""
    rows = list(found)
    counts = Counter(key for key, _ in rows)
    once = {key: figures for key, figures in rows if key in expected}
    different = [(key, expected[key], figures) for key, figures in once.items() if figures != expected[key]]
    return Comparison(
        equal=len(once) - len(different),
        missing=sorted(expected.keys() - counts.keys()),
        unexpected=sorted(counts.keys() - expected.keys()),
        doubled=sorted(key for key, count in counts.items() if count > 1),
        different=sorted(different),
    )


def _name(key: Key) -> str:
    return " ".join(key)


def _differences(must: Figures, found: Figures) -> str:
    pairs = zip(FIGURES, must, found, strict=True)
    return ", ".join(f"{name} {is_} instead of {ought}" for name, ought, is_ in pairs if is_ != ought)


# --- the table ----------------------------------------------------------------------------------------------


def table(expected: Mapping[Key, Figures], found: Mapping[Key, Figures]) -> Table:
    """The year by carrier, as computed by Spark, and the difference to the expected figures."""
    must, came = _by_carrier(expected), _by_carrier(found)
    table = Table(title="Flights from New York City in 2013, from daily windows per carrier and origin")
    for name in ("carrier", "windows", "flights", "mean delay", "longest", "difference"):
        table.add_column(name, justify="left" if name == "carrier" else "right")
    for carrier in sorted(must.keys() | came.keys()):
        table.add_row(carrier, *_cells(came[carrier]), _difference(must[carrier], came[carrier]))
    table.add_section()
    total, all_came = _Total.of(expected.values()), _Total.of(found.values())
    table.add_row("all", *_cells(all_came), _difference(total, all_came), style="bold")
    return table


@dataclass
class _Total:
    windows: int = 0
    flights: int = 0
    departed: int = 0
    delay: int = 0
    longest: int | None = None

    def add(self, figures: Figures) -> None:
        flights, departed, delay, longest, *_ = figures
        self.windows += 1
        self.flights += flights or 0
        self.departed += departed or 0
        self.delay += delay or 0
        if longest is not None:
            self.longest = longest if self.longest is None else max(self.longest, longest)

    @staticmethod
    def of(windows: Iterable[Figures]) -> _Total:
        total = _Total()
        for figures in windows:
            total.add(figures)
        return total


def _by_carrier(windows: Mapping[Key, Figures]) -> defaultdict[str, _Total]:
    totals: defaultdict[str, _Total] = defaultdict(_Total)
    for (_, carrier, _), figures in windows.items():
        totals[carrier].add(figures)
    return totals


def _cells(total: _Total) -> list[str]:
    mean = f"{total.delay / total.departed:.2f} min" if total.departed else ""
    longest = f"{total.longest:,} min" if total.longest is not None else ""
    return [f"{total.windows:,}", f"{total.flights:,}", mean, longest]


def _difference(must: _Total, came: _Total) -> str:
    return "none" if must == came else f"{came.flights - must.flights:+,} flights"


# --- the picture --------------------------------------------------------------------------------------------


def plot(
    found: Mapping[Key, Figures], path: Path, subtitle: str, kills: Iterable[tuple[date, str]] = ()
) -> None:
    """Save the result as a PNG: departures' mean delay by day, and flights per day, for each airport.

    `kills`: the day of the next flight at each kill, and the victims.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"date.converter": "concise"}):
        figure = Figure(figsize=(11, 6.5), dpi=130, layout="constrained")
        FigureCanvasAgg(figure)
        delays, flights = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        for origin, totals in _by_day(found).items():
            color = _COLORS.get(origin)
            departed = {day: total for day, total in totals.items() if total.departed}
            means = [total.delay / total.departed for total in departed.values()]
            delays.plot(list(departed), means, label=origin, color=color, linewidth=1.1)
            counts = [total.flights for total in totals.values()]
            flights.plot(list(totals), counts, color=color, linewidth=1.1)
        for day, victims in kills:
            for axes in (delays, flights):
                axes.axvline(day, color="0.25", linewidth=1, linestyle=(0, (4, 3)))
            delays.text(
                day,
                delays.get_ylim()[1],
                f"{victims} killed ",
                rotation=90,
                va="top",
                ha="right",
                fontsize="small",
                color="0.25",
            )
        figure.suptitle("Flights from New York City in 2013, by day (UTC)", fontweight="bold")
        delays.set_title(subtitle, fontsize="small", color="0.35")
        delays.set_ylabel("mean delay of departure (min)")
        delays.axhline(0, color="0.6", linewidth=0.8)
        delays.legend(ncols=3, frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
        flights.set_ylabel("flights a day")
        flights.set_ylim(bottom=0)
        for axes in (delays, flights):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="0.9")
        figure.savefig(path)


def _by_day(windows: Mapping[Key, Figures]) -> dict[str, dict[date, _Total]]:
    days: defaultdict[str, defaultdict[date, _Total]] = defaultdict(lambda: defaultdict(_Total))
    for (day, _, origin), figures in windows.items():
        days[origin][date.fromisoformat(day)].add(figures)
    return {origin: dict(sorted(days[origin].items())) for origin in sorted(days)}

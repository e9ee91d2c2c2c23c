from __future__ import annotations

import io
from datetime import date
from pathlib import Path

import pytest
from demo_job.flights import Figures, Key
from demo_job.report import SHOWN, compare, plot, table
from rich.console import Console

MONDAY: Key = ("2013-01-07", "UA", "EWR")
TUESDAY: Key = ("2013-01-08", "UA", "EWR")
QUIET: Key = ("2013-01-08", "OO", "LGA")

EXPECTED: dict[Key, Figures] = {
    MONDAY: (3, 2, 10, 12, -4, 2_000),
    TUESDAY: (1, 1, -2, -2, 5, 700),
    QUIET: (1, 0, None, None, None, 229),
}


def test_equal_windows_are_exact() -> None:
    found = compare(EXPECTED, reversed(EXPECTED.items()))
    assert found.is_exact
    assert found.equal == 3
    assert found.trouble() == []


def test_a_lost_window_is_missing() -> None:
    found = compare(EXPECTED, [(key, figures) for key, figures in EXPECTED.items() if key != MONDAY])
    assert not found.is_exact
    assert found.missing == [MONDAY]
    assert found.equal == 2
    assert found.trouble() == ["missing: 2013-01-07 UA EWR"]


def test_a_repeated_window_is_detected_despite_right_figures() -> None:
    found = compare(EXPECTED, [*EXPECTED.items(), (QUIET, EXPECTED[QUIET])])
    assert not found.is_exact
    assert found.doubled == [QUIET]
    assert found.different == []


def test_an_unexpected_window_is_detected() -> None:
    other: Key = ("2100-01-01", "--", "---")
    found = compare(EXPECTED, [*EXPECTED.items(), (other, (1, 0, None, None, None, None))])
    assert not found.is_exact
    assert found.unexpected == [other]


@pytest.mark.parametrize("figure", range(6))
def test_every_figure_counts(figure: int) -> None:
    wrong = tuple((value or 0) + (place == figure) for place, value in enumerate(EXPECTED[MONDAY]))
    found = compare(EXPECTED, {**EXPECTED, MONDAY: wrong}.items())
    assert not found.is_exact
    assert found.different == [(MONDAY, EXPECTED[MONDAY], wrong)]


def test_a_missing_figure_differs_from_zero() -> None:
    found = compare(EXPECTED, {**EXPECTED, QUIET: (1, 0, 0, None, None, 229)}.items())
    assert found.trouble() == ["2013-01-08 OO LGA: dep_delay 0 instead of None"]


def test_the_report_counts_differences_and_shows_the_first() -> None:
    expected: dict[Key, Figures] = {(f"2013-01-{day:02}", "UA", "EWR"): (1,) * 6 for day in range(1, 32)}
    found = compare(expected, [])
    assert "31 missing" in found.summary
    assert len(found.trouble()) == SHOWN


def text(expected: dict[Key, Figures], found: dict[Key, Figures]) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=120)
    console.print(table(expected, found))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]


def test_the_table_has_sums_per_carrier() -> None:
    assert text(EXPECTED, EXPECTED) == [
        ["OO", "1", "1", "", "", "none"],
        ["UA", "2", "4", "2.67 min", "12 min", "none"],
        ["all", "3", "5", "2.67 min", "12 min", "none"],
    ]


def test_the_table_shows_a_difference() -> None:
    found = {key: figures for key, figures in EXPECTED.items() if key != MONDAY}
    assert [row[-1] for row in text(EXPECTED, found)] == ["none", "-3 flights", "-3 flights"]


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "new" / "demo.png"
    plot(EXPECTED, path, "a test", [(date(2013, 1, 7), "broker")])
    assert path.read_bytes().startswith(b"\x89PNG\r\n")

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterable

import msgspec
import pandas as pd
import pytest
from demo_job.flights import ALL, FIGURES, Figures, Key, contents, data_file, expected, load

Row = dict[str, str]


def rows_of_the_file() -> list[Row]:
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")))


def number(text: str) -> int | None:
    return None if text in {"", "NA"} else int(float(text))


def figures(rows: Iterable[Row]) -> Figures:
    """The same figures in plain Python, without pandas."""
    rows = list(rows)
    departures = [delay for row in rows if (delay := number(row["dep_delay"])) is not None]
    arrivals = [delay for row in rows if (delay := number(row["arr_delay"])) is not None]
    return (
        len(rows),
        len(departures),
        sum(departures) if departures else None,
        max(departures, default=None),
        sum(arrivals) if arrivals else None,
        sum(int(row["distance"]) for row in rows),
    )


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return rows_of_the_file()


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    return load()


def test_the_data_set_has_all_flights(rows: list[Row], flights: pd.DataFrame) -> None:
    assert len(flights) == len(rows) == ALL


def test_the_feed_is_in_order_and_complete(rows: list[Row], flights: pd.DataFrame) -> None:
    *feed, end = [msgspec.json.decode(body) for body in contents(flights)]
    hours = [flight["time_hour"] for flight in feed]
    assert hours == sorted(hours)
    assert end["time_hour"] == "2100-01-01T00:00:00Z"
    # Flights of one hour keep the file's order.
    in_order = sorted(rows, key=lambda row: row["time_hour"])
    assert [flight["tailnum"] for flight in feed] == [
        row["tailnum"] if row["tailnum"] not in {"", "NA"} else None for row in in_order
    ]
    assert sum(flight["dep_delay"] is None for flight in feed) == 8_255


def test_a_content_has_every_member_of_its_flight(flights: pd.DataFrame) -> None:
    first = json.loads(next(contents(flights)))
    assert first == {
        "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2,
        "arr_time": 830, "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545,
        "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5,
        "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
    }  # fmt: skip


def test_figures_equal_those_of_plain_python(rows: list[Row], flights: pd.DataFrame) -> None:
    windows: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        windows[row["time_hour"][:10], row["carrier"], row["origin"]].append(row)
    found = expected(flights)
    assert len(found) == 11_901
    assert found == {key: figures(members) for key, members in windows.items()}
    assert sum(totals[0] or 0 for totals in found.values()) == ALL
    assert {type(value) for totals in found.values() for value in totals} == {int, type(None)}
    assert len(FIGURES) == len(next(iter(found.values())))


def test_a_sample_is_chosen_by_its_seed() -> None:
    sample, same, other = load(500, seed=1), load(500, seed=1), load(500, seed=2)
    assert len(sample) == 500
    assert sample.equals(same)
    assert not sample.equals(other)
    assert sample["time_hour"].is_monotonic_increasing
    assert sum(figures[0] or 0 for figures in expected(sample).values()) == 500

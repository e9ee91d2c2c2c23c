from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_mtl.lag import Lag, lags

NOW = "1970-01-01T00:00:10.000Z"


def offset(**resources: Any) -> dict[str, Any]:
    return {"resources": resources, "version": 1}


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


BEHIND = source(
    offset(a={"i": "x", "n": 5}, b={"f": 1, "i": "y", "n": 9}, parked={"i": "z", "n": 3}),
    offset(a={"i": "x", "n": 8, "bytes": 90, "since": 4_000_000}, b={"i": "y", "n": 9}),
)


def test_the_lag_is_the_contents_left_by_a_batch() -> None:
    assert lags([BEHIND], NOW) == {"a": Lag(3, 90, 6.0), "b": Lag()}


def test_offsets_may_be_json_text() -> None:
    assert lags([{key: json.dumps(value) for key, value in BEHIND.items()}], NOW) == lags([BEHIND], NOW)


def test_of_two_sides_of_a_self_join_the_larger_lag_counts() -> None:
    done = source(offset(a={"i": "x", "n": 8}), offset(a={"i": "x", "n": 8}))
    assert lags([BEHIND, done], NOW)["a"] == lags([done, BEHIND], NOW)["a"] == Lag(3, 90, 6.0)


def test_a_recreated_or_unread_resource_has_no_lag() -> None:
    latest = offset(a={"i": "x", "n": 8})
    assert lags([source(offset(a={"i": "old", "n": 5}), latest), source(offset(), latest)], NOW) == {}


@pytest.mark.parametrize("other", [None, "null", "no JSON", "5", '{"topic":{"0":7}}', 17, []])
def test_sources_of_other_formats_are_skipped(other: Any) -> None:
    assert lags([source(other, offset()), source(offset(), other), {}], NOW) == {}


def test_an_age_is_not_negative_with_different_clocks() -> None:
    early = source(
        offset(a={"i": "x", "n": 5}), offset(a={"i": "x", "n": 6, "bytes": 1, "since": 99_000_000})
    )
    assert lags([early], NOW) == {"a": Lag(1, 1, 0.0)}

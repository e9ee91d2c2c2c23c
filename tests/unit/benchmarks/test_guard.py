from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import guard
from benchmarks.measure import Better, Row, pooled


def row(*ratios: float, better: Better = "more", title: str = "t", missing: str = "") -> Row:
    theirs = () if missing else (1.0,) * len(ratios)
    return Row("w", title, "p", "rows/s", better, ours=ratios, theirs=theirs, missing=missing)


def verdict(then: Row, now: Row, path: Path) -> str:
    guard.save([then], {}, path)
    (found,) = guard.compare([now], path)
    return found.what


@pytest.mark.parametrize(
    ("now", "what"),
    [
        ((0.90, 1.00, 1.10), "same"),
        ((0.85, 0.89, 0.99), "slower"),  # outside of both spreads
        ((0.80, 0.89, 1.10), "same"),  # its own spread reaches the baseline
        ((0.97, 0.98, 0.99), "same"),  # within the baseline's spread
        ((1.30, 1.40, 1.50), "faster"),
    ],
)
def test_slower_means_outside_of_both_spreads(now: tuple[float, ...], what: str, tmp_path: Path) -> None:
    assert verdict(row(0.95, 1.00, 1.05), row(*now), tmp_path / "baseline.json") == what


def test_a_small_difference_is_noise_however_narrow_the_spreads(tmp_path: Path) -> None:
    assert verdict(row(1.0, 1.0, 1.0), row(0.96, 0.96, 0.96), tmp_path / "baseline.json") == "same"


def test_a_larger_value_is_slower_if_less_is_better(tmp_path: Path) -> None:
    then = row(1.0, 1.0, 1.0, better="less")
    assert verdict(then, row(2.0, 2.0, 2.0, better="less"), tmp_path / "baseline.json") == "slower"
    assert verdict(then, row(0.5, 0.5, 0.5, better="less"), tmp_path / "baseline.json") == "faster"


def test_unmeasured_rows_are_reported_and_kept_in_the_baseline(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    guard.save([row(1.0, title="a"), row(1.0, title="b")], {}, path)
    guard.save([row(2.0, title="a"), row(title="b", missing="no mvn")], {}, path)
    found = guard.compare([row(1.0, title="b"), row(title="a", missing="no mvn"), row(1.0, title="c")], path)
    assert [(verdict.key, verdict.what) for verdict in found] == [
        ("a | p", "not measured"),
        ("c | p", "new"),
        ("b | p", "same"),
    ]


def test_another_machine_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    guard.save([row(1.0)], {"cores": "2", "pyspark": "4.3.0"}, path)
    assert guard.other_machine({"cores": "8", "pyspark": "4.3.0"}, path) == ["cores: 2 -> 8"]


def test_slower_batches_are_detected_despite_the_start(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    measured = replace(row(1.0, 1.0, 1.0), inner=(3.0, 3.1, 3.2))
    guard.save([measured], {}, path)
    found = guard.compare([replace(measured, inner=(2.0, 2.1, 2.2))], path)
    assert [(verdict.key, verdict.what) for verdict in found] == [
        ("t | p | batches alone", "slower"),
        ("t | p", "same"),
    ]


def test_a_slower_row_is_a_suspect_until_measured_twice(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    guard.save([row(0.95, 1.0, 1.05)], {}, path)
    unlucky = row(0.80, 0.81, 0.82)
    assert guard.suspects([unlucky], path) == ["w"]
    assert guard.suspects([pooled(unlucky, row(0.97, 1.0, 1.01))], path) == []
    assert guard.suspects([pooled(unlucky, unlucky)], path) == ["w"]


def test_a_baseline_has_rows_of_one_machine(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    guard.save([row(1.0, title="a")], {"cores": "2"}, path)
    guard.save([row(1.0, title="b")], {"cores": "8"}, path)
    assert [verdict.what for verdict in guard.compare([row(1.0, title="a"), row(1.0, title="b")], path)] == [
        "new",
        "same",
    ]

"""One case in each place except the test suite's own Spark; scripts/places runs all cases, with all versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mtl.testing
from tests.places.__main__ import row
from tests.places.cases import CASES
from tests.places.environments import pins
from tests.places.places import PLACES
from tests.places.running import Outcome, run

LIGHT = ("write a stream once",)
"""It reads, writes, commits, and repeats a commit: most of what may differ between places."""


@pytest.fixture(scope="module")
def broker() -> Iterator[mtl.testing.RunningBroker]:
    with mtl.testing.broker() as running:
        yield running


@pytest.mark.spark
@pytest.mark.parametrize("place", [name for name in PLACES if name != "local"])
def test_a_case_passes_in_every_place(place: str, broker: mtl.testing.RunningBroker, tmp_path: Path) -> None:
    outcome = run(place, broker.endpoint, LIGHT, tmp_path / "place")
    assert outcome.errors == {}
    assert set(outcome.seconds) == set(LIGHT) <= set(CASES)


def test_a_place_that_does_not_start_fails_with_its_reason(tmp_path: Path) -> None:
    names = ["read a batch", "write a batch"]
    outcome = run("nowhere", "tcp://127.0.0.1:1", names, tmp_path / "place")
    assert list(outcome.errors) == names
    assert "KeyError: 'nowhere'" in outcome.errors["read a batch"]
    assert row("4.1", "nowhere", names, outcome) == "| 4.1 |  | nowhere | FAILED | FAILED |"


def test_a_failed_case_has_its_error_and_later_ones_the_end_of_the_process(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text(
        '{"spark": "4.1.4", "java": "17"}\n'
        '{"case": "a", "seconds": 1.25, "error": null}\n'
        '{"case": "b", "seconds": 2.0, "error": "wrong"}\n'
    )
    outcome = Outcome.of(report, ["a", "b", "c"], "the process ended with -9")
    assert outcome.errors == {"b": "wrong", "c": "the process ended with -9"}
    assert row("4.1", "local", ["a", "b", "c"], outcome) == "| 4.1.4 | 17 | local | 1.2 s | FAILED | FAILED |"


def test_the_pins_of_an_environment_have_no_hashes_and_leave_spark_open() -> None:
    text = (
        "# a comment\n"
        "colorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:00\n"
        "py4j==0.10.9.9 \\\n    --hash=sha256:00\n"
        "pyspark==4.3.0 \\\n    --hash=sha256:00\n"
        "pyzmq==27.3.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
    )
    assert pins(text) == "colorama==0.4.6 ; sys_platform == 'win32'\npyzmq==27.3.0\n"

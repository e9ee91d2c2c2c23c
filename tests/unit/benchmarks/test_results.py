from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks import results
from benchmarks.measure import START_SHARE, Row
from benchmarks.results import Results

MACHINE = {"date": "today", "cores": "2"}
PLAN = {"short": True, "connector": ("4.2.0", "")}
COPY = Row(
    "copy", "copy", "Kafka", "rows/s", "more", 1.5, (3.0,), (0.3,), (1.2,), "a note", "", {START_SHARE: 0.6}
)
MISSING = Row("drain", "drain", "Kafka", "rows/s", "more", 2.0, (3.0,), missing="no mvn")


def a_run(
    directory: Path, machine: dict[str, str] | None = None, plan: dict[str, Any] | None = None
) -> Results:
    return Results(directory, machine or MACHINE, plan or PLAN, ["drain", "copy", "idle"])


def test_a_later_run_completes_the_table(tmp_path: Path) -> None:
    a_run(tmp_path).add("copy", [COPY], "broker 4.4.0")
    later = a_run(tmp_path, {**MACHINE, "date": "tomorrow"})
    assert later.keep() == []
    assert later.done == ["copy"]
    later.add("drain", [MISSING], "")
    last = a_run(tmp_path)
    assert last.keep() == []
    assert last.rows == [MISSING, COPY]  # in the table's order
    assert last.where["kafka"] == "broker 4.4.0"


def test_a_repeated_workload_replaces_its_rows(tmp_path: Path) -> None:
    again = Row("copy", "copy", "Kafka", "rows/s", "more", 1.5, (4.0,), (1.0,))
    a_run(tmp_path).add("copy", [COPY], "")
    later = a_run(tmp_path)
    later.keep()
    later.add("copy", [again], "")
    assert later.rows == [again]


def test_without_keep_rows_of_an_earlier_run_are_dropped(tmp_path: Path) -> None:
    a_run(tmp_path).add("copy", [COPY], "")
    a_run(tmp_path).add("drain", [MISSING], "")
    last = a_run(tmp_path)
    assert (last.keep(), last.rows) == ([], [MISSING])


def test_keep_without_an_earlier_run_has_no_rows(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert (run.keep(), run.rows, run.where["kafka"]) == ([], [], "not measured")


@pytest.mark.parametrize(
    ("machine", "plan", "reason"),
    [
        ({"date": "today", "cores": "8"}, PLAN, "cores: 2 -> 8"),
        (MACHINE, {**PLAN, "short": False}, "another plan"),
    ],
)
def test_rows_of_another_machine_or_plan_are_not_in_the_table(
    machine: dict[str, str], plan: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    a_run(tmp_path).add("copy", [COPY], "")
    run = a_run(tmp_path, machine, plan)
    assert (run.keep(), run.rows) == ([reason], [])


def test_rows_of_other_code_are_not_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path).add("copy", [COPY], "")
    monkeypatch.setattr(results, "code", lambda: "other")
    run = a_run(tmp_path)
    assert (run.keep(), run.rows) == (["another code"], [])


def test_the_code_includes_sources_and_benchmarks(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "scripts" / "benchmarks").mkdir(parents=True)
    source = tmp_path / "src" / "one.py"
    source.write_text("1")
    first = results.code(tmp_path)
    (tmp_path / "README.md").write_text("figures")
    (tmp_path / "scripts" / "benchmarks" / "baseline.json").write_text("{}")
    assert results.code(tmp_path) == first
    source.write_text("2")
    assert results.code(tmp_path) != first

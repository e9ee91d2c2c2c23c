from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import plots, report
from benchmarks.measure import START_SHARE, Row

MEASURED = Row(
    "drain-batch",
    "drain, 100 B",
    "generator",
    "rows/s",
    "more",
    0.85,
    (180.0, 160.0),
    (200.0, 200.0),
    (0.7, 0.8),
)
HIDDEN = Row(
    "copy",
    "copy",
    "Kafka",
    "rows/s",
    "more",
    1.5,
    (3.0,),
    (1.0,),
    (1.2,),
    facts={START_SHARE: 0.6, "seconds": 4.0},
)
MISSING = Row("copy", "copy", "Kafka, flush", "rows/s", "more", 1.5, (3.0,), missing="Maven finds no kafka")
GROWN = Row(
    "grow-log",
    "read 1 GB",
    "the same with 0.1 GB",
    "µs/content",
    "less",
    1.1,
    (1.0,),
    (1.0,),
    facts={"broker MB": 50.0},
)
ROWS = [MEASURED, HIDDEN, MISSING, GROWN]


def test_the_table_has_a_line_for_each_row() -> None:
    lines = report.markdown(ROWS, {"cores": "2"}).splitlines()
    assert lines[2] == (
        "| drain, 100 B | generator | 170 rows/s | 200 rows/s | **0.85** | 0.80 to 0.90 | 0.75 | ≥ 0.85 | ✓ |"
    )
    assert lines[3] == "| copy | Kafka | 3 rows/s | 1 rows/s | 3.00 | 3.00 to 3.00 | **1.20** | ≥ 1.5 | ✗ |"
    assert "not measured: Maven finds no kafka" in lines[4]
    assert lines[-1] == "cores 2"


def test_notes_have_the_relevant_facts() -> None:
    assert report.note(HIDDEN) == ""  # the bold ratio says it, and bench.json by how much
    assert report.note(GROWN) == "broker MB 50.0"


def test_rows_machine_and_settings_are_saved(tmp_path: Path) -> None:
    report.save(ROWS, {"cores": "2"}, {"rounds": 2}, tmp_path)
    content = json.loads((tmp_path / "bench.json").read_text())
    assert [row.get("ratio") for row in content["rows"]] == [pytest.approx(0.85), 3.0, None, 1.0]
    assert content["rows"][2]["not measured"] == "Maven finds no kafka"
    assert (tmp_path / "bench.md").read_text() == report.markdown(ROWS, {"cores": "2"})


def test_plots_show_only_measured_rows(tmp_path: Path) -> None:
    assert [path.name for path in plots.save(ROWS, tmp_path)] == ["ratios.png", "growth.png"]
    assert plots.save([MISSING], tmp_path) == []
    bare = replace(GROWN, peer="bare pyzmq router")  # no size beside a smaller one
    assert [path.name for path in plots.save([bare], tmp_path)] == ["ratios.png"]
    nothing = Row("idle", "idle query", "Kafka", "CPU s/min", "less", 1, ours=(0.0, 0.5), theirs=(4.0, 4.0))
    assert [path.name for path in plots.save([nothing], tmp_path)] == ["ratios.png"]

"""The benchmarks run, scaled down so far that their figures are meaningless."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MAIN = Path(__file__).parents[2] / "scripts" / "benchmarks" / "main.py"
PATIENCE_S = 600
"""A hang becomes a failure; a busy machine does not."""


def bench(out: Path, *names: str, scale: float) -> list[dict[str, Any]]:
    command = [sys.executable, str(MAIN), "--short", "--rounds", "1", "--scale", str(scale), "--no-kafka"]
    done = subprocess.run(
        [*command, "--out", str(out), *names], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads((out / "bench.json").read_text())["rows"]
    return rows


@pytest.mark.spark
def test_two_workloads_run_and_give_the_reason_for_missing_kafka(tmp_path: Path) -> None:
    rows = bench(tmp_path, "packed-delivery", "start", scale=0.005)
    delivery, start = rows[:-2], rows[-2:]
    assert [row["workload"] for row in rows] == ["packed-delivery"] * len(delivery) + ["start"] * 2
    raw = "raw pyzmq, the same mapped octets"
    assert {row["peer"] for row in delivery} == {raw, f"{raw} and their crc32c"}
    no_kafka = next(row for row in rows if "not measured" in row)
    assert all(row["ratio"] > 0 for row in rows if row is not no_kafka)
    assert no_kafka["ours"][0] > 0
    assert (no_kafka["title"], no_kafka["not measured"]) == (start[0]["title"], "left out (--no-kafka)")
    assert (tmp_path / "bench.md").read_text().count("raw pyzmq") == len(delivery)
    assert (tmp_path / "ratios.png").stat().st_size > 0


def test_growth_is_measured_relative_to_the_smallest_size(tmp_path: Path) -> None:
    rows = bench(tmp_path, "grow-log", "grow-resources", "grow-connections", scale=0.02)
    same = [row for row in rows if row["peer"].startswith("the same with ")]
    assert [row["title"] for row in same] == [
        "read a log of 0.008 GB",
        "append to a log of 0.008 GB",
        "write and read one of 2 resources",
        "write and read one of 20 resources",
        "write to each of 2 resources in turn",
        "write to each of 20 resources in turn",
        "write and read beside 2 connections",
        "write and read beside 6 connections",
        "publish one by one from 2 connections",
        "publish one by one from 6 connections",
    ]
    bare = [row["title"] for row in rows if row not in same]
    assert bare == [f"publish one by one from {number} connections" for number in (1, 2, 6)]
    assert all(row["ratio"] > 0 for row in rows)
    assert all(row["facts"]["broker MB"] > 0 for row in same)
    assert (tmp_path / "growth.png").stat().st_size > 0

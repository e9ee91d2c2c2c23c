"""The demo with a sample of its flights, as a user runs it: every figure is exact after kills."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = ("--sample", "1000", "--seed", "13")

pytestmark = pytest.mark.spark


def run(place: Path, *options: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / "main_job.py"), *SAMPLE, "--keep", str(place), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place.parent)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert (place / "demo.png").stat().st_size > 10_000
    assert "0 missing, 0 unexpected, 0 more than once, 0 with other figures" in done.stdout
    assert left_over(place) == []
    return done.stdout


def left_over(place: Path) -> list[str]:
    """Processes started with the demo's directory for their files. Only on Linux."""
    mine = f"TMPDIR={place / 'scratch'}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or belongs to another user
        if mine in environment:
            found.append(os.fsdecode((process / "cmdline").read_bytes().replace(b"\0", b" ")))
    return found


def test_figures_are_exact_with_kills(tmp_path: Path) -> None:
    output = run(tmp_path / "demo", "--kill", "--batches", "8")
    assert "9 micro-batches" in output
    assert "killed: the broker 4 times, the query 3 times" in output
    assert output.count("which the broker knew: nothing was published twice") == 2
    assert "killed the query and broker between the broker's answer to Stage.Commit" in output

"""Runs a place as a process, and reads its report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import java

ROOT = Path(__file__).parents[2]

PATIENCE_S = 400.0
"""A timeout that no place reaches with all cases, even on a busy machine; a hang becomes a failure."""

GRACE_S = 20.0
"""The timeout for a place to end its child processes."""


@dataclass
class Outcome:
    """The result of one place: its versions, and the duration and error of each case."""

    spark: str = ""
    java: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, report: Path, names: Iterable[str], ended: str) -> Outcome:
        """Read a report; a case missing in it failed with the exit of the process, `ended`."""
        outcome = cls()
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        for line in lines:
            entry: dict[str, Any] = json.loads(line)
            if "case" not in entry:
                outcome.spark, outcome.java = entry["spark"], entry["java"]
                continue
            outcome.seconds[entry["case"]] = entry["seconds"]
            if entry["error"] is not None:
                outcome.errors[entry["case"]] = entry["error"]
        for name in names:
            if name not in outcome.seconds:
                outcome.errors[name] = ended
        return outcome


def run(
    place: str, endpoint: str, names: Iterable[str], directory: Path, python: str = sys.executable
) -> Outcome:
    """Run the cases in a place, with the Spark of `python`. Its output is in `directory`/output.log."""
    directory.mkdir(parents=True, exist_ok=True)
    names, report, log = list(names), directory / "report.jsonl", directory / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", "tests.places.run", place, endpoint, str(report), *names],
            cwd=directory,
            env=_environment(python),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            process.wait(PATIENCE_S)
            ended = f"the process ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"it did not end within {PATIENCE_S:g} s"
        finally:
            _end(process)
    tail = log.read_text(errors="replace")[-3000:]
    return Outcome.of(report, names, f"{ended}; its output ends:\n{tail}")


def _environment(python: str) -> dict[str, str]:
    kept = dict(os.environ)
    if python != sys.executable:
        kept.pop("SPARK_HOME", None)  # another Spark's
    return {
        java.VARIABLE: java.SHORT_LIVED,
        **kept,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_CONF_DIR": str(ROOT / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it by SIGTERM, on which it ends its cluster; then by SIGKILL, because a JVM outlives its Python process."""
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()

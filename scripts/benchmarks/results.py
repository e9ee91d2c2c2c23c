"""The rows of a directory of results, by workload, so that an interrupted run can be completed.

Only rows of the same code, the same machine and the same plan may be in one table; others are dropped with the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.bench import ROOT
from benchmarks.machine import NOT_MEASURED, differences
from benchmarks.measure import Row

CODE = ("src", "scripts/benchmarks")
"""The files that may change a figure. The rest of the repository, such as README.md, cannot."""


class Results:
    """The rows so far. `workloads` are all workloads, in the order of the table; `machine` is this run's."""

    def __init__(
        self, directory: Path, machine: Mapping[str, str], plan: Mapping[str, Any], workloads: Iterable[str]
    ) -> None:
        self._directory = directory
        self._machine = dict(machine)
        self._kafka = ""
        self._run = {"plan": json.loads(json.dumps(plan)), "code": code()}
        self._rows: dict[str, list[Row]] = {name: [] for name in workloads}

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the table."""
        return [row for rows in self._rows.values() for row in rows]

    @property
    def done(self) -> list[str]:
        """The workloads that have rows."""
        return [name for name, rows in self._rows.items() if rows]

    @property
    def where(self) -> dict[str, str]:
        """The machine and the versions, Kafka's too."""
        return {**self._machine, "kafka": self._kafka or NOT_MEASURED}

    def keep(self) -> list[str]:
        """Keep the rows of an earlier run in the directory; or return the reasons why they cannot be in one table with
        this run's.
        """
        path = self._directory / report.JSON
        if not path.exists():
            return []
        earlier = json.loads(path.read_text())
        reasons = [f"another {name}" for name, value in self._run.items() if earlier.get(name) != value]
        reasons += differences(earlier["machine"], self.where)
        if not reasons:
            for row in map(report.row_of, earlier["rows"]):
                self._rows[row.workload].append(row)
            self._kafka = earlier["machine"]["kafka"].replace(NOT_MEASURED, "")
        return reasons

    def add(self, workload: str, rows: Iterable[Row], kafka: str) -> None:
        """Replace the rows of a workload, and write them to the disk at once; `kafka` are the versions of the peer if
        it took part.
        """
        self._rows[workload] = list(rows)
        self._kafka = kafka or self._kafka
        report.save(self.rows, self.where, self._run, self._directory)


def code(root: Path = ROOT) -> str:
    """A fingerprint of the measured and the measuring code, committed or not."""
    digest = hashlib.sha256()
    for directory in CODE:
        for path in sorted((root / directory).rglob("*")):
            if path.suffix in {".py", ".xml"}:
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

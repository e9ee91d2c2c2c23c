"""A copy of the project for mutants, its tests, and the lines that they execute."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from mutation.mutants import Mutant

NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "node_modules", "__pycache__", ".*_cache", "*.egg-info"
)

MEMORY = 4 << 30
"""The data limit in octets of one run of tests: a mutant may allocate without end, and others use the machine, too.
"""

UNIT = "tests/unit"
"""The directory of the tests of single modules, which mirror the code."""

LEAST_S, PER_TEST_S, PER_FILE_S = 60.0, 2.0, 180.0
"""A run has hung if it takes longer than this, plus the times below for each test or file. The machine may be busy.
"""

UNIT_TEST_S, INTEGRATION_TEST_S = 20, 120
"""Seconds after which one test with a mutant has hung. Without the mutant almost all take less than a tenth of that.
"""

TRACED_S = 3600.0
"""The timeout of the traced tests."""

Coverage = Mapping[str, Mapping[str, Sequence[int]]]
"""{test: {file, relative to the project: lines}}."""


class Failing(Exception):
    """The tests cannot be run; the message has their output, or the names of the missing ones."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a run of tests. `failed` is the first test that failed, if any."""

    passed: bool
    failed: str
    output: str


class Project:
    """A copy of `root` at `place`. `code` is the directory that gets mutants."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root = root
        self.place = place
        self.code = place / "src"

    def copied(self) -> Project:
        """Copy it. Compiled files are checked by source, not by time: two mutants may be written in one second."""
        shutil.copytree(self.root, self.place, ignore=NOT_COPIED, symlinks=True)
        compileall.compile_dir(
            self.place, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH, maxlevels=20
        )
        return self

    def digest(self, *names: str) -> str:
        """A digest of the Python files of these directories, and of these files."""
        hashed = hashlib.sha256()
        for name in names:
            for path in sorted({self.place / name, *(self.place / name).rglob("*.py")}):
                if path.is_file():
                    hashed.update(str(path.relative_to(self.place)).encode() + b"\0" + path.read_bytes())
        return hashed.hexdigest()[:16]

    def unit_tests(self) -> list[str]:
        """The files of the tests of single modules."""
        return [str(path.relative_to(self.place)) for path in sorted((self.place / UNIT).rglob("test_*.py"))]

    def sources(self) -> dict[str, bytes]:
        """Every file of the code by its path, relative to the project."""
        return {
            str(path.relative_to(self.place)): path.read_bytes() for path in sorted(self.code.rglob("*.py"))
        }

    def run(self, tests: Sequence[str], *options: str, timeout_s: float = 0.0) -> Ran:
        """Run these tests until the first fails. A run that exceeds its time has failed, too."""
        timeout_s = timeout_s or LEAST_S + sum(PER_TEST_S if "::" in test else PER_FILE_S for test in tests)
        command = [
            sys.executable,
            "-B",
            "-m",
            "pytest",
            "-x",
            "-q",
            "--tb=line",
            "-rfE",
            "-p",
            "no:cacheprovider",
        ]
        process = subprocess.Popen(
            limited([*command, *options, *tests]),
            cwd=self.place,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return Ran(passed=False, failed="(it hung)", output="")
        finally:
            ended(process)
        first = next(
            (x for x in output.splitlines() if x.startswith(("FAILED ", "ERROR "))),
            "ERROR (its process ended)",
        )
        passed = process.returncode == 0
        return Ran(passed, "" if passed else first.split(" - ")[0].split(" ", 1)[-1], output)

    def with_mutant(self, mutant: Mutant, tests: Sequence[str]) -> Ran:
        """Run the tests with a mutant in place."""
        limit = UNIT_TEST_S if all("::" in test for test in tests) else INTEGRATION_TEST_S
        with self.changed(mutant):
            return self.run(tests, f"--timeout={limit}")

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[bytes]:
        """Within the block the mutant is in its file; the value is the changed source."""
        path = self.place / mutant.path
        source = path.read_bytes()
        other = mutant.applied(source)
        path.write_bytes(other)
        try:
            yield other
        finally:
            path.write_bytes(source)

    def coverage(self, tests: Sequence[str]) -> Coverage:
        """Run all of these tests, except those with Spark, and return the lines that the passing ones execute. Raises
        `Failing`.
        """
        to = self.place / "traced.json"
        options = (
            "--maxfail=0",
            "-p",
            "mutation.tracing",
            "--traced",
            str(self.code),
            "--traced-to",
            str(to),
        )
        ran = self.run(tests, "-m", "not spark", *options, timeout_s=TRACED_S)
        if not to.exists():
            raise Failing(f"the tests could not be traced:\n{ran.output[-2000:]}")
        traced = json.loads(to.read_text(encoding="utf-8"))
        to.unlink()
        base = f"{self.place.resolve()}/"
        return {
            test: {path.removeprefix(base): lines for path, lines in files.items()}
            for test, files in traced.items()
        }

    def environment(self) -> dict[str, str]:
        """The environment of processes in the copy."""
        paths = ["src", ".", "scripts", "spark-submit-examples"]
        own = str(Path(__file__).parents[1])
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*(str(self.place / path) for path in paths), own]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def limited(command: Sequence[str]) -> list[str]:
    """The command with a memory limit."""
    return ["/bin/sh", "-c", f'ulimit -d {MEMORY // 1024}; exec "$@"', "sh", *command]


def ended(process: subprocess.Popen[Any]) -> None:
    """End the process and its children, which have its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()

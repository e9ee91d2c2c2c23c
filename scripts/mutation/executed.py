"""The lines that each test executes, cached by the files on which they depend: after a change of one test only that
one is traced again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from mutation.project import Coverage, Project

COMMON = ("src", "tests/support", "tests/conftest.py", "tests/integration/conftest.py")
"""The files on which the execution of every test depends."""


class Executed:
    """The coverage of test files, and of single tests, in a directory."""

    def __init__(self, copy: Project, kept: Path) -> None:
        self._copy = copy
        self._kept = kept
        self._kept.mkdir(parents=True, exist_ok=True)

    def by(self, tests: Iterable[str]) -> Coverage:
        """The coverage of these files and tests together; missing parts are traced now."""
        paths = {test: self._path(test) for test in sorted(set(tests))}
        missing = [test for test, path in paths.items() if not path.exists()]
        if missing:
            print(f"tracing the tests of {len(missing)} files", file=sys.stderr, flush=True)
            traced = self._copy.coverage(missing)
            for test in missing:
                own = {name: files for name, files in traced.items() if _is_of(name, test)}
                paths[test].write_text(json.dumps(own), encoding="utf-8")
        found: dict[str, dict[str, list[int]]] = {}
        for path in paths.values():
            found |= json.loads(path.read_text(encoding="utf-8"))
        return found

    def _path(self, test: str) -> Path:
        digest = self._copy.digest(*COMMON, test.split("::")[0])
        return self._kept / f"{test.replace('/', '.').replace('::', '.')}-{digest}.json"


def _is_of(name: str, test: str) -> bool:
    """Whether a traced test is in this file, or is this test with some parameters."""
    return name == test or name.startswith((f"{test}::", f"{test}["))

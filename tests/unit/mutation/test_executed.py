"""The lines executed by tests are traced once, and again after a change of the test or of the code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from mutation.executed import Executed
from mutation.project import Coverage, Project

ONE, TWO = "tests/unit/test_one.py", "tests/unit/test_two.py"


class Counted(Project):
    """A tracer that returns fixed lines, and records its calls."""

    asked: list[list[str]]

    def coverage(self, tests: Sequence[str]) -> Coverage:
        self.asked.append(list(tests))
        return {f"{test}::test_a[1]": {"src/a.py": [len(self.asked)]} for test in tests}


@pytest.fixture
def copy(tmp_path: Path) -> Counted:
    project = Counted(tmp_path, tmp_path)
    project.asked = []
    for name in ("src/a.py", ONE, TWO):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1", encoding="utf-8")
    return project


def test_unchanged_tests_are_not_traced_again(copy: Counted, tmp_path: Path) -> None:
    executed = Executed(copy, tmp_path / "kept")
    assert executed.by([ONE, TWO]) == executed.by([ONE, TWO])
    (tmp_path / TWO).write_text("2", encoding="utf-8")
    assert executed.by([ONE, TWO]) == {
        f"{ONE}::test_a[1]": {"src/a.py": [1]},
        f"{TWO}::test_a[1]": {"src/a.py": [2]},
    }
    (tmp_path / "src" / "a.py").write_text("2", encoding="utf-8")
    executed.by([f"{ONE}::test_a"])
    assert copy.asked == [[ONE, TWO], [TWO], [f"{ONE}::test_a"]]


def test_a_test_name_includes_all_its_parameters(copy: Counted, tmp_path: Path) -> None:
    assert list(Executed(copy, tmp_path / "kept").by([ONE])) == [f"{ONE}::test_a[1]"]

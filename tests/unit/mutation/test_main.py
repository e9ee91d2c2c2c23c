"""The whole tool on a small project: a mutant that a test kills, one that survives, one with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation.main import main

CODE = """
def older(age):
    return age >= 18


def told(age):
    count(age)
    return age


def count(age):
    pass
"""

TESTS = """
import pytest
from tiny.ages import older, told


@pytest.mark.requirement("MTL-01")
def test_older():
    assert older(18) and not older(17)


@pytest.mark.requirement("MTL-02")
def test_told():
    assert told(3) == 3


@pytest.mark.requirement("MTL-02")
def test_that_fails_anyway_and_so_proves_nothing():
    assert told(3) == 4
"""

REQUIREMENTS = """
title = "T"
source = "S"
[[section]]
title = "A"
[section.requirements.MTL-01]
level = "must"
text = "a"
how = "b"
[section.requirements.MTL-02]
level = "must"
text = "a"
how = "b"
"""

REASON = """
[[survivor]]
mutant = "src/tiny/ages.py::told: count(age) -> pass"
reason = "It counts nothing yet."
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    for name, text in {
        "src/tiny/ages.py": CODE,
        "tests/unit/tiny/test_ages.py": TESTS,
        "tests/requirements/mtl.toml": REQUIREMENTS,
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["requirement(id): ", "spark: "]\n',
    }.items():
        path = tmp_path / "tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "tiny"


def test_a_survivor_without_a_reason_fails_the_run(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mutate"], tiny) == 1
    table = capsys.readouterr().out
    assert (
        "| MTL-01 | src/tiny/ages.py:3 | `older: age >= 18 -> age > 18` | killed | tests/unit/tiny/test_ages"
        in table
    )
    assert "| MTL-02 | src/tiny/ages.py:7 | `told: count(age) -> pass` | SURVIVED |" in table

    (tiny / "tests" / "requirements" / "survivors.toml").write_text(REASON, encoding="utf-8")
    assert main(["--mutate"], tiny) == 0, "the results were kept, and the reason counts"
    table = capsys.readouterr().out
    assert "| explained | It counts nothing yet. |" in table
    assert "1 explained" in table
    assert "0 requirements whose own tests noticed no change" in table
    assert (tiny / "src" / "tiny" / "ages.py").read_text(encoding="utf-8") == CODE


def test_an_interrupted_run_can_be_continued(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mutate", "--requirement", "MTL-01", "--minutes", "0.000001"], tiny) == 0
    assert "the same command goes on" in capsys.readouterr().out
    assert main(["--sample", "1", "--seed", "3"], tiny) in {0, 1}
    assert "1 mutants: " in capsys.readouterr().out


def test_an_unknown_requirement_is_an_error(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mutate", "--requirement", "MTL-99"], tiny) == 2
    assert "MTL-99; CONFORMANCE.md lists them" in capsys.readouterr().err

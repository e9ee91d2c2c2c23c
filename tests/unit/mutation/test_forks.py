"""Mutants in forks of one process that has imported a small project."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mutation.forks import Forks
from mutation.mutants import Mutant, mutants
from mutation.project import Project

CODE = """
LIMIT = 18
TABLE = [n for n in range(3)]


def older(age):
    return age >= LIMIT


class Person:
    def __init__(self, age):
        self.age = age

    def names(self):
        return [(lambda: "x")() for _ in range(self.age)]
"""

TESTS = """
from pathlib import Path
from tiny.ages import Person, older


def test_older():
    assert older(18) and not older(17)


def test_person():
    assert Person(2).names() == ["x", "x"]


def test_that_passes_only_once(tmp_path):
    was = Path(__file__).with_name("was")
    assert not was.exists()
    was.write_text("")
"""

PATH, FILE = "src/tiny/ages.py", "tests/unit/tiny/test_ages.py"
OLDER, PERSON, ONCE = f"{FILE}::test_older", f"{FILE}::test_person", f"{FILE}::test_that_passes_only_once"


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    place = tmp_path_factory.mktemp("tiny")
    for name, text in {
        PATH: CODE,
        FILE: TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["spark: "]\n',
    }.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with Forks(Project(place, place), [FILE]) as started:
        yield started


def mutant(change: str) -> Mutant:
    (found,) = (
        candidate
        for candidate in mutants(CODE.encode(), PATH)
        if f"{candidate.where}: {candidate.before} -> {candidate.after}" == change
    )
    return found


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ("older: age >= LIMIT -> age > LIMIT", OLDER),
        ("Person.names: 'x' -> 'xX'", PERSON),
        ("older: return age >= LIMIT -> return None", OLDER),
    ],
)
def test_a_mutated_function_fails_its_tests(forks: Forks, change: str, failing: str) -> None:
    assert forks.failing(mutant(change), [OLDER, PERSON]) == failing
    other = PERSON if failing == OLDER else OLDER
    assert forks.failing(mutant(change), [other]) == "", "every fork begins with the code as it was"


def test_mutants_executed_at_import_are_not_testable(forks: Forks) -> None:
    assert forks.failing(mutant(": 18 -> 19"), [OLDER]) is None
    assert forks.failing(mutant(": 3 -> 4"), [OLDER]) is None


def test_missing_tests_give_no_verdict(forks: Forks) -> None:
    assert forks.failing(mutant("older: age >= LIMIT -> age > LIMIT"), [f"{FILE}::test_another"]) is None


def test_a_test_that_fails_without_the_mutant_gives_no_verdict(forks: Forks) -> None:
    change = mutant("older: age >= LIMIT -> age > LIMIT")
    assert forks.failing(change, [ONCE]) == ""
    assert forks.failing(change, [ONCE]) is None

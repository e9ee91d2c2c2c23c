"""Verdicts on mutants: the summary of a run."""

from __future__ import annotations

from mutation.verdicts import ELSEWHERE, KILLED, SURVIVED, Verdict, without_killed


def verdict(requirement: str, word: str) -> Verdict:
    return Verdict(requirement, "src/a.py::f: x -> y", 1, word, "")


def test_a_requirement_is_weak_if_its_tests_kill_none_of_its_mutants() -> None:
    found = [
        verdict("A-1", SURVIVED),
        verdict("A-1", KILLED),
        verdict("A-2", ELSEWHERE),
        verdict("A-2", SURVIVED),
        verdict("A-3", KILLED),
    ]
    assert without_killed(found) == ["A-2"]

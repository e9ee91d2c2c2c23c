"""Verdicts on mutants: the summary of a run."""

from __future__ import annotations

from pathlib import Path

from mutation.verdicts import ELSEWHERE, KILLED, SURVIVED, Kept, Verdict, without_killed


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


def test_a_run_has_the_tests_that_failed_in_earlier_runs(tmp_path: Path) -> None:
    Kept(tmp_path / "mutate-1-old.jsonl").add(
        Verdict("A-1", "src/a.py::f: x -> y", 1, KILLED, "tests/test_a.py::f")
    )
    run = Kept(tmp_path / "mutate-1-new.jsonl")
    assert run.all == {}, "other code may have other verdicts"
    assert run.earlier == {"src/a.py::f: x -> y": "tests/test_a.py::f"}
    run.add(verdict("A-1", SURVIVED))
    assert Kept(tmp_path / "mutate-1-new.jsonl").all == run.all

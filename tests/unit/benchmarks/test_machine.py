from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.machine import NOT_MEASURED, differences, machine, revision


def test_a_machine_has_all_that_a_figure_depends_on(tmp_path: Path) -> None:
    found = machine(tmp_path)
    assert {"processor", "cores", "memory", "file system", "java", "pyspark", "libzmq"} <= found.keys()
    assert all(found.values())


def test_a_revision_says_whether_what_ran_is_what_was_committed(tmp_path: Path) -> None:
    def git(*command: str) -> str:
        words = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org", *command]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    baseline, code = tmp_path / "scripts" / "benchmarks" / "baseline.json", tmp_path / "code.py"
    baseline.parent.mkdir(parents=True)
    baseline.write_text("{}")
    code.write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("describe", "--always")

    baseline.write_text("{1}")
    assert revision(baseline.parent) == commit  # what the run before this one saved
    code.write_text("2")
    assert revision(baseline.parent) == f"{commit}-dirty"


def test_the_day_makes_no_other_machine_and_neither_does_a_peer_that_was_left_out() -> None:
    then = {"date": "1", "revision": "a", "cores": "2", "kafka": NOT_MEASURED}
    assert differences(then, {"date": "2", "revision": "b", "cores": "2", "kafka": "4.4.0"}) == []
    assert differences(then, {"cores": "8", "disk": "fast"}) == ["cores: 2 -> 8", "disk: None -> fast"]

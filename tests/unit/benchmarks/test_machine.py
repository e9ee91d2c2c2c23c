from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.machine import NOT_MEASURED, differences, machine, revision


def test_a_machine_description_has_all_factors_of_a_figure(tmp_path: Path) -> None:
    found = machine(tmp_path)
    assert {"processor", "cores", "memory", "file system", "java", "pyspark", "libzmq"} <= found.keys()
    assert all(found.values())


def test_a_revision_shows_uncommitted_changes(tmp_path: Path) -> None:
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
    assert revision(baseline.parent) == commit  # files saved by the former run do not count
    code.write_text("2")
    assert revision(baseline.parent) == f"{commit}-dirty"


def test_date_and_omitted_peers_do_not_make_another_machine() -> None:
    then = {"date": "1", "revision": "a", "cores": "2", "kafka": NOT_MEASURED}
    assert differences(then, {"date": "2", "revision": "b", "cores": "2", "kafka": "4.4.0"}) == []
    assert differences(then, {"cores": "8", "disk": "fast"}) == ["cores: 2 -> 8", "disk: None -> fast"]

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.kafka import jars
from benchmarks.measure import NotMeasured


def test_maven_s_report_becomes_one_sentence_without_addresses() -> None:
    report = (
        "[ERROR] Failed to execute goal on project x: Could not resolve dependencies for project a:b:pom:1: Could not "
        "find artifact org.example:connector_2.13:jar:4.3.0 in central (https://repo.example/maven2) -> [Help 1]\n"
    )
    assert jars._reason(report) == "Maven finds no org.example:connector_2.13:jar:4.3.0"
    assert "https" not in jars._reason("[ERROR] transfer failed for https://repo.example/a.pom: no route\n")
    assert jars._reason("") == "mvn failed: no reason given"


def test_a_failed_download_leaves_no_complete_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] no network'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(jars, "CACHE", tmp_path / "cache")
    with pytest.raises(NotMeasured, match="no network"):
        jars.connector("1.0").fetch()
    assert not (tmp_path / "cache" / "connector-1.0").exists()


def test_without_maven_there_is_no_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jars, "CACHE", tmp_path / "cache")
    with pytest.raises(NotMeasured, match="no mvn"):
        jars.broker().fetch()


def test_another_version_has_its_own_directory() -> None:
    assert jars.connector("4.2.0", "4.0.0").label == "connector-4.2.0-4.0.0"
    assert jars.connector("4.3.0").label == "connector-4.3.0"

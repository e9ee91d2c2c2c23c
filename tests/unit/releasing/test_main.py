"""The conditions of a release, each in a repository of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from releasing import main as releasing

CHANGELOG = """# Changelog

## 0.2.0 (2026-12-01)

### Broker

- A change.

## 0.1.0 (not released yet)

The first version.
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for command in (
        ["init", "--quiet"],
        ["config", "user.email", "a@example.org"],
        ["config", "user.name", "a"],
        ["commit", "--quiet", "--allow-empty", "--message", "first"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_the_section_of_a_version_ends_before_the_next_one() -> None:
    assert releasing.section_of(CHANGELOG, "0.2.0") == ("2026-12-01", "### Broker\n\n- A change.")
    assert releasing.section_of(CHANGELOG, "0.1.0") == ("not released yet", "The first version.")


@pytest.mark.parametrize("version", ["0.2", "0.3.0", "0x2.0"])
def test_a_version_without_a_section_is_not_released(version: str) -> None:
    with pytest.raises(releasing.ReleaseRefused, match="has no section"):
        releasing.section_of(CHANGELOG, version)


def test_a_section_without_a_date_is_not_released() -> None:
    releasing.check_date("2026-12-01", "0.2.0")
    with pytest.raises(releasing.ReleaseRefused, match="instead of a date"):
        releasing.check_date("not released yet", "0.1.0")


def test_a_clean_repository_without_the_tag_is_released(repository: Path) -> None:
    releasing.check_repository(repository, "v0.1.0")


def test_a_repository_with_changes_is_not_released(repository: Path) -> None:
    (repository / "new.py").touch()
    with pytest.raises(releasing.ReleaseRefused, match=r"new\.py"):
        releasing.check_repository(repository, "v0.1.0")


def test_a_version_is_released_once(repository: Path) -> None:
    releasing.git(repository, "tag", "v0.1.0")
    with pytest.raises(releasing.ReleaseRefused, match=r"v0\.1\.0 exists"):
        releasing.check_repository(repository, "v0.1.0")


def test_other_files_than_the_distributions_are_not_released() -> None:
    wheel, source = "pyspark_mtl-0.1.0-py3-none-any.whl", "pyspark_mtl-0.1.0.tar.gz"
    releasing.check_files([source, wheel], "0.1.0")
    for files in ([wheel], [wheel, source, "x"], [wheel.replace("0.1.0", "0.0.9"), source]):
        with pytest.raises(releasing.ReleaseRefused, match="the build made"):
            releasing.check_files(files, "0.1.0")


def test_pins_without_hashes_are_versions() -> None:
    hashes = " \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"
    pins = f"# comment\na==1{hashes}b==2 ; sys_platform == 'x'{hashes}"
    assert releasing.without_hashes(pins) == "a==1\nb==2 ; sys_platform == 'x'\n"


def test_the_version_is_written_in_one_place() -> None:
    project = (releasing.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project
    assert "\nversion =" not in project

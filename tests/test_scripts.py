"""The help of the scripts: complete, and printed before any installation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and os.access(path, os.X_OK)
)
INSTALLERS = ("python", "python3", *(f"python3.{minor}" for minor in range(11, 15)), "java", "apt-get", "uv")
"""The function that a script calls to prepare the machine."""

PATIENCE_S = 60
"""A timeout that only a hang exceeds, even on a busy machine."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project without .venv, and installers that write their names into `called`."""
    place = tmp_path_factory.mktemp("tree")
    for name in ("scripts", "conf"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    (place / "bin").mkdir()
    for name in INSTALLERS:
        installer = place / "bin" / name
        installer.write_text(f'#!/bin/sh\necho "{name} $*" >>"{place}/called"\nexit 1\n')
        installer.chmod(0o755)
    return place


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_help_installs_nothing(tree: Path, name: str, option: str) -> None:
    environment = {"PATH": f"{tree / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [tree / "scripts" / name, option],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"scripts/{name}")
    assert not (tree / ".venv").exists()
    assert not (tree / "called").exists(), (tree / "called").read_text()


def test_every_script_is_tried() -> None:
    assert {"bench", "demo", "pin", "test"} <= set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_names_every_option_of_the_program(name: str) -> None:
    """The program has a parser; the script has a comment, which is printed without Python."""
    script = (ROOT / "scripts" / name).read_text(encoding="utf-8")
    comment, _, commands = script.partition("set -eu")
    files = [ROOT / path for path in re.findall(r"scripts/\w+(?:/\w+)*\.py", commands)]
    for module in re.findall(r"-m (tests[\w.]*)", commands):
        base = ROOT.joinpath(*module.split("."))
        files.append(base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__main__.py")
    options = {
        option
        for path in files
        for option in re.findall(r"add_argument\(\s*\"(--[\w-]+)\"", path.read_text(encoding="utf-8"))
    }
    missing = sorted(option for option in options if not re.search(rf"{option}\b(?!-)", comment))
    assert not missing, f"scripts/{name} --help does not name these"


def test_the_contributors_page_says_how_long_each_script_takes() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `\./scripts/(\w+)[^|]*\| [^|]+ \| ([^|]*\b(?:second|minute|hour)s?\b[^|]*) \|$",
        page,
        re.MULTILINE,
    )
    assert sorted({name for name, _ in rows}) == SCRIPTS

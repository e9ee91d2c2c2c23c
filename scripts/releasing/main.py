"""scripts/release: see its help. A step that fails ends the program with the reason; nothing is tagged then."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from mtl import __version__

ROOT = Path(__file__).parents[2]

TRIAL = """
import mtl, mtl.testing
with mtl.testing.broker() as broker, mtl.connect(broker.endpoint) as connection:
    connection.create_resource("trial")
    with connection.writer("trial") as writer:
        writer.send(b"x")
    assert [content.body for content in connection.reader("trial", start="earliest", until=2)] == [b"x"]
print(mtl.__version__)
"""
"""What a wheel has to do in a new environment. Prints its version."""


class ReleaseRefused(Exception):
    """A condition of a release that does not hold, and what to do."""


def section_of(changelog: str, version: str) -> tuple[str, str]:
    """The words in parentheses and the text of the version's section. Raises `ReleaseRefused` if there is none."""
    found = re.search(
        rf"^## {re.escape(version)} \(([^)]*)\)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise ReleaseRefused(f"CHANGELOG.md has no section '## {version} (DATE)': add it")
    return found[1], found[2].strip()


def check_date(words: str, version: str) -> None:
    """Raises `ReleaseRefused` if the section has no date."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", words):
        raise ReleaseRefused(
            f"the section {version} of CHANGELOG.md has {words!r} instead of a date: write YYYY-MM-DD"
        )


def check_repository(root: Path, tag: str) -> None:
    """Raises `ReleaseRefused` if there are changes that no commit has, or the tag exists."""
    if changes := git(root, "status", "--porcelain"):
        raise ReleaseRefused(f"these files have changes that no commit has: commit or remove them\n{changes}")
    if git(root, "tag", "--list", tag):
        raise ReleaseRefused(f"the tag {tag} exists: raise __version__ in src/mtl/__init__.py")


def check_files(files: Sequence[str], version: str) -> None:
    """Raises `ReleaseRefused` if the built files are not one source distribution and one wheel of the version."""
    expected = [f"pyspark_mtl-{version}-py3-none-any.whl", f"pyspark_mtl-{version}.tar.gz"]
    if sorted(files) != expected:
        raise ReleaseRefused(
            f"the build made {sorted(files)} and not {expected}: build/release was not empty"
        )


def git(root: Path, *arguments: str) -> str:
    """The output of a git command in the repository."""
    return subprocess.run(
        ["git", *arguments],  # noqa: S607 the git on PATH
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def run(*command: str | Path) -> None:
    """Run a step of the release. Raises `ReleaseRefused` if it fails."""
    print("==", *command, flush=True)
    if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise ReleaseRefused(f"it ended with {code}")


def build(place: Path) -> list[Path]:
    """Build both distributions into an empty directory."""
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    run(sys.executable, "-m", "hatchling", "build", "-d", place)
    return sorted(place.iterdir())


def trial(wheel: Path) -> None:
    """Install the wheel into a new environment and use it. Raises `ReleaseRefused` if that fails."""
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        python = Path(place) / "bin" / "python"
        # The pins have hashes, and a file without one is refused beside them: the wheel is installed in a second step.
        pins = Path(place) / "pins.txt"
        pins.write_text(without_hashes((ROOT / "conf" / "constraints.txt").read_text(encoding="utf-8")))
        run(python, "-m", "pip", "install", "--quiet", "--constraint", pins, f"{wheel}[cli,scram,doors]")
        run(python, "-c", TRIAL)


def without_hashes(pins: str) -> str:
    """The versions of a constraints file without the hashes."""
    return "".join(
        line.removesuffix("\\").rstrip() + "\n" for line in pins.splitlines() if line[:1].isalnum()
    )


def release(*, dry: bool, tested: bool) -> None:
    """All steps in order. Raises `ReleaseRefused`."""
    tag = f"v{__version__}"
    words, text = section_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
    check_repository(ROOT, tag)
    if not dry:
        check_date(words, __version__)
    if not tested:
        run(ROOT / ".ci" / "run")
    files = build(ROOT / "build" / "release")
    check_files([file.name for file in files], __version__)
    trial(files[0])
    if dry:
        print(f"== all steps but the tag {tag} are done; its text would be:\n\n{text}")
        return
    run("git", "tag", "--annotate", tag, "--message", f"{tag}\n\n{text}", "--cleanup", "whitespace")
    print(f"== tagged. Next: git push origin {tag}, and upload the files of build/release")


def main() -> int:
    """Exit code 1 if a step failed."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="all steps but the tag")
    parser.add_argument("--without-tests", action="store_true", help=".ci/run has passed elsewhere")
    asked = parser.parse_args()
    try:
        release(dry=asked.dry_run, tested=asked.without_tests)
    except ReleaseRefused as refused:
        print(f"release: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""README.md's generated parts: the table of options out of the code, the others out of what was run last.

Each lies between two marks, `<!-- name -->` and `<!-- /name -->`; what is outside of them is written by hand.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from pyspark_mtl.option_table import OPTIONS, Use

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FIGURES = ROOT / "build" / "bench" / "bench.md"
GROWTH = ROOT / "build" / "growth" / "bench.md"
PICTURES = (FIGURES.parent / "ratios.png", GROWTH.parent / "growth.png")
"""Beside the figures; README links them in docs/."""
KILLS = ROOT / "build" / "kills" / "kills.md"

_WHERE = {
    Use.ALL: "all",
    Use.READ: "read",
    Use.WRITE: "write",
    Use.STREAM_READ: "streaming read",
    Use.BATCH_READ: "batch read",
    Use.STREAM_WRITE: "streaming write",
    Use.BATCH_WRITE: "batch write",
}


def options() -> str:
    """One row for each option of `format("mtl")`."""
    lines = ["| option | where | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        meaning = option.meaning.replace("|", "\\|")
        lines.append(f"| `{option.name}` | {_WHERE[option.use]} | {shown(option.default)} | {meaning} |")
    return "\n".join(lines)


def shown(default: object) -> str:
    """A default as it would be given. All floats are durations, which have units."""
    if default is None:
        return ""
    if isinstance(default, float):
        return f"{default:g}s"
    return str(default).lower() if isinstance(default, bool) else str(default)


def filled(text: str, name: str, content: str) -> str:
    """`text` with `content` between the marks of `name`."""
    marks = re.compile(rf"(<!-- {name}\b[^>]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
    result, count = marks.subn(lambda found: f"{found[1]}{content}\n{found[2]}", text)
    if count != 1:
        raise ValueError(f"README.md has {count} places for {name}, not one")
    return result


def main() -> int:
    """Write the file."""
    text = filled(README.read_text(encoding="utf-8"), "options", options())
    for name, made in (("bench", FIGURES), ("growth", GROWTH), ("kills", KILLS)):
        if made.exists():
            text = filled(text, name, made.read_text(encoding="utf-8").rstrip())
    README.write_text(text, encoding="utf-8")
    for picture in filter(Path.exists, PICTURES):
        shutil.copy(picture, ROOT / "docs" / picture.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

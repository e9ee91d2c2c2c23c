"""The generated parts of the pages in docs, from the code and from the last measurements.

Each part is between two marks, `<!-- name -->` and `<!-- /name -->`; text outside of them is written by hand.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from documentation import command_line, examples, pools, settings
from pyspark_mtl.options.table import OPTIONS, Use

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MEASURED = DOCS / "measurements"
SPEED = MEASURED / "speed.md"

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
        lines.append(f"| `{option.name}` | {_WHERE[option.use]} | {formatted(option.default)} | {meaning} |")
    return "\n".join(lines)


def formatted(default: object) -> str:
    """A default as a user would write it. All floats are durations, which have units."""
    if default is None:
        return ""
    if isinstance(default, float):
        return f"{default:g}s"
    return str(default).lower() if isinstance(default, bool) else str(default)


def filled(text: str, name: str, content: str) -> str:
    """`text` with `content` between the marks of `name`. ValueError if the marks are missing or occur twice."""
    marks = re.compile(rf"(<!-- {name}\b[^>]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
    result, count = marks.subn(lambda found: f"{found[1]}{content}\n{found[2]}", text)
    if count != 1:
        raise ValueError(f"there are {count} places for {name}, not one")
    return result


PARTS: dict[Path, dict[str, Callable[[], str]]] = {
    DOCS / "reference" / "options.md": {"options": options},
    DOCS / "reference" / "command-line.md": {"commands": command_line.commands},
    DOCS / "reference" / "configuration.md": {"settings": settings.table},
    DOCS / "reference" / "protocol-examples.md": {
        "data-commands": examples.data_commands,
        "requests": examples.requests,
    },
    DOCS / "explanation" / "security-model.md": {
        "quotas": pools.quotas,
        "shared-pools": pools.shared,
        "door-pools": pools.doors_pools,
        "single-bounds": pools.single,
    },
}
"""The parts that are generated from the code: page, name of the part, and its function."""

RESULTS = {
    "bench": (SPEED, ROOT / "build" / "bench" / "bench.md"),
    "growth": (MEASURED / "growth.md", ROOT / "build" / "growth" / "bench.md"),
    "kills": (MEASURED / "kills.md", ROOT / "build" / "kills" / "kills.md"),
}
"""The measured parts: name of the part, page, and the file of the measurement, if it was run here."""

PICTURES = (ROOT / "build" / "bench" / "ratios.png", ROOT / "build" / "growth" / "growth.png")


def current(page: Path) -> str:
    """The page's text with its generated parts as of now."""
    text = page.read_text(encoding="utf-8")
    for name, make in PARTS[page].items():
        text = filled(text, name, make())
    return text


def main() -> int:
    """Write the pages and pictures."""
    for page in PARTS:
        page.write_text(current(page), encoding="utf-8")
    measured = [(name, page, file) for name, (page, file) in RESULTS.items() if file.exists()]
    for name, page, file in measured:
        text = filled(page.read_text(encoding="utf-8"), name, file.read_text(encoding="utf-8").rstrip())
        page.write_text(text, encoding="utf-8")
    for picture in filter(Path.exists, PICTURES):
        shutil.copy(picture, MEASURED / picture.name)
    if any(name == "bench" for name, _, _ in measured):
        from documentation import headline  # noqa: PLC0415 matplotlib takes seconds to load

        headline.draw(SPEED.read_text(encoding="utf-8"), MEASURED / "headline.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The reference of broker.toml, from conf/broker.toml and the types that parse it."""

from __future__ import annotations

import re
from pathlib import Path

CONFIG = Path(__file__).parents[2] / "conf" / "broker.toml"

_SECTION = re.compile(r"\[(\S+)\]")
_SETTING = re.compile(r"# ([a-z][a-z-]*) = (.*)")


def table() -> str:
    """One row for each setting: its section and name, its default, and the comment above it."""
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{name}` | `{default}` | {meaning} |".replace('`""`', "empty")
        for name, default, meaning in rows()
    ]
    return "\n".join(lines)


def rows() -> list[tuple[str, str, str]]:
    """(name with its section, default as TOML, meaning) of every setting outside of [doors]."""
    found: list[tuple[str, str, str]] = []
    section = ""
    comment: list[str] = []
    for line in CONFIG.read_text(encoding="utf-8").splitlines():
        if header := _SECTION.fullmatch(line):
            section = f"{header[1]}."
            comment = []
        elif setting := _SETTING.fullmatch(line):
            found.append((f"{section}{setting[1]}", setting[2], " ".join(comment).replace("|", "\\|")))
            comment = []
        elif line.startswith("# "):
            comment.append(line.removeprefix("# "))
        else:
            comment = []
    return found

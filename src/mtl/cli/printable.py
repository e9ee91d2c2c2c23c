"""Escapes text from other users, so that a terminal shows it and does not execute it.

Any writer chooses names, properties and bodies. A terminal executes control characters in them (ESC moves the cursor or
writes the clipboard), and direction marks show text in another order. So these are escaped, and so are line ends, since
one content is one line.
"""

from __future__ import annotations

import re

from rich.console import Console, JustifyMethod, OverflowMethod
from rich.text import Text

_CONTROLS = "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
_LINES = "\u2028\u2029"
_DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[{_CONTROLS}{_LINES}{_DIRECTIONS}]")


def printable(text: str, *, keep: str = "") -> str:
    r"""`text` with \x1b for ESC, \u202e for a direction mark and so on; characters in `keep` stay unchanged."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def printable_json(text: str) -> str:
    r"""The same for JSON: \u009b for U+009B and so on. Its value is unchanged, since these occur only in strings."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class PlainConsole(Console):
    """A console that prints text literally, also in tables: without markup, escape sequences and highlighting."""

    def render_str(
        self,
        text: str,
        *,
        style: object = "",
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        **_: object,
    ) -> Text:
        return Text(printable(text, keep="\n"), style=style, justify=justify, overflow=overflow)  # type: ignore[arg-type]

"""Text of others on a terminal: it is shown, and never obeyed.

Names, properties and bodies come from whoever may write. A terminal takes control characters in them for commands (ESC
moves the cursor or writes the clipboard), and marks of direction show text in another order than it has. So these are
escaped, and so is whatever ends a line, since one content is one line.
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
    r"""`text` with \x1b for ESC, \u202e for a mark of direction and so on; what `keep` has stays as it is."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def printable_json(text: str) -> str:
    r"""The same of JSON, whose strings have all of these: \u009b in place of U+009B. It means what it meant."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class PlainConsole(Console):
    """A console that prints what it is given, also in the cells of a table: no markup, no escapes, no highlighting."""

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

"""A console for text from other users: it prints the text, and executes nothing in it."""

from __future__ import annotations

from rich.console import Console, JustifyMethod, OverflowMethod
from rich.text import Text

from mtl.wire.visible import printable


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

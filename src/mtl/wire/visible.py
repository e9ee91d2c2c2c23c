"""Characters that a person does not see: refused in names, escaped in texts.

Any writer chooses names, properties and bodies. A terminal executes control characters in them (ESC moves the cursor or
writes the clipboard), direction marks show text in another order, and two names that differ in a zero-width character
look the same.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS = "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
_LINES = "\u2028\u2029"
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's property Default_Ignorable_Code_Point: zero-width characters, direction marks, fillers, variation selectors
and tags."""
_NOTES = "\ufff9-\ufffb"  # the brackets of annotations, which no font shows
_BLANK = "\u2800"  # a Braille pattern without dots

JOINERS: Final = "\u200c\u200d\ufe0e\ufe0f"
"""Invisible characters that are a usual part of texts: they join letters, and the parts of an emoji."""

_UNSEEN: Final = re.compile(f"[{_INVISIBLE}{_NOTES}{_BLANK}{_LINES}]")
_UNSAFE: Final = re.compile(f"[{_CONTROLS}{_INVISIBLE}{_NOTES}{_BLANK}{_LINES}]")


def unseen(text: str) -> str | None:
    """The first character of a text that a person does not see, as U+200B; None if there is none. Spaces and control
    characters do not count.
    """
    match = _UNSEEN.search(text)
    return None if match is None else f"U+{ord(match[0]):04X}"


def printable(text: str, *, keep: str = "") -> str:
    r"""`text` with \x1b for ESC, \u202e for a direction mark and so on; characters in `keep` stay unchanged."""
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def printable_json(text: str) -> str:
    r"""The same for JSON: \u009b for U+009B and so on. Its value is unchanged, since these occur only in strings."""
    return _UNSAFE.sub(lambda match: _escape_in_json(match[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _escape_in_json(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

"""Texts for people: a test wants the names, values and units in them, and not the sentence around them."""

from __future__ import annotations

import re


def in_order(*parts: object) -> str:
    """A pattern for texts that have these parts in this order, each as whole words; for `match` and `re.search`."""
    return "(?s)" + ".*".join(rf"(?<!\w){re.escape(str(part))}(?!\w)" for part in parts)

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from mtl.wire.visible import printable, printable_json, unseen

HIDDEN = ["\u200b", "\u00ad", "\u202e", "\u2028", "\u3164", "\u2800", "\ufe0f", "\ufeff", "\U000e0041"]


@pytest.mark.parametrize("character", HIDDEN)
def test_an_invisible_character_is_found_and_escaped(character: str) -> None:
    text = f"or{character}ders"
    assert unseen(text) == f"U+{ord(character):04X}"
    assert printable(text).isascii()
    assert printable_json(text).isascii()
    assert json.loads(f'"{printable_json(text)}"') == text


@pytest.mark.parametrize("text", ["orders", "Größe 7", "注文", "\N{SNOWMAN}", "a b\tc\n", "\U0001f600"])
def test_text_that_can_be_seen_is_unchanged(text: str) -> None:
    assert unseen(text) is None
    assert printable(text, keep="\t\n") == text


def test_every_format_character_that_hides_is_found() -> None:
    """Unicode's category Cf, except the signs of some scripts that are drawn."""
    drawn = {"ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN"}
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if unicodedata.category(character) == "Cf" and character != "\u061c":
            script = unicodedata.name(character, "").split(" ", maxsplit=1)[0]
            assert (unseen(character) is None) == (script in drawn), hex(number)
